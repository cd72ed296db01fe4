package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	many = 20
	few  = 8
)

// scenario is an operation on a workload under load.
type scenario struct {
	name, title string
	replicas    int // at first
	remaining   int // in the end
	failing     float64

	// comes is true when pods become available while it runs, not only operable.
	comes bool

	act func(ctx context.Context, g *scenarioRun) error
	// done reports whether it has reached its end, besides that all pods are ready.
	done func(g *scenarioRun, pods []corev1.Pod) (bool, string)
}

func scenarios() []scenario {
	return []scenario{
		{name: "restart", title: "rolling restart of 20 pods", replicas: many, remaining: many, comes: true, act: restart, done: replaced},
		{name: "scale-in", title: "from 20 pods to 8", replicas: many, remaining: few, act: scaleIn, done: always},
		{name: "in-place", title: "a new image for 20 pods, in place", replicas: many, remaining: many, comes: true, act: inPlace, done: updated},
		{
			name: "flaky", title: "rolling restart of 20 pods, and 20 % of the calls to the load balancer fail", replicas: many, remaining: many,
			failing: 0.2, comes: true, act: restart, done: replaced,
		},
		{
			name: "killed", title: "a new image for 20 pods, in place, and the manager is killed and started again twice", replicas: many, remaining: many,
			comes: true, act: inPlaceAndKill, done: updated,
		},
	}
}

func restart(ctx context.Context, g *scenarioRun) error {
	return g.kubectl(ctx, "rollout", "restart", "deployment/web")
}

func scaleIn(ctx context.Context, g *scenarioRun) error {
	return g.kubectl(ctx, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", few))
}

func inPlace(ctx context.Context, g *scenarioRun) error {
	return g.harness.await(ctx, "every pod is updated", func(ctx context.Context) (bool, string, error) {
		pods, err := g.harness.podsOf(ctx, g.namespace)
		if err != nil {
			return false, "", err
		}
		// A step that fails is repeated in the next round.
		stepErr := g.operate(ctx, pods)
		ok, seen := updated(g, pods)
		return ok, seen, stepErr
	})
}

// inPlaceAndKill kills the manager after a fifth of the pods, and again after half of them.
// The operation controller continues meanwhile, as far as it can.
//
// It does not interrupt a rollout: the webhook that defers deletes fails open while no
// manager runs, by design. An operation controller that uses labels waits.
func inPlaceAndKill(ctx context.Context, g *scenarioRun) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return inPlace(ctx, g) })
	both.Go(func() error {
		for _, enough := range []int{many / 5, many / 2} {
			if err := g.harness.await(ctx, fmt.Sprintf("%d pods are updated", enough), func(ctx context.Context) (bool, string, error) {
				pods, err := g.harness.podsOf(ctx, g.namespace)
				count := countUpdated(pods)
				return err == nil && count >= enough, fmt.Sprintf("%d are", count), err
			}); err != nil {
				return err
			}
			if err := g.killController(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return both.Wait()
}

func always(*scenarioRun, []corev1.Pod) (bool, string) { return true, "" }

func replaced(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	gone := g.gone(pods)
	return gone == g.scenario.replicas, fmt.Sprintf("%d of %d pods are replaced", gone, g.scenario.replicas)
}

func updated(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	count := countUpdated(pods)
	return count == g.scenario.replicas, fmt.Sprintf("%d of %d pods are updated", count, g.scenario.replicas)
}

func countUpdated(pods []corev1.Pod) int {
	count := 0
	for i := range pods {
		if _, operating := pods[i].Labels[operatingLabel]; runsImage(&pods[i], secondImage) && !operating {
			count++
		}
	}
	return count
}

// gone returns how many of the first pods no longer exist.
func (g *scenarioRun) gone(pods []corev1.Pod) int {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = true
	}
	count := 0
	for _, uid := range g.first {
		if !there[uid] {
			count++
		}
	}
	return count
}
