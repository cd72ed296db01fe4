package verify

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
	"github.com/podops-dev/podops/pkg/engine/opa"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/observation"
)

// inputs returns the engine, and the input that each module has for each pod in the files when all pods are to be deleted.
func (v *verb) inputs(ctx context.Context, workers opa.Workers, documents []manifests.Document) (*opa.Engine, []observation.Input, error) {
	log := observation.New()
	engine, err := v.Engine(opa.Options{Workers: workers, Observe: log.Observe})
	if err != nil {
		return nil, nil, err
	}
	var objects offline.Objects
	now := v.Now()
	for _, document := range documents {
		pod, ok := document.Object.(*corev1.Pod)
		switch {
		case document.Object == nil:
		case !ok:
			objects.Add(document.Object, v.namespace)
		default:
			if pod.Status.Phase == "" {
				pod = offline.Serving(pod, now.Add(-time.Hour))
			}
			if offline.MayBegin(pod) {
				begun, err := offline.Begin(pod, offline.Operation{Type: appsv1alpha1.DeleteOperationType, Stage: appsv1alpha1.StagePreCheck, At: now})
				if err != nil {
					return nil, nil, err
				}
				pod = begun
			}
			objects.Add(pod, v.namespace)
		}
	}
	if _, err := offline.Evaluate(ctx, objects, offline.Options{Engine: engine, Now: now, Prepared: log.Prepared}); err != nil {
		return nil, nil, err
	}
	return engine, log.Take(func(string, string) bool { return true }), nil
}
