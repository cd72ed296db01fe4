package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/expect"
)

// Moments of a call at which a leader fails, besides the moments of every permit.
const (
	postWritten  moment = "POST recorded"
	postArrived  moment = "POST arrived"
	postAnswered moment = "POST answered"
	taskWritten  moment = "task recorded"
	pollArrived  moment = "poll arrived"
	pollAnswered moment = "poll answered"
	podApproved  moment = "approval recorded"
)

// callMoments returns all moments of a polled approval, in the order in which leaders fail.
func callMoments() []moment {
	return []moment{postArrived, pollArrived, taskWritten, postAnswered, podApproved, pollAnswered, reservationSeen, postWritten, permitSeen}
}

var _ = Describe("While leaders fail in the middle of calls", Ordered, Label(callStories, longStories), func() {
	BeforeAll(func() { managers.stopAll() })
	AfterEach(func() { managers.stopAll() })
	AfterAll(func(ctx context.Context) { managers.start(ctx) })

	It("twenty kills cause no second call under a traceId, and no permit without an approval", func(ctx context.Context) {
		const replicas, kills, rounds = 6, 20, 40
		p := newScenario(ctx)
		trap := newTrap(newTeam(ctx, shortLease...), kills)
		service := openApprovalService(trap.watch, approvals.Options{})
		p.rule(ctx, service.polls("/poll", 600), maxUnavailable("50%"))
		p.deployment(ctx, replicas, nil)
		passages, observer := recordPassages(p), observe(p)
		trap.follow(p)

		begun := time.Now()
		for round := 0; round < rounds && trap.left() > 0; round++ {
			image := fmt.Sprintf("registry.example.com/web:v%d", round+2)
			stop := act(p, imageUpdater{id: fmt.Sprintf("updater-%d", round), image: image}.wants)
			// A call that was interrupted is retried after a growing delay.
			Eventually(ctx, p.list).WithTimeout(10*time.Minute).Should(And(HaveLen(replicas), HaveEach(And(
				expect.BeAvailable(), expect.HaveNoLifecycle(), WithTransform(imageOf, Equal(image))))), "all pods must be updated")
			stop()
		}
		trap.disarm()

		given := service.Approvals(p.namespace)
		AddReportEntry("figures", fmt.Sprintf("%d leaders killed in %s, at %v; %d calls, %d approvals, %d permits; max unavailable %d of %d",
			len(trap.sprung()), time.Since(begun).Round(time.Second), trap.sprung(), len(service.Posts(p.namespace)), len(given), len(passages.in(appsv1alpha1.StagePreCheck)),
			replicas-observer.leastAvailable(), replicas))
		Expect(trap.sprung()).To(HaveLen(kills))
		service.expectOnePostPerTrace(p)
		Expect(passages.unapproved(appsv1alpha1.StagePreCheck, given)).To(BeEmpty(), "no pod may pass without an approval")
		Expect(replicas - observer.leastAvailable()).To(BeNumerically("<=", 3))
		p.expectNoLiveReservation(ctx)
	})
})

// trap kills the leader at moments in turn, exactly then: the request, or the event, waits
// until the process has ended. The next moment counts once a successor leads.
type trap struct {
	team *team

	mu      sync.Mutex
	wanted  []moment // still to come
	done    []moment
	busy    bool // between a kill and the next leader
	seen    map[string]bool
	killed  chan moment // nil once it is disarmed
	recover sync.WaitGroup
}

// newTrap returns an armed trap.
func newTrap(team *team, kills int) *trap {
	GinkgoHelper()
	t := &trap{team: team, seen: map[string]bool{}, killed: make(chan moment)}
	for i := range kills {
		t.wanted = append(t.wanted, callMoments()[i%len(callMoments())])
	}
	killed := t.killed
	t.recover.Go(func() { t.replaceLeaders(killed) })
	DeferCleanup(t.disarm)
	return t
}

// replaceLeaders waits for a successor of each leader that was killed.
func (t *trap) replaceLeaders(killed <-chan moment) {
	defer GinkgoRecover()
	for m := range killed {
		t.team.add()
		t.team.awaitLeader(context.Background())
		t.mu.Lock()
		t.done = append(t.done, m)
		t.busy = false
		t.mu.Unlock()
	}
}

// at kills the leader if this is the next moment.
func (t *trap) at(m moment) {
	defer GinkgoRecover()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy || len(t.wanted) == 0 || t.wanted[0] != m {
		return
	}
	// On a busy machine a leader may have lost its lease and ended by itself.
	leaders := managers.leaders()
	if len(leaders) == 0 {
		return
	}
	t.busy = true
	t.wanted = t.wanted[1:]
	t.team.leader = leaders[len(leaders)-1]
	t.team.leader.Kill()
	t.killed <- m
}

// watch is called for every request to the service.
func (t *trap) watch(step approvals.Step, entry approvals.Entry) {
	isPoll := entry.Path == "/result"
	switch {
	case step == approvals.Arrived && isPoll:
		t.at(pollArrived)
	case step == approvals.Arrived:
		t.at(postArrived)
	case isPoll:
		t.at(pollAnswered)
	default:
		t.at(postAnswered)
	}
}

// follow watches the recorded tasks.
func (t *trap) follow(p scenario) {
	GinkgoHelper()
	rules, pods := &appsv1alpha1.PodTransitionRuleList{}, &corev1.PodList{}
	follow(p, rules, func() []*appsv1alpha1.PodTransitionRule { return pointers(rules.Items) },
		func(_ watch.EventType, rule *appsv1alpha1.PodTransitionRule) {
			if rule.Status.Permits != nil {
				for _, reserved := range rule.Status.Permits.Reserved {
					t.once(reservationSeen, fmt.Sprint(reserved))
				}
			}
			for _, state := range rule.Status.RuleStates {
				if state.WebhookStatus == nil {
					continue
				}
				for _, task := range state.WebhookStatus.TaskStates {
					t.seeTask(task)
				}
			}
		})
	follow(p, pods, func() []*corev1.Pod { return pointers(pods.Items) }, func(_ watch.EventType, pod *corev1.Pod) {
		for key, value := range pod.Labels {
			if strings.HasPrefix(key, preChecked) {
				t.once(permitSeen, fmt.Sprint(pod.UID, key, value))
			}
		}
	})
}

func (t *trap) seeTask(task appsv1alpha1.TaskInfo) {
	switch task.Phase {
	case appsv1alpha1.TaskPosting:
		t.once(postWritten, task.TraceID)
	case appsv1alpha1.TaskPolling:
		t.once(taskWritten, task.TraceID)
	case appsv1alpha1.TaskFinished, appsv1alpha1.TaskFailed:
	}
	for _, pod := range task.Approved {
		t.once(podApproved, fmt.Sprint(pod))
	}
}

// once triggers a moment for the first observation of a subject.
func (t *trap) once(m moment, what string) {
	t.mu.Lock()
	key := string(m) + " " + what
	known := t.seen[key]
	t.seen[key] = true
	t.mu.Unlock()
	if !known {
		t.at(m)
	}
}

// left returns how many kills remain.
func (t *trap) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.wanted)
}

// sprung returns the moments at which a leader was killed and another manager took over.
func (t *trap) sprung() []moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.done)
}

// disarm ends the kills, and returns once a manager leads.
func (t *trap) disarm() {
	t.mu.Lock()
	armed := t.killed != nil
	t.wanted = nil
	killed := t.killed
	t.killed = nil
	t.mu.Unlock()
	if armed {
		close(killed)
	}
	t.recover.Wait()
}
