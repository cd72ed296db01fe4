package podindex_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/await"
	"github.com/podops-dev/podops/test/builders"
)

// podServer lists and watches pods as an API server does, with a history that can expire.
type podServer struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int

	// expired is the resourceVersion before which the history is gone.
	expired int
	history []podEvent
	watcher *watch.FakeWatcher
	lists   int
}

type podEvent struct {
	version int
	watch.Event
}

var _ cache.ListerWatcherWithContext = &podServer{}

func newPodServer() *podServer { return &podServer{pods: map[string]*corev1.Pod{}, version: 100} }

// IsWatchListSemanticsUnSupported is true: a list is a list.
func (s *podServer) IsWatchListSemanticsUnSupported() bool { return true }

func (s *podServer) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, pod := range s.pods {
		list.Items = append(list.Items, *pod.DeepCopy())
	}
	return list, nil
}

func (s *podServer) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return s.List(options)
}

func (s *podServer) Watch(options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, err := strconv.Atoi(options.ResourceVersion)
	if err != nil || from < s.expired {
		return nil, apierrors.NewResourceExpired("too old")
	}
	s.watcher = watch.NewFakeWithChanSize(10_000, false)
	for _, event := range s.history {
		if event.version > from {
			s.watcher.Action(event.Type, event.Object.DeepCopyObject())
		}
	}
	return s.watcher, nil
}

func (s *podServer) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return s.Watch(options)
}

// write stores a change, and sends it unless it is silent.
func (s *podServer) write(kind watch.EventType, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(s.version)
	switch kind {
	case watch.Deleted:
		delete(s.pods, pod.Name)
	case watch.Added, watch.Modified:
		s.pods[pod.Name] = pod
	default: // a bookmark
	}
	s.history = append(s.history, podEvent{version: s.version, Event: watch.Event{Type: kind, Object: pod}})
	if s.watcher != nil && !s.watcher.IsStopped() {
		s.watcher.Action(kind, pod.DeepCopy())
	}
}

// lose ends the watch, drops the history, and makes changes that only a list shows.
func (s *podServer) lose(change func()) {
	s.mu.Lock()
	watcher := s.watcher
	s.watcher = nil
	s.mu.Unlock()
	change()
	s.mu.Lock()
	s.history, s.expired = nil, s.version
	s.mu.Unlock()
	if watcher != nil {
		watcher.Stop()
	}
}

// stored are the resourceVersions of the pods by UID.
func (s *podServer) stored() map[types.UID]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return versionsOf(slices.Collect(maps.Values(s.pods)))
}

func (s *podServer) at() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.version)
}

func versionsOf(pods []*corev1.Pod) map[types.UID]string {
	versions := map[types.UID]string{}
	for _, pod := range pods {
		versions[pod.UID] = pod.ResourceVersion
	}
	return versions
}

// informed is an index and its informer, which run until the test ends.
type informed struct {
	*podindex.Index
	informer cache.SharedIndexInformer
}

func startInformer(ctx context.Context, t failer, server *podServer, prepare func(cache.SharedIndexInformer)) informed {
	x := podindex.NewIndex(func(string) {})
	i := informed{Index: x, informer: x.NewInformer(server, &corev1.Pod{}, 0, cache.Indexers{})}
	if prepare != nil {
		prepare(i.informer)
	}
	go i.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), i.informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	return i
}

// cached are the resourceVersions of the pods in the cache by UID.
func (i informed) cached() map[types.UID]string {
	var pods []*corev1.Pod
	for _, object := range i.informer.GetStore().List() {
		pods = append(pods, object.(*corev1.Pod))
	}
	return versionsOf(pods)
}

// indexed are the resourceVersions of the pods in the index by UID. Pods of these tests wait.
func (i informed) indexed() map[types.UID]string {
	versions := map[types.UID]string{}
	for _, request := range i.Snapshot("default", nil).Waiting {
		versions[request.Pod.UID] = request.Pod.ResourceVersion
	}
	return versions
}

// await waits until the index and the cache have the objects of the server.
func (i informed) await(t failer, server *podServer) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		want := server.stored()
		differs := cmp.Diff(want, i.cached()) + cmp.Diff(want, i.indexed())
		if at := i.Snapshot("default", nil).ResourceVersion; at != server.at() {
			differs += fmt.Sprintf("the index has seen up to %s, want %s", at, server.at())
		}
		if differs == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the index and the cache differ from the server:\n" + differs)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestInformerSharesItsPodsWithTheIndex also after a list that shows a pod unchanged.
func TestInformerSharesItsPodsWithTheIndex(t *testing.T) {
	server := newPodServer()
	server.write(watch.Added, waitingPod("listed").Obj())
	i := startInformer(t.Context(), t, server, nil)
	server.write(watch.Added, waitingPod("watched").Obj())
	i.await(t, server)
	server.lose(func() { server.write(watch.Added, waitingPod("relisted").Obj()) })
	i.await(t, server)
	if server.lists != 2 {
		t.Errorf("%d lists, want 2", server.lists)
	}
	view := i.Snapshot("default", nil)
	for _, name := range []string{"listed", "watched", "relisted"} {
		cached, exists, err := i.informer.GetStore().GetByKey("default/" + name)
		if err != nil || !exists {
			t.Errorf("pod %s is not in the cache: %v", name, err)
			continue
		}
		if cached != view.Pod(types.UID(name+"-uid")) {
			t.Errorf("the cache and the index have pod %s twice", name)
		}
		if shared, ok := i.Pod(types.NamespacedName{Namespace: "default", Name: name}); !ok || cached != shared {
			t.Errorf("pod %s is another object than that of the cache", name)
		}
	}
	if pod, ok := i.Pod(types.NamespacedName{Namespace: "default", Name: "none"}); ok {
		t.Errorf("there is a pod %s", pod.Name)
	}
	if _, ok := podindex.NewIndex(func(string) {}).Pod(types.NamespacedName{Namespace: "default", Name: "listed"}); ok {
		t.Error("an index without an informer has a pod")
	}
}

