package ownerscale_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/state/ownerscale"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// server is an API server with objects of custom kinds.
type server struct {
	mu      sync.Mutex
	objects map[ownerscale.Kind]map[types.NamespacedName]*object
	watches map[ownerscale.Kind]*watch.FakeWatcher
	version int

	// failures of the requests for a kind; scaleFailure fails reads of scales alone.
	failure      map[ownerscale.Kind]error
	scaleFailure map[ownerscale.Kind]error

	// hangs are the kinds whose scales are not returned.
	hangs map[ownerscale.Kind]bool

	// requests counts discovery, lists, watches and scales.
	requests map[string]int
}

type object struct {
	meta  metav1.ObjectMeta
	scale autoscalingv1.Scale
}

func newServer() *server {
	return &server{
		objects: map[ownerscale.Kind]map[types.NamespacedName]*object{}, watches: map[ownerscale.Kind]*watch.FakeWatcher{},
		failure: map[ownerscale.Kind]error{}, scaleFailure: map[ownerscale.Kind]error{}, hangs: map[ownerscale.Kind]bool{},
		requests: map[string]int{},
	}
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "clonesets"}, "", errors.New("no right"))

// put stores an object with these numbers and reports it to the watch.
func (s *server) put(o ownerscale.Owner, desired, observed int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.Kind] == nil {
		s.objects[o.Kind] = map[types.NamespacedName]*object{}
	}
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	before := s.objects[o.Kind][name]
	s.version++
	stored := &object{
		meta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, Generation: int64(s.version), ResourceVersion: fmt.Sprint(s.version),
		},
		scale: autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{UID: o.UID}, Spec: autoscalingv1.ScaleSpec{Replicas: desired}, Status: autoscalingv1.ScaleStatus{Replicas: observed},
		},
	}
	s.objects[o.Kind][name] = stored
	if w := s.watches[o.Kind]; w != nil && before == nil {
		w.Add(&metav1.PartialObjectMetadata{ObjectMeta: stored.meta})
	} else if w != nil {
		w.Modify(&metav1.PartialObjectMetadata{ObjectMeta: stored.meta})
	}
}

func (s *server) remove(o ownerscale.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	gone := s.objects[o.Kind][name]
	delete(s.objects[o.Kind], name)
	s.watches[o.Kind].Delete(&metav1.PartialObjectMetadata{ObjectMeta: gone.meta})
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[request]
}

func (s *server) Resolve(_ context.Context, kind ownerscale.Kind) (ownerscale.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests["discovery"]++
	if kind.Kind == "Unknown" {
		return ownerscale.Resource{}, &ownerscale.UnknownKindError{Kind: kind}
	}
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	return ownerscale.Resource{GroupVersionResource: version.WithResource(kind.Kind), Scalable: kind.Kind != "Unscalable"}, err
}

func kindOf(resource ownerscale.Resource) ownerscale.Kind {
	return ownerscale.Kind{APIVersion: resource.GroupVersion().String(), Kind: resource.Resource}
}

func (s *server) Scale(ctx context.Context, resource ownerscale.Resource, namespace, name string) (*autoscalingv1.Scale, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests["scale"]++
	if kind := kindOf(resource); s.hangs[kind] {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return nil, ctx.Err()
	} else if err := s.scaleFailure[kind]; err != nil {
		return nil, err
	}
	found := s.objects[kindOf(resource)][types.NamespacedName{Namespace: namespace, Name: name}]
	if found == nil {
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	return found.scale.DeepCopy(), nil
}

func (s *server) Metadata(resource ownerscale.Resource) cache.ListerWatcherWithContext {
	kind := kindOf(resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.requests["list"]++
			if err := s.failure[kind]; err != nil {
				return nil, err
			}
			list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.version)}}
			for _, o := range s.objects[kind] {
				list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: o.meta})
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.requests["watch"]++
			if err := s.failure[kind]; err != nil {
				return nil, err
			}
			w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
			s.watches[kind] = w
			context.AfterFunc(ctx, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.watches[kind] == w {
					delete(s.watches, kind)
				}
			})
			return w, nil
		},
	}
}

// stored is an index that keeps the owners that a Reader stores.
type stored struct {
	mu     sync.Mutex
	owners map[ownerscale.Key]podindex.Owner
}

func (s *stored) SetOwner(o podindex.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[ownerscale.Key{Namespace: o.Namespace, UID: o.UID}] = o
}

func (s *stored) DeleteOwner(namespace string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owners, ownerscale.Key{Namespace: namespace, UID: uid})
}

// text returns the stored owner as text.
func (s *stored) text(key ownerscale.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.owners[key]
	switch {
	case !ok:
		return "not counted"
	case o.Uncounted:
		return o.Unreadable
	default:
		return fmt.Sprintf("%d desired, %d observed", o.Desired, o.Observed)
	}
}

