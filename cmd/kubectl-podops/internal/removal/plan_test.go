package removal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/removal"
)

// podOf returns a pod that is ready, of a controller ("<Kind>/<name>", empty for none).
func newPod(name, controller string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}}
	if kind, of, ok := strings.Cut(controller, "/"); ok {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: of, Controller: new(true)}}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func unready(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Conditions = nil
	return pod
}

func podsOf(count int) []*corev1.Pod {
	pods := make([]*corev1.Pod, count)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("web-%03d", i), "ReplicaSet/web")
	}
	return pods
}

func TestOrder(t *testing.T) {
	plan := removal.NewPlan([]*corev1.Pod{
		newPod("db-9", "StatefulSet/db"), newPod("web-b", "ReplicaSet/web"), newPod("db-10", "StatefulSet/db"),
		newPod("alone", ""), newPod("web-a", "ReplicaSet/web"), unready(newPod("web-c", "ReplicaSet/web")),
	})
	var got []string
	for _, removal := range plan.Removals {
		got = append(got, removal.Name)
	}
	if diff := cmp.Diff([]string{"web-c", "alone", "web-a", "web-b", "db-10", "db-9"}, got); diff != "" {
		t.Errorf("the unready pod first, and a StatefulSet from its highest ordinal (-want +got):\n%s", diff)
	}
}

// played is a plan that is carried out against answers, with a clock of its own.
type played struct {
	*testing.T
	plan  *removal.Plan
	now   time.Time
	began time.Time

	// answer returns the answer to the nth thing that is sent for a pod, and how long it takes.
	answer func(pod string, verb removal.Verb, n int) (removal.Answer, time.Duration)

	sent    []string // "<seconds> <verb> <pod>"
	counts  map[string]int
	pending []arrival
	most    int // requests at a time
	least   time.Duration
}

type arrival struct {
	at     time.Time
	index  int
	answer removal.Answer
}

func play(t *testing.T, pods []*corev1.Pod, answer func(pod string, verb removal.Verb, n int) (removal.Answer, time.Duration)) *played {
	epoch := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &played{T: t, plan: removal.NewPlan(pods), now: epoch, began: epoch, answer: answer, counts: map[string]int{}, least: time.Hour}
}

// until plays for a time, or until the plan has ended.
func (p *played) until(limit time.Duration) {
	p.Helper()
	var last time.Time
	for !p.plan.Ended() && p.now.Sub(p.began) < limit {
		index, verb, ok, wait := p.plan.Next(p.now)
		if ok {
			if !last.IsZero() {
				p.least = min(p.least, p.now.Sub(last))
			}
			last = p.now
			p.send(index, verb)
			continue
		}
		p.wake(wait)
	}
}

func (p *played) send(index int, verb removal.Verb) {
	name := p.plan.Removals[index].Name
	p.counts[name]++
	word := map[removal.Verb]string{removal.Request: "request", removal.Look: "look"}[verb]
	p.sent = append(p.sent, fmt.Sprintf("%.0fs %s %s", p.now.Sub(p.began).Seconds(), word, name))
	answer, takes := p.answer(name, verb, p.counts[name])
	p.pending = append(p.pending, arrival{p.now.Add(takes), index, answer})
	p.most = max(p.most, len(p.pending))
}

// wake goes on to the next answer, or to the time that the plan waits for.
func (p *played) wake(wait time.Duration) {
	p.Helper()
	next := -1
	for i := range p.pending {
		if next < 0 || p.pending[i].at.Before(p.pending[next].at) {
			next = i
		}
	}
	switch {
	case next >= 0 && (wait == 0 || !p.pending[next].at.After(p.now.Add(wait))):
		arrived := p.pending[next]
		p.pending = append(p.pending[:next:next], p.pending[next+1:]...)
		p.now = arrived.at
		p.plan.Answer(arrived.index, arrived.answer, p.now)
	case wait > 0:
		p.now = p.now.Add(wait)
	default:
		p.Fatal("the plan waits for nothing, and has not ended")
	}
}

func held(reason string) removal.Answer { return removal.Answer{Kind: removal.TooMany, Reason: reason} }

