package removal_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/removal"
)

const (
	user  = "jane"
	since = "1767225600000000000"
)

// server is an API server with pods that PodOps holds. Its record of a request appears a moment after the request.
type server struct {
	mu        sync.Mutex
	live      map[string]*corev1.Pod
	recordsAt map[string]time.Time
	by        string // the user of the records
	mayLabel  bool
	frees     map[string]int // the number of the request with which a pod goes
	requests  map[string]int
	waits     time.Duration // each request waits in admission
}

func serverOf(pods []*corev1.Pod) *server {
	s := &server{live: map[string]*corev1.Pod{}, recordsAt: map[string]time.Time{}, by: user, mayLabel: true, frees: map[string]int{}, requests: map[string]int{}}
	for _, pod := range pods {
		s.live[pod.Name] = pod.DeepCopy()
	}
	return s
}

func (s *server) Request(ctx context.Context, pod removal.Pod) removal.Answer {
	s.mu.Lock()
	s.requests[pod.Name]++
	n := s.requests[pod.Name]
	if _, ok := s.recordsAt[pod.Name]; !ok {
		s.recordsAt[pod.Name] = time.Now().Add(300 * time.Millisecond)
	}
	s.mu.Unlock()
	select {
	case <-time.After(s.waits):
	case <-ctx.Done():
		return removal.Answer{Kind: removal.Interrupted}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == s.frees[pod.Name] {
		delete(s.live, pod.Name)
		return removal.Answer{Kind: removal.Admitted}
	}
	return held("web/availability withholds it")
}

func (s *server) Get(_ context.Context, pod removal.Pod) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live, ok := s.live[pod.Name]
	if !ok {
		return nil, nil
	}
	live = live.DeepCopy()
	if at, ok := s.recordsAt[pod.Name]; ok && !time.Now().Before(at) {
		live.Labels = map[string]string{appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID: since}
		request := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorClient, User: s.by}
		live.Annotations = map[string]string{
			appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(request.Begin(live, since)),
			appsv1alpha1.DetailAnnotationKey("web"): `{"stage":"PreCheck","rejectInfo":[{"ruleName":"availability","reason":"NoRoom: 2 of 3"}]}`,
		}
	}
	return live, nil
}

func (s *server) Undo(_ context.Context, live *corev1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayLabel {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, live.Name, errors.New("no right"))
	}
	delete(s.recordsAt, live.Name)
	return nil
}

func (s *server) User(context.Context) (string, error) { return user, nil }

// TestInterrupted shows what remains of the requests for two pods when their removal ends early, and what the user
// reads. The first pod goes with its second request; the second is held.
func TestInterrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		after   time.Duration
		timeout bool
		server  func(*server)
		want    []string // parts of the output
		without string
		records int // requests that are left
		within  time.Duration
	}{
		"while a pod is held": {
			after: 20 * time.Second, within: 2 * time.Second,
			want: []string{"web-000 (1 of 2) gone", "shop/web-001  held   withdrawn  web/availability withholds it", "1 of 2 pods are left: interrupted"},
		},
		"the time passes": {
			after: 20 * time.Second, timeout: true, within: 2 * time.Second,
			want: []string{"withdrawn", "1 of 2 pods are left: the time of --timeout has passed"},
		},
		"before the first request has left its record": {
			after: 100 * time.Millisecond, within: 2 * time.Second, server: func(s *server) { s.waits = 5 * time.Second },
			want: []string{"shop/web-000  requested  withdrawn", "2 of 2 pods are left"},
		},
		"without the right to label pods": {
			after: 20 * time.Second, within: 2 * time.Second, records: 1, server: func(s *server) { s.mayLabel = false },
			want: []string{"lapses within 15s (you may not label the pod)"},
		},
		"another user has requested it first": {
			after: 20 * time.Second, within: 2 * time.Second, records: 1, server: func(s *server) { s.by = "joe" },
			want: []string{"held   none"}, without: "  withdrawn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := podsOf(2)
				s := serverOf(pods)
				s.frees["web-000"] = 2
				if tc.server != nil {
					tc.server(s)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.timeout {
					ctx, cancel = context.WithTimeoutCause(t.Context(), tc.after, removal.ErrTimeout)
					defer cancel()
				} else {
					time.AfterFunc(tc.after, cancel)
				}
				var out strings.Builder
				began := time.Now()
				remover := removal.Remover{API: s, Out: &out, Messages: &out, Now: time.Now}
				err := remover.Run(ctx, pods)
				if err == nil {
					t.Fatalf("it succeeded:\n%s", &out)
				}
				if took := time.Since(began) - tc.after; took > tc.within {
					t.Errorf("it ended after another %s, want %s", took, tc.within)
				}
				text := out.String() + err.Error()
				for _, want := range tc.want {
					if !strings.Contains(text, want) {
						t.Errorf("want %q in\n%s", want, text)
					}
				}
				if tc.without != "" && strings.Contains(text, tc.without) {
					t.Errorf("want no %q in\n%s", tc.without, text)
				}
				left := 0
				for pod := range s.recordsAt {
					if s.live[pod] != nil {
						left++
					}
				}
				if left != tc.records {
					t.Errorf("%d requests are left, want %d", left, tc.records)
				}
			})
		})
	}
}

// TestProgress shows the lines of a removal that succeeds: one for each pod and change.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := podsOf(2)
		s := serverOf(pods)
		s.frees = map[string]int{"web-000": 1, "web-001": 3}
		var out strings.Builder
		remover := removal.Remover{API: s, Out: &out, Messages: &out, Now: time.Now}
		if err := remover.Run(t.Context(), pods); err != nil {
			t.Fatal(err)
		}
		const want = `   0s  shop/web-000 (1 of 2) requested
   0s  shop/web-000 (1 of 2) terminating
   0s  shop/web-001 (2 of 2) requested
   0s  shop/web-001 (2 of 2) held: web/availability withholds it
   2s  shop/web-000 (1 of 2) gone
   8s  shop/web-001 (2 of 2) terminating
  10s  shop/web-001 (2 of 2) gone
2 pods are gone after 10s
`
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &out, want)
		}
	})
}

// TestAPodThatIsReplacedIsNobodysRequest shows that nothing is withdrawn from another pod of the name.
func TestAPodThatIsReplacedIsNobodysRequest(t *testing.T) {
	other := newPod("web-000", "")
	other.UID = "later"
	if got := removal.RequestRemains(removal.NewPod(newPod("web-000", "")), other, user); got != removal.Removed {
		t.Errorf("got %d, want Removed", got)
	}
	terminating := newPod("web-000", "")
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if got := removal.RequestRemains(removal.NewPod(terminating), terminating, user); got != removal.Removed {
		t.Errorf("got %d, want Removed", got)
	}
}
