package matrix_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// checksNew has a second PodTransitionRule hold new pods in PostCheck until Approve.
func checksNew(ctx context.Context, c *cell) error {
	rule := stagetest.Approved()
	rule.Stage, rule.Conditions = appsv1alpha1.StagePostCheck, []string{appsv1alpha1.CreateOperationType}
	object := c.Rule(rule)
	object.Name = "new"
	return c.Create(ctx, object)
}

// checksNothing ends checksNew.
func checksNothing(ctx context.Context, c *cell) error {
	return c.kubectl(ctx, "delete", "podtransitionrule/new")
}

// approveHeld approves new pods that are held in PostCheck, and fails if one has served before. It ends when so many of the first
// pods are gone, and all pods serve.
func approveHeld(gone int) act {
	return func(ctx context.Context, c *cell) error {
		held := map[types.UID]bool{}
		for {
			c.Lock()
			left := 0
			for uid, pod := range c.Pods {
				_, was := c.before[uid]
				_, waits := pod.Labels[appsv1alpha1.PostCheckLabelPrefix+"/"+appsv1alpha1.PodCreateID]
				_, serves := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
				switch {
				case was:
					left++
				case waits:
					held[uid] = true
				case serves && !held[uid]:
					c.Unlock()
					return fmt.Errorf("new pod %s serves before its PostCheck", pod.Name)
				}
			}
			ended := left <= len(c.before)-gone && c.serve(c.desired)
			c.Unlock()
			if ended {
				return nil
			}
			if err := c.Approve(ctx, func(pod *corev1.Pod) bool { return held[pod.UID] }); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("approving new pods: %w", ctx.Err())
			case <-time.After(stagetest.Polling):
			}
		}
	}
}
