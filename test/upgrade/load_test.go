package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// budget is the fewest available pods that the rules of a namespace permit.
type budget struct {
	namespace string
	floor     int
}

// load operates on pods, round after round.
type load struct {
	*system
	budgets []budget
	stop    chan struct{}
	group   sync.WaitGroup

	mu       sync.Mutex
	rounds   map[string]int
	failures []string
}

// openLoad creates the workloads of the load, and operates on them until close.
func openLoad(ctx context.Context, s *system) *load {
	GinkgoHelper()
	l := &load{system: s, stop: make(chan struct{}), rounds: map[string]int{}}
	l.rollOut(ctx)
	l.updateInPlace(ctx, "updates", 6, maxUnavailable(2))
	l.updateInPlace(ctx, "approvals", 4, s.called("/poll?each=2"), maxUnavailable(2))
	l.scale(ctx)
	return l
}

// close ends the load when its rounds are complete.
func (l *load) close() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.group.Wait()
}

// repeat runs rounds until close. The first error ends it.
func (l *load) repeat(p space, floor int, round func(ctx context.Context, n int) error) {
	l.pods.measure(p.namespace)
	l.budgets = append(l.budgets, budget{p.namespace, floor})
	l.group.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-l.stop:
				return
			default:
			}
			err := round(context.Background(), n)
			l.mu.Lock()
			if err == nil {
				l.rounds[p.namespace] = n
			} else {
				l.failures = append(l.failures, fmt.Sprintf("%s, round %d: %v", p.namespace, n, err))
			}
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

// completed returns the number of rounds that each part of the load has completed.
func (l *load) completed() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.rounds)
}

// fewestRounds returns the number of rounds since an earlier time, of the part of the load that has completed the fewest.
func (l *load) fewestRounds(since map[string]int) int {
	now, fewest := l.completed(), -1
	for _, part := range l.budgets {
		if rounds := now[part.namespace] - since[part.namespace]; fewest < 0 || rounds < fewest {
			fewest = rounds
		}
	}
	return fewest
}

// failed returns the errors that have ended a part of the load.
func (l *load) failed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

// rollOut rolls a Deployment again and again.
func (l *load) rollOut(ctx context.Context) {
	GinkgoHelper()
	const replicas = 6
	p := newSpace(ctx, l.system, "rollouts")
	p.rule(ctx, "web", maxUnavailable(2))
	p.deployment(ctx, "web", replicas)
	p.awaitServing(ctx, replicas)
	l.repeat(p, replicas-2, func(ctx context.Context, n int) error {
		if err := p.patch(ctx, named(&appsv1.Deployment{}, "web"), `{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, n); err != nil {
			return err
		}
		return p.awaitAll(ctx, replicas, func(pod *corev1.Pod) bool { return pod.Annotations["round"] == fmt.Sprint(n) })
	})
}

// updateInPlace updates the image of pods behind a Service again and again.
func (l *load) updateInPlace(ctx context.Context, name string, replicas int, rules ...appsv1alpha1.TransitionRule) {
	GinkgoHelper()
	p := newSpace(ctx, l.system, name)
	lb := balancer("lb")
	p.service(ctx, string(lb))
	p.rule(ctx, "web", rules...)
	for i := range replicas {
		p.pod(ctx, fmt.Sprintf("web-%d", i), "web", func(pod *corev1.Pod) { lb.announce(pod) })
	}
	var round atomic.Int64
	image := func() string {
		if n := round.Load(); n > 0 {
			return fmt.Sprintf("registry.example.com/web:round-%d", n)
		}
		return firstImage
	}
	DeferCleanup(p.act(lb.balancing, updating(image)))
	p.awaitServing(ctx, replicas)
	l.repeat(p, replicas-2, func(ctx context.Context, n int) error {
		round.Store(int64(n))
		return p.awaitAll(ctx, replicas, func(pod *corev1.Pod) bool { return runs(pod, image()) })
	})
}

// scale lowers and raises a Deployment again and again.
func (l *load) scale(ctx context.Context) {
	GinkgoHelper()
	const most, least = 5, 3
	p := newSpace(ctx, l.system, "scale-ins")
	p.rule(ctx, "web", minAvailable(least))
	p.deployment(ctx, "web", most)
	p.awaitServing(ctx, most)
	l.repeat(p, least, func(ctx context.Context, _ int) error {
		for _, replicas := range []int{least, most} {
			if err := p.patch(ctx, named(&appsv1.Deployment{}, "web"), `{"spec":{"replicas":%d}}`, replicas); err != nil {
				return err
			}
			if err := p.awaitAll(ctx, replicas, func(*corev1.Pod) bool { return true }); err != nil {
				return err
			}
		}
		return nil
	})
}

// awaitAll waits until there are that many pods, all of them available without a lifecycle, and with the property.
func (p space) awaitAll(ctx context.Context, count int, property func(*corev1.Pod) bool) error {
	var seen []string
	err := wait.PollUntilContextTimeout(ctx, polling, patience, true, func(context.Context) (bool, error) {
		seen = nil
		done := true
		for _, pod := range p.list() {
			done = done && expect.IsAvailable(pod) && len(expect.LifecycleLabels(pod)) == 0 && property(pod)
			seen = append(seen, fmt.Sprintf("%s: image %s, labels %v, annotations %v", pod.Name, pod.Spec.Containers[0].Image, pod.Labels, pod.Annotations))
		}
		return done && len(seen) == count, nil
	})
	if err != nil {
		return fmt.Errorf("awaiting %d pods: %w: %d pods %q", count, err, len(seen), seen)
	}
	return nil
}

// fewestAvailable returns the fewest available pods of each part of the load, and what its rules permit.
func (l *load) fewestAvailable() map[string]string {
	all := map[string]string{}
	for _, b := range l.budgets {
		all[b.namespace] = fmt.Sprintf("%d of at least %d", l.pods.leastAvailable(b.namespace), b.floor)
	}
	return all
}
