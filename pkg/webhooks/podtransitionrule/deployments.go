package podtransitionrule

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// deploymentWarnings returns warnings about the Deployments that a rule selects: the strategy Recreate, whose rollouts the rule never lets
// finish, and counts that limit nothing. Only the API server learns about Deployments in a namespace; the condition Stalled and doctor
// report them in any case.
func (v *Validator) deploymentWarnings(ctx context.Context, ruleset *appsv1alpha1.PodTransitionRule) []string {
	selector, err := podindex.Selector(ruleset)
	if err != nil || !clientauth.Verified(ctx) {
		return nil
	}
	list := &appsv1.DeploymentList{}
	if err := v.policies[0].List(ctx, list, client.InNamespace(ruleset.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	pods, neverFinishes := 0, false
	for i := range list.Items {
		deployment := &list.Items[i].Spec
		if !appsv1alpha1.IsControlled(deployment.Template.Labels) || !selector.Matches(labels.Set(deployment.Template.Labels)) {
			continue
		}
		replicas := replicasetscale.Replicas(deployment.Replicas)
		pods += replicas
		skipped := podstate.SkipRules(deployment.Template.Annotations)
		neverFinishes = neverFinishes || deployment.Strategy.Type == appsv1.RecreateDeploymentStrategyType &&
			len(rule.WithholdsSome(ruleset.Spec.Rules, replicas, deployment.Template.Labels, skipped)) > 0
	}
	var warnings []string
	if neverFinishes {
		warnings = append(warnings, "spec.rules: a Deployment of the strategy Recreate never finishes a rollout under an availability rule below 100 %, "+
			"since it creates no new pod before every old pod is deleted: use RollingUpdate, or exempt its pods")
	}
	for i, r := range ruleset.Spec.Rules {
		if words := spec.PermitsAll(r.AvailablePolicy, pods); words != "" && r.Filter == nil {
			warnings = append(warnings, fmt.Sprintf("%s: with the Deployments that it selects, the rule %s", rulesPath().Index(i).Child("availablePolicy"), words))
		}
	}
	return warnings
}
