package podtransitionrule

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
)

// validateBudget denies a PodTransitionRule with which all rules of its namespace exceed their
// common budget. An edit that shrinks it always passes. It reads the cache, so simultaneous
// requests may exceed the budget by their own size.
func (v *Validator) validateBudget(ctx context.Context, object, old *appsv1alpha1.PodTransitionRule) (field.ErrorList, error) {
	size := objectbounds.RuleSize(&object.Spec)
	if len(old.Spec.Rules) > 0 && size <= objectbounds.RuleSize(&old.Spec) {
		return nil, nil
	}
	list := &appsv1alpha1.PodTransitionRuleList{}
	// The objects are only read, so they are not copied.
	if err := v.policies[0].List(ctx, list, client.InNamespace(object.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the PodTransitionRules of namespace %s: %w", object.Namespace, err)
	}
	total := size
	for i := range list.Items {
		if list.Items[i].Name != object.Name {
			total += objectbounds.LoadedSize(&list.Items[i])
		}
	}
	if total <= appsv1alpha1.MaxNamespaceRuleBytes {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
		"the PodTransitionRules of namespace %s would have %d bytes together, at most %d are allowed: delete or shrink some",
		object.Namespace, total, appsv1alpha1.MaxNamespaceRuleBytes))}, nil
}