// fixture is a Reader, an API server and an index.
type fixture struct {
	*server
	reader *ownerscale.Reader
	index  *stored
}

// withFixture runs a test with a Reader, in a bubble of its own time.
func withFixture(t *testing.T, test func(t *testing.T, w *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		measured, err := ownerscale.NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		w := &fixture{server: newServer(), index: &stored{owners: map[ownerscale.Key]podindex.Owner{}}}
		w.reader = ownerscale.NewReader(w.server, w.index, measured, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.reader.Start(ctx); err != nil {
				t.Error(err)
			}
		})
		test(t, w)
		cancel()
		running.Wait()
	})
}

func (w *fixture) refer(o ownerscale.Owner, present bool) {
	w.reader.Refer(podindex.Controller{
		Namespace: o.Namespace, APIVersion: o.APIVersion, Kind: o.Kind.Kind, Name: o.Name, UID: o.UID,
	}, present)
}

// after fails the test unless this is stored of an owner after a while.
func (w *fixture) after(t *testing.T, wait time.Duration, o ownerscale.Owner, want string) {
	t.Helper()
	time.Sleep(wait)
	synctest.Wait()
	if got := w.index.text(o.Key); !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", o.Name, got, want)
	}
}

var web = owner("shop", "web", "CloneSet")

func TestTheNumbersOfAnOwnerFollowItsScale(t *testing.T) {
	withFixture(t, func(t *testing.T, w *fixture) {
		w.put(web, 3, 2)
		w.after(t, time.Minute, web, "not counted")
		if got := w.count("discovery") + w.count("list"); got > 0 {
			t.Errorf("%d requests before it has a pod", got)
		}
		w.refer(web, true)
		w.after(t, time.Second, web, "3 desired, 2 observed")
		w.put(web, 5, 3)
		w.after(t, 2*time.Second, web, "5 desired, 3 observed")
		w.remove(web)
		w.after(t, 2*time.Second, web, "not counted")
		w.put(web, 4, 4)
		w.after(t, 2*time.Second, web, "4 desired, 4 observed")
		w.refer(web, false)
		w.after(t, time.Second, web, "not counted")
	})
}

func TestRequestsFollowChanges(t *testing.T) {
	withFixture(t, func(t *testing.T, w *fixture) {
		w.put(web, 3, 3)
		w.refer(web, true)
		w.after(t, time.Hour, web, "3 desired")
		want := map[string]int{"discovery": 1, "list": 1, "watch": 1, "scale": 1}
		w.set(func() {
			if diff := cmp.Diff(want, w.requests); diff != "" {
				t.Errorf("requests of an hour without a change (-want +got):\n%s", diff)
			}
		})
		for i := range int32(100) { // ten changes a second
			w.put(web, 10+i, 3)
			time.Sleep(100 * time.Millisecond)
		}
		w.after(t, 2*time.Second, web, "109 desired")
		if got := w.count("scale"); got > 13 {
			t.Errorf("%d reads in 12 seconds of changes", got)
		}
	})
}

func TestTheWatchOfAKindEndsWithItsLastOwner(t *testing.T) {
	withFixture(t, func(t *testing.T, w *fixture) {
		w.put(web, 3, 3)
		w.refer(web, true)
		w.after(t, time.Second, web, "3 desired")
		w.refer(web, false)
		w.after(t, 5*time.Minute, web, "not counted")
		w.set(func() {
			if len(w.watches) > 0 {
				t.Errorf("watched: %v", slices.Collect(maps.Keys(w.watches)))
			}
		})
		w.refer(web, true)
		w.after(t, time.Second, web, "3 desired")
	})
}

func TestAnOwnerThatCannotBeRead(t *testing.T) {
	kind := web.Kind
	for name, tc := range map[string]struct {
		fails, recovers func(w *server)
		want            string
	}{
		"the manager may not list its kind": {
			fails:    func(w *server) { w.failure[kind] = forbidden },
			recovers: func(w *server) { delete(w.failure, kind) },
			want:     "forbidden: no right",
		},
		"the manager may not read its scale": {
			fails:    func(w *server) { w.scaleFailure[kind] = forbidden },
			recovers: func(w *server) { delete(w.scaleFailure, kind) },
			want:     "forbidden: no right",
		},
		"its conversion hangs": {
			fails:    func(w *server) { w.hangs[kind] = true },
			recovers: func(w *server) { delete(w.hangs, kind) },
			want:     "does not respond in time",
		},
		"its kind is no longer served": {
			fails: func(w *server) {
				w.failure[kind] = apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, true)
			},
			recovers: func(w *server) { delete(w.failure, kind) },
			want:     "could not find the requested resource",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, w *fixture) {
				w.put(web, 3, 3)
				w.set(func() { tc.fails(w.server) })
				w.refer(web, true)
				w.after(t, 10*time.Second, web, tc.want)
				w.set(func() { tc.recovers(w.server) })
				w.after(t, 6*time.Minute, web, "3 desired")
			})
		})
	}
}

