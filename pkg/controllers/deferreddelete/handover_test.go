package deferreddelete

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/test/builders"
)

// byController is a request that a custom controller sends for its pods.
var byController = deferreddelete.Request{
	Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorController, User: "system:serviceaccount:fleets:controller",
}

// ofFleet returns a pod of a custom owner.
func ofFleet(name string) *builders.PodBuilder {
	return builders.MakePod(name).OwnedBy(customOwner).Phase(corev1.PodRunning).Available()
}

// handedOver returns a pod with a request of another replica, some time old.
func handedOver(name string, age time.Duration) *corev1.Pod {
	pod := ofFleet(name).Obj()
	pod.Annotations = map[string]string{
		appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(byController.HandOver(pod, start.Add(-age))),
	}
	return pod
}

// follower makes a Starter one of a replica that does not lead.
func follower(s *Starter) *Starter {
	s.elected = make(chan struct{})
	return s
}

func deferByController(t *testing.T, s *Starter, name string) time.Duration {
	t.Helper()
	s.Defer(types.NamespacedName{Namespace: "default", Name: name}, types.UID(name+"-uid"), byController)
	result, err := s.Reconcile(t.Context(), requestFor(name))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// TestAReplicaHandsOver has requests for two pods of one owner that reach two replicas before either sees the other's: one pod begins.
func TestAReplicaHandsOver(t *testing.T) {
	w := newCluster(t, ofFleet("web-0").Obj(), ofFleet("web-1").Obj())
	leader, other := newStarter(w), follower(newStarter(w))
	deferByController(t, leader, "web-0")
	if sent := w.sent(); len(sent) != 1 || !strings.Contains(sent[0], `"operating/pod-delete"`) {
		t.Fatalf("the leader sent %v, want a delete to begin", sent)
	}
	deferByController(t, other, "web-1")
	sent := w.sent()
	if len(sent) != 1 || strings.Contains(sent[0], "operating") || !strings.Contains(sent[0], "resourceVersion") {
		t.Fatalf("the other replica sent %v, want a record for this version of the pod, and no delete to begin", sent)
	}
}

func TestTheLeaderTakesOver(t *testing.T) {
	for sentence, tc := range map[string]struct {
		pods []*corev1.Pod
		want string // of the request
	}{
		"a request begins": {
			[]*corev1.Pod{handedOver("web-0", time.Second)}, `"operating/pod-delete"`,
		},
		"a request is dropped while another pod goes": {
			[]*corev1.Pod{handedOver("web-0", time.Second), recorded(ofFleet("web-1").Waiting("pod-delete", "delete", start).Obj(), byController)},
			`"annotations":{"podopslifecycle.kusionstack.io/pending-delete":null}`,
		},
		"an old request is dropped": {
			[]*corev1.Pod{handedOver("web-0", handedOverTTL)}, `"annotations":{"podopslifecycle.kusionstack.io/pending-delete":null}`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newCluster(t)
			for i, pod := range tc.pods {
				pod.ResourceVersion = ""
				if err := w.cache.Create(t.Context(), pod); err != nil {
					t.Fatal(i, err)
				}
			}
			s := newStarter(w)
			if _, err := s.takeOver(t.Context(), requestFor("web-0")); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Reconcile(t.Context(), requestFor("web-0")); err != nil {
				t.Fatal(err)
			}
			if sent := w.sent(); len(sent) != 1 || !strings.Contains(sent[0], tc.want) {
				t.Errorf("sent %v, want %s", sent, tc.want)
			}
		})
	}
}

// TestBeginsNoOtherPodOnceAPodIsPermitted has a rule that permits the waiting pod before its delete ends for another pod.
func TestBeginsNoOtherPodOnceAPodIsPermitted(t *testing.T) {
	waits := builders.MakePod("web-0").OwnedBy(customOwner).Phase(corev1.PodRunning)
	w := newCluster(t, withheld(recorded(on(waits), byController)), ofFleet("web-1").Obj())
	w.clock.Step(deferreddelete.ReplaceAnotherAfter)
	w.err = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("it has changed"))
	deferByController(t, newStarter(w), "web-1")
	if sent := w.sent(); len(sent) != 1 || !strings.HasPrefix(sent[0], "patch web-0 ") || !strings.Contains(sent[0], "resourceVersion") {
		t.Errorf("sent %v, want the delete of this version of web-0 to end, and no other to begin", sent)
	}
}

// TestAReplicaHandsOverOnce has a request that its client repeats before the leader has begun it.
func TestAReplicaHandsOverOnce(t *testing.T) {
	w := newCluster(t, handedOver("web-0", time.Second))
	deferByController(t, follower(newStarter(w)), "web-0")
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v, want nothing", sent)
	}
}
