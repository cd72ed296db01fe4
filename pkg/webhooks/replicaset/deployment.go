package replicaset

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// DeploymentMutator is the mutating webhook of Deployments. `kubectl rollout undo` copies the
// annotations of a ReplicaSet to its Deployment, from where their controller copies them to other
// ReplicaSets: the annotations of PodOps are removed.
type DeploymentMutator struct {
	decoder admission.Decoder
	cache   client.Reader
}

// NewDeploymentMutator returns the webhook. cache holds PodTransitionRules.
func NewDeploymentMutator(decoder admission.Decoder, cache client.Reader) *DeploymentMutator {
	return &DeploymentMutator{decoder: decoder, cache: cache}
}

// Handle removes the annotations of PodOps, and warns of a strategy that cannot finish.
func (m *DeploymentMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	deployment := &appsv1.Deployment{}
	if err := m.decoder.DecodeRaw(req.Object, deployment); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding Deployment: %w", err))
	}
	deployment.Namespace = req.Namespace
	return admission.Patched("", withoutAnnotations(deployment.Annotations)...).WithWarnings(m.warnings(ctx, deployment)...)
}

// maxNamed bounds the PodTransitionRules that a warning names.
const maxNamed = 5

// warnings returns the warning for a Deployment with the strategy Recreate under availability rules.
// It names them only when the API server is known to have sent the review.
func (m *DeploymentMutator) warnings(ctx context.Context, deployment *appsv1.Deployment) []string {
	if !IsRecreated(deployment) {
		return nil
	}
	const intro = "a Deployment of the strategy Recreate creates no new pod before every old pod is deleted, " +
		"so a rollout never finishes under an availability rule below 100 %"
	const wayOut = "use RollingUpdate, or exempt the pods by the rule's filter, conditions or podtransitionrule.kusionstack.io/skip-rule-conditions"
	if !clientauth.Verified(ctx) {
		return []string{fmt.Sprintf("%s: %s", intro, wayOut)}
	}
	list := &appsv1alpha1.PodTransitionRuleList{}
	if err := m.cache.List(ctx, list, client.InNamespace(deployment.Namespace)); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		selector, err := podindex.Selector(&list.Items[i])
		if err == nil && selector.Matches(labels.Set(deployment.Spec.Template.Labels)) &&
			withholds(&list.Items[i], deployment) {
			names = append(names, list.Items[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{fmt.Sprintf("%s, such as rules of PodTransitionRule %v: %s", intro, names[:min(len(names), maxNamed)], wayOut)}
}

// withholds reports whether rules of a PodTransitionRule never let all pods of the Deployment go.
func withholds(ruleset *appsv1alpha1.PodTransitionRule, deployment *appsv1.Deployment) bool {
	template := deployment.Spec.Template
	replicas := replicasetscale.Replicas(deployment.Spec.Replicas)
	return len(rule.WithholdsSome(ruleset.Spec.Rules, replicas, template.Labels, podstate.SkipRules(template.Annotations))) > 0
}

// IsRecreated reports whether a Deployment deletes all of its controlled pods before it creates new ones.
func IsRecreated(deployment *appsv1.Deployment) bool {
	return deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType &&
		appsv1alpha1.IsControlled(deployment.Spec.Template.Labels)
}