func TestAnOwnerThatCanBeReadNoMore(t *testing.T) {
	withFixture(t, func(t *testing.T, w *fixture) {
		w.put(web, 3, 3)
		w.refer(web, true)
		w.after(t, time.Second, web, "3 desired")
		w.set(func() { w.failure[web.Kind] = forbidden; w.watches[web.Kind].Stop() })
		w.after(t, 5*time.Second, web, "forbidden")
		w.set(func() { delete(w.failure, web.Kind) })
		w.after(t, time.Minute, web, "3 desired")
	})
}

// TestABusyAPIServer shows that one read without an answer changes nothing, neither before the first answer nor after it.
func TestABusyAPIServer(t *testing.T) {
	withFixture(t, func(t *testing.T, w *fixture) {
		w.put(web, 3, 3)
		w.set(func() { w.hangs[web.Kind] = true })
		w.refer(web, true)
		w.after(t, 5*time.Second, web, "not counted")
		w.set(func() { delete(w.hangs, web.Kind) })
		w.after(t, 5*time.Second, web, "3 desired")
		w.set(func() { w.scaleFailure[web.Kind] = apierrors.NewTooManyRequests("busy", 1) })
		w.put(web, 4, 3)
		w.after(t, time.Second, web, "3 desired")
		w.set(func() { delete(w.scaleFailure, web.Kind) })
		w.after(t, 5*time.Second, web, "4 desired")
	})
}

func TestOwnersThatAreNotCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		owner ownerscale.Owner
		want  string
	}{
		"of a kind that is not served":              {owner: owner("shop", "web", "Unknown"), want: "does not serve Unknown in example.com/v1"},
		"of a kind without a scale":                 {owner: owner("shop", "web", "Unscalable"), want: "not counted"},
		"that do not exist":                         {owner: owner("shop", "other", "CloneSet"), want: "not counted"},
		"of another UID":                            {owner: ownerscale.Owner{Key: ownerscale.Key{Namespace: "shop", UID: "older"}, Kind: web.Kind, Name: "web"}, want: "not counted"},
		"of another namespace":                      {owner: ownerscale.Owner{Key: ownerscale.Key{Namespace: "thief", UID: web.UID}, Kind: web.Kind, Name: "web"}, want: "not counted"},
		"of a kind that is watched by another part": {owner: ownerscale.Owner{Key: web.Key, Kind: ownerscale.Kind{APIVersion: "apps/v1", Kind: "StatefulSet"}, Name: "web"}, want: "not counted"},
		"with a version that cannot be parsed":      {owner: ownerscale.Owner{Key: web.Key, Kind: ownerscale.Kind{APIVersion: "a/b/c", Kind: "CloneSet"}, Name: "web"}, want: "not counted"},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, w *fixture) {
				w.put(web, 3, 3)
				w.refer(tc.owner, true)
				w.after(t, time.Minute, tc.owner, tc.want)
			})
		})
	}
}

// TestAHostileNamespaceDelaysOnlyItself shows this with more owners and kinds than allowed, all of them slow, and pods
// that come and go.
func TestAHostileNamespaceDelaysOnlyItself(t *testing.T) {
	withFixture(t, func(t *testing.T, w *fixture) {
		for i := range 10_000 {
			kind := fmt.Sprintf("Kind%d", i%20)
			o := owner("hostile", fmt.Sprintf("slow-%d", i), kind)
			w.set(func() { w.hangs[o.Kind] = true })
			if i < 300 {
				w.put(o, 1, 1)
			}
			w.refer(o, true)
		}
		churned := owner("hostile", "slow-0", "Kind0")
		for range 100 {
			w.refer(churned, false)
			time.Sleep(10 * time.Millisecond)
			w.refer(churned, true)
			time.Sleep(10 * time.Millisecond)
		}
		w.put(web, 3, 3)
		w.refer(web, true)
		w.after(t, time.Second, web, "3 desired")
		before := w.count("scale")
		w.after(t, time.Minute, owner("hostile", "slow-9999", "Kind19"), "more than")
		if got := w.count("scale") - before; got > 2*60/3+2 {
			t.Errorf("%d slow reads in a minute", got)
		}
		if got := w.count("discovery"); got > 10 {
			t.Errorf("%d requests to discovery", got)
		}
	})
}
