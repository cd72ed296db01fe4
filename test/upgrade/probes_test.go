package upgrade_test

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// probePace is the time between two probes of a kind.
	probePace = 25 * time.Millisecond

	// samples is the least number of probes of each kind in a phase, so that its p99 is not its maximum.
	samples = 150
)

// phases divide the time of the upgrade.
type phases struct {
	mu  sync.Mutex
	all []phase
}

type phase struct {
	name  string
	begin time.Time
}

// begin begins a phase, and ends the phase before.
func (p *phases) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, phase{name, time.Now()})
}

// at returns the name of the phase at a time; empty before the first.
func (p *phases) at(moment time.Time) (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, begun := range p.all {
		if !moment.Before(begun.begin) {
			name = begun.name
		}
	}
	return name
}

// names returns the names of all phases, in order.
func (p *phases) names() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, begun := range p.all {
		all = append(all, begun.name)
	}
	return all
}

// probe is a kind of dry run, sent again and again.
type probe struct {
	name string
	send func(context.Context) error // an error when the webhooks have not decided as they must

	mu    sync.Mutex
	taken []sample
}

// sample is a probe that was answered.
type sample struct {
	sent, answered time.Time
	err            error
}

// probes are all kinds of them.
type probes []*probe

// openProbes sends probes until the suite ends. A rule holds the pod, and nothing else changes it.
func openProbes(s *system, pod *corev1.Pod) probes {
	GinkgoHelper()
	reference := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "reference"}}
	Expect(s.admin.Create(context.Background(), reference)).To(Succeed())
	relabel := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"probe":"true"}}}`))
	all := probes{
		{name: "no webhook", send: func(ctx context.Context) error {
			return s.admin.Patch(ctx, reference.DeepCopy(), relabel, client.DryRunAll)
		}},
		{name: "labels of a pod", send: func(ctx context.Context) error {
			return s.admin.Patch(ctx, pod.DeepCopy(), relabel, client.DryRunAll)
		}},
		{name: "create of a rule", send: func(ctx context.Context) error {
			return s.admin.Create(ctx, newRule(pod.Namespace, "probe", "probe", approved()), client.DryRunAll)
		}},
		{name: "delete that is held", send: func(ctx context.Context) error {
			err := s.admin.Delete(ctx, pod.DeepCopy(), client.DryRunAll)
			if apierrors.IsTooManyRequests(err) {
				return nil
			}
			return fmt.Errorf("the delete was not held: %w", err)
		}},
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, p := range all {
		group.Go(func() { p.run(ctx) })
	}
	DeferCleanup(func() {
		stop()
		group.Wait()
	})
	return all
}

func (p *probe) run(ctx context.Context) {
	pace := time.NewTicker(probePace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		taken := sample{sent: time.Now()}
		taken.err = p.send(context.Background())
		taken.answered = time.Now()
		p.mu.Lock()
		p.taken = append(p.taken, taken)
		p.mu.Unlock()
	}
}

// of returns the samples that were answered in a phase.
func (p *probe) of(s *system, name string) []sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.taken), func(answer sample) bool { return s.phases.at(answer.answered) != name })
}

// fewest returns the number of samples in a phase, of the kind that has the fewest.
func (all probes) fewest(s *system, name string) int {
	fewest := len(all[0].of(s, name))
	for _, p := range all {
		fewest = min(fewest, len(p.of(s, name)))
	}
	return fewest
}

// failures returns the failed probes outside of the times at which a leader was killed, and counts the others.
func (all probes) failures(s *system) (unexplained []string, nearKills int) {
	for _, p := range all {
		p.mu.Lock()
		for _, answer := range p.taken {
			switch {
			case answer.err == nil:
			case s.replicas.nearKill(answer.sent):
				nearKills++
			default:
				unexplained = append(unexplained, fmt.Sprintf("%s %s, %s: %v", answer.sent.Format(time.StampMilli), s.phases.at(answer.answered), p.name, answer.err))
			}
		}
		p.mu.Unlock()
	}
	return unexplained, nearKills
}

// table returns the times of the probes by phase.
func (all probes) table(s *system) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-22s %-20s %6s %6s %6s %6s %6s   ms\n", "phase", "dry run", "count", "p50", "p99", "max", "failed")
	for _, name := range s.phases.names() {
		for _, p := range all {
			taken := p.of(s, name)
			if len(taken) == 0 {
				continue
			}
			var times []time.Duration
			failed := 0
			for _, answer := range taken {
				times = append(times, answer.answered.Sub(answer.sent))
				if answer.err != nil {
					failed++
				}
			}
			slices.Sort(times)
			fmt.Fprintf(&text, "%-22s %-20s %6d %6.1f %6.1f %6.1f %6d\n", name, p.name, len(times),
				milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100]), milliseconds(times[len(times)-1]), failed)
		}
	}
	return text.String()
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// newRule returns a PodTransitionRule for the pods with a label app.
func newRule(namespace, name, app string, rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Rules: rules,
		},
	}
}
