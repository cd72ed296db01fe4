package podrelease

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// releaseBudgets removes the records of permits from PodDisruptionBudgets.
func (r *runner) releaseBudgets(ctx context.Context) error {
	return r.eachPage(ctx, &policyv1.PodDisruptionBudgetList{}, func(page client.ObjectList) error {
		budgets := page.(*policyv1.PodDisruptionBudgetList)
		for i := range budgets.Items {
			budget := &budgets.Items[i]
			_, err := r.change(ctx, budget, func() { delete(budget.Annotations, appsv1alpha1.PermitsAnnotationKey) })
			if err != nil {
				return fmt.Errorf("PodDisruptionBudget %s: %w", client.ObjectKeyFromObject(budget), err)
			}
		}
		return nil
	})
}