// TestInformerTransformsPods before the index and the cache store them.
func TestInformerTransformsPods(t *testing.T) {
	server := newPodServer()
	server.write(watch.Added, waitingPod("listed").Obj())
	i := startInformer(t.Context(), t, server, func(informer cache.SharedIndexInformer) {
		err := informer.SetTransform(func(object any) (any, error) {
			object.(*corev1.Pod).Spec.Containers = nil
			return object, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	server.write(watch.Added, waitingPod("watched").Obj())
	i.await(t, server)
	for _, object := range i.informer.GetStore().List() {
		if pod := object.(*corev1.Pod); pod.Spec.Containers != nil {
			t.Errorf("pod %s was not transformed", pod.Name)
		}
	}
}

// TestIndexIsAheadOfHandlers shows that when a handler gets an event, the index has it.
func TestIndexIsAheadOfHandlers(t *testing.T) {
	const pods = 200
	server := newPodServer()
	for n := range pods / 2 {
		server.write(watch.Added, waitingPod(fmt.Sprintf("p-%d", n)).Obj())
	}
	var index *podindex.Index
	handled := make(chan struct{}, 2*pods)
	check := func(object any) {
		pod := object.(*corev1.Pod)
		if at := index.Snapshot("default", nil).At(pod.UID); at != "" && versionNumber(t, at) < versionNumber(t, pod.ResourceVersion) {
			t.Errorf("a handler got pod %s at %s, the index has it at %s", pod.Name, pod.ResourceVersion, at)
		}
		handled <- struct{}{}
	}
	index = podindex.NewIndex(func(string) {})
	informer := index.NewInformer(server, &corev1.Pod{}, 0, cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: check, UpdateFunc: func(_, object any) { check(object) },
	}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	for n := range pods / 2 {
		server.write(watch.Modified, waitingPod(fmt.Sprintf("p-%d", n)).Label("n", "1").Obj())
		server.write(watch.Added, waitingPod(fmt.Sprintf("p-%d", n+pods/2)).Obj())
	}
	informed{index, informer}.await(t, server)
	for range pods {
		await.Receive(t, "handlers get every pod", handled)
	}
}

func versionNumber(t *testing.T, version string) int {
	t.Helper()
	number, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// TestBookmarksMoveTheIndex, which has then seen everything up to them.
func TestBookmarksMoveTheIndex(t *testing.T) {
	server := newPodServer()
	i := startInformer(t.Context(), t, server, nil)
	server.write(watch.Bookmark, &corev1.Pod{})
	i.await(t, server)
}

// TestInformersOfOtherKinds shows that they are the informers of client-go.
func TestInformersOfOtherKinds(t *testing.T) {
	x := podindex.NewIndex(func(string) {})
	plain := cache.NewSharedIndexInformer(newPodServer(), &corev1.Service{}, 0, cache.Indexers{})
	if got := x.NewInformer(newPodServer(), &corev1.Service{}, 0, cache.Indexers{}); fmt.Sprintf("%T", got) != fmt.Sprintf("%T", plain) {
		t.Errorf("got a %T, want a %T", got, plain)
	}
}

// TestInformerEndsBeforeTheFirstList, when the API server never answers.
func TestInformerEndsBeforeTheFirstList(t *testing.T) {
	x := podindex.NewIndex(func(string) {})
	ctx, cancel := context.WithCancel(t.Context())
	hangs := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	informer, ended := x.NewInformer(hangs, &corev1.Pod{}, 0, cache.Indexers{}), make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	cancel()
	await.Receive(t, "the informer ends", ended)
}

// TestInformerAndIndexFollowTheServer through any changes, seen one by one or in a new list.
func TestInformerAndIndexFollowTheServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		server := newPodServer()
		made := 0
		change := func() {
			name := fmt.Sprintf("p-%d", rapid.IntRange(0, 4).Draw(t, "name"))
			known := server.pods[name]
			switch {
			case known == nil:
				made++
				server.write(watch.Added, waitingPod(name).UID(types.UID(fmt.Sprintf("u-%d", made))).Obj())
			case rapid.Bool().Draw(t, "delete"):
				server.write(watch.Deleted, known)
			default:
				server.write(watch.Modified, waitingPod(name).UID(known.UID).Label("n", builders.Stamp(time.Now())).Obj())
			}
		}
		changes := func() {
			for range rapid.IntRange(0, 8).Draw(t, "changes") {
				change()
			}
		}
		changes()
		i := startInformer(ctx, t, server, nil)
		changes()
		if rapid.IntRange(0, 29).Draw(t, "lost") == 0 { // the reflector waits for a second before it lists again
			server.lose(changes)
			changes()
		}
		i.await(t, server)
	})
}
