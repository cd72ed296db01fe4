package podtransitionrule

import (
	"context"
	"encoding/json"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// APIBudgetWriter writes records of permits to PodDisruptionBudgets at the API server.
type APIBudgetWriter struct {
	Client client.Client
}

// WriteRecord patches the annotation under the resourceVersion of the PodDisruptionBudget: that is the
// lock under which reservations are made, against other managers, edits, and the eviction API.
func (w APIBudgetWriter) WriteRecord(
	ctx context.Context, budget podindex.DisruptionBudget, record *appsv1alpha1.PermitRecord,
) (podindex.DisruptionBudget, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": budget.UID, "resourceVersion": budget.ResourceVersion,
		"annotations": map[string]string{appsv1alpha1.PermitsAnnotationKey: permit.Encode(record)},
	}})
	if err != nil {
		return podindex.DisruptionBudget{}, fmt.Errorf("encoding the record: %w", err)
	}
	object := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: budget.Namespace, Name: budget.Name}}
	if err := w.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return podindex.DisruptionBudget{}, err
	}
	// Nothing else has changed since the resourceVersion of the patch.
	budget.ResourceVersion, budget.Record, budget.Inherited = object.ResourceVersion, record, false
	return budget, nil
}

// writeBudget writes the record of one PodDisruptionBudget, with these reservations.
func (r *Reconciler) writeBudget(
	ctx context.Context, snapshot snapshot, view podindex.DisruptionView, reserved []appsv1alpha1.ReservedPod,
) writeResult {
	before := reachable(view.Record, snapshot.ResourceVersion)
	record := permit.NextRecord(before, appsv1alpha1.PermitRecord{Reserved: reserved}, snapshot.At, snapshot.ResourceVersion)
	stored, err := r.budgets.WriteRecord(ctx, view.DisruptionBudget, record)
	switch {
	case apierrors.IsConflict(err):
		return writeResult{again: evaluation.RetryStale}
	case apierrors.IsNotFound(err):
		return writeResult{}
	case err != nil:
		return writeResult{err: fmt.Errorf("writing the record of PodDisruptionBudget %s/%s: %w", view.Namespace, view.Name, err)}
	}
	r.index.DisruptionBudgetWritten(stored)
	return writeResult{stored: true}
}