// TestRequests shows what is sent for one pod, and when, and how it ends.
func TestRequests(t *testing.T) {
	admitted, absent := removal.Answer{Kind: removal.Admitted}, removal.Answer{Kind: removal.Absent}
	unavailable := removal.Answer{Kind: removal.Unavailable, Reason: "no leader"}
	for name, tc := range map[string]struct {
		answers   []removal.Answer // the last one is repeated
		want      []string
		wantPhase removal.Phase
	}{
		"a pod that is deleted at once": {
			answers: []removal.Answer{admitted, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "2s look web-000"},
		},
		"a pod that takes a while to terminate": {
			answers: []removal.Answer{admitted, admitted, admitted, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "2s look web-000", "4s look web-000", "6s look web-000"},
		},
		"a pod that is held is repeated within a third of the lapse": {
			answers: []removal.Answer{held("no room"), held("no room"), admitted, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "4s request web-000", "8s request web-000", "10s look web-000"},
		},
		"an answer that names a time": {
			answers: []removal.Answer{{Kind: removal.TooMany, After: 10 * time.Second}, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "10s request web-000"},
		},
		"an answer that names an hour": {
			answers: []removal.Answer{{Kind: removal.TooMany, After: time.Hour}, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "30s request web-000"},
		},
		"another pod has the name: nothing more is sent": {
			answers: []removal.Answer{held("no room"), absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "4s request web-000"},
		},
		"no right to delete it": {
			answers: []removal.Answer{{Kind: removal.Refused, Reason: "forbidden"}}, wantPhase: removal.Rejected,
			want: []string{"0s request web-000"},
		},
		"the API server has an error for a moment": {
			answers: []removal.Answer{unavailable, admitted, unavailable, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "4s request web-000", "6s look web-000", "10s look web-000"},
		},
		"it was admitted and stays": {
			answers: []removal.Answer{admitted, {Kind: removal.Present}, absent}, wantPhase: removal.Gone,
			want: []string{"0s request web-000", "2s look web-000", "6s request web-000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, podsOf(1), func(_ string, _ removal.Verb, n int) (removal.Answer, time.Duration) {
				return tc.answers[min(n, len(tc.answers))-1], 0
			})
			p.until(time.Hour)
			if diff := cmp.Diff(tc.want, p.sent); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
			if got := p.plan.Removals[0].Phase; got != tc.wantPhase {
				t.Errorf("it is %s, want %s", got, tc.wantPhase)
			}
		})
	}
}

// TestErrorsAreBounded shows that an error that does not pass ends the removal of its pod.
func TestErrorsAreBounded(t *testing.T) {
	p := play(t, podsOf(1), func(string, removal.Verb, int) (removal.Answer, time.Duration) {
		return removal.Answer{Kind: removal.Unavailable, Reason: "This pod has more than one PodDisruptionBudget"}, 0
	})
	p.until(time.Hour)
	if got := p.plan.Removals[0]; got.Phase != removal.Rejected || got.Reason == "" || len(p.sent) != 10 {
		t.Errorf("got %+v after %d requests, want it rejected after 10", got, len(p.sent))
	}
}

// TestManyPodsAreNoBurst shows the bounds of the requests for 500 pods, of which each request waits in admission.
func TestManyPodsAreNoBurst(t *testing.T) {
	p := play(t, podsOf(500), func(_ string, verb removal.Verb, n int) (removal.Answer, time.Duration) {
		switch {
		case verb == removal.Look:
			return removal.Answer{Kind: removal.Absent}, 0
		case n == 1:
			return held("is being prepared"), 10 * time.Second
		default:
			return removal.Answer{Kind: removal.Admitted}, time.Second
		}
	})
	p.until(time.Hour)
	if !p.plan.Ended() || p.plan.Left() != 0 {
		t.Errorf("%d pods are left", p.plan.Left())
	}
	if p.most > 30 || p.least < 25*time.Millisecond {
		t.Errorf("%d requests at a time and %s between two, want at most 30, and 25ms", p.most, p.least)
	}
}

// TestHeldPodsAreRepeatedInTime shows that the request for each of 100 pods that a rule withholds is repeated before it
// lapses, while others wait for their turn.
func TestHeldPodsAreRepeatedInTime(t *testing.T) {
	last, longest := map[string]time.Time{}, time.Duration(0)
	var p *played
	p = play(t, podsOf(150), func(pod string, _ removal.Verb, n int) (removal.Answer, time.Duration) {
		if n > 1 {
			longest = max(longest, p.now.Sub(last[pod]))
		}
		last[pod] = p.now
		return held("no room"), 0
	})
	p.until(2 * time.Minute)
	if len(last) != 100 || longest > 5*time.Second {
		t.Errorf("%d pods were requested, and %s was the longest time between two requests for a pod; want 100, and 5s", len(last), longest)
	}
}

// TestRepeatsComeFirst shows that a request that is held is repeated before its lapse, although other pods, whose requests
// wait in admission for 10 s each, have not been requested yet.
func TestRepeatsComeFirst(t *testing.T) {
	var last time.Time
	longest := time.Duration(0)
	var p *played
	p = play(t, podsOf(95), func(pod string, verb removal.Verb, n int) (removal.Answer, time.Duration) {
		switch {
		case verb == removal.Look:
			return removal.Answer{Kind: removal.Absent}, 0
		case pod != "web-000":
			return removal.Answer{Kind: removal.Admitted}, 10 * time.Second
		case n > 1:
			longest = max(longest, p.now.Sub(last))
		}
		last = p.now
		return held("no room"), 0
	})
	p.until(time.Minute)
	if longest == 0 || longest > 12*time.Second {
		t.Errorf("%s was the longest time between two requests for the pod that is held, want at most 12s", longest)
	}
}

// TestAPodThatTerminatesIsNotRequested shows that a pod that terminates already is only waited for.
func TestAPodThatTerminatesIsNotRequested(t *testing.T) {
	pod := newPod("web-000", "")
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	p := play(t, []*corev1.Pod{pod}, func(string, removal.Verb, int) (removal.Answer, time.Duration) {
		return removal.Answer{Kind: removal.Absent}, 0
	})
	p.until(time.Minute)
	if diff := cmp.Diff([]string{"0s look web-000"}, p.sent); diff != "" || p.plan.Removals[0].Sent {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}
