package podtransitionrule

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/podstate"
	"github.com/podops-dev/podops/pkg/replicasetscale"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// neverFinishes returns a warning if the rule selects a Deployment of the strategy Recreate whose
// rollouts it never lets finish. Only the API server learns of Deployments of a namespace; the
// condition Stalled reports them in any case.
func (v *Validator) neverFinishes(ctx context.Context, ruleset *appsv1alpha1.PodTransitionRule) []string {
	selector, err := podindex.Selector(ruleset)
	if err != nil || !clientauth.Verified(ctx) {
		return nil
	}
	list := &appsv1.DeploymentList{}
	if err := v.policies[0].List(ctx, list, client.InNamespace(ruleset.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || !appsv1alpha1.IsControlled(spec.Template.Labels) ||
			!selector.Matches(labels.Set(spec.Template.Labels)) {
			continue
		}
		skipped := podstate.SkipRules(spec.Template.Annotations)
		if len(rule.WithholdsSome(ruleset.Spec.Rules, replicasetscale.Replicas(spec.Replicas), spec.Template.Labels, skipped)) > 0 {
			return []string{"spec.rules: a Deployment of the strategy Recreate never finishes a rollout under an availability rule below 100 %, " +
				"since it creates no new pod before every old pod is deleted: use RollingUpdate, or exempt its pods"}
		}
	}
	return nil
}
