package resourceconsist

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type foretelling struct {
	*lb
	employers []client.Object
	err       error
}

func (foretelling) Name() string { return "foretelling" }

func (f foretelling) GetEmployersByEmployee(context.Context, client.Object, client.Client) ([]client.Object, error) {
	return f.employers, f.err
}

func TestExpectedFinalizersOfACreatedPod(t *testing.T) {
	named := func(name string, change func(*corev1.Service)) *corev1.Service {
		service := web()
		service.Name = name
		change(service)
		return service
	}
	unselecting := named("unselecting", func(s *corev1.Service) { s.Spec.Selector = nil })
	uncontrolled := named("uncontrolled", func(s *corev1.Service) { s.Labels = nil })
	elsewhere := named("elsewhere", func(s *corev1.Service) { s.Namespace = "other" })
	second := named("second", func(*corev1.Service) {})
	want := map[string]string{
		"Service/default/web":    GenerateLifecycleFinalizer("web"),
		"Service/default/second": GenerateLifecycleFinalizer("second"),
	}
	pod := webPod("").Obj()

	w := newCluster(t, nil, web(), second, unselecting, uncontrolled, elsewhere)
	admission := &Admission{}
	if got, err := admission.ExpectedFinalizers(t.Context(), pod); err != nil || len(got) > 0 {
		t.Errorf("without adapters: %v, %v", got, err)
	}
	admission.add(w.r)
	got, err := admission.ExpectedFinalizers(t.Context(), pod)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, expected finalizers (-want +got):\n%s", err, diff)
	}

	healthy := newCluster(t, func(l *lb) ReconcileAdapter {
		return foretelling{l, []client.Object{web(), uncontrolled}, nil}
	})
	fails := newCluster(t, func(l *lb) ReconcileAdapter { return foretelling{l, nil, errors.New("no cache")} })
	panics := newCluster(t, func(l *lb) ReconcileAdapter { return foretelling{l, []client.Object{nil}, nil} })
	admission = &Admission{adapters: []*Reconciler{fails.r, panics.r, healthy.r}}
	got, err = admission.ExpectedFinalizers(t.Context(), pod)
	if diff := cmp.Diff(map[string]string{"Service/default/web": GenerateLifecycleFinalizer("web")}, got); diff != "" || err == nil {
		t.Errorf("an adapter that fails does not affect the others: error %v, expected finalizers (-want +got):\n%s", err, diff)
	}
}
