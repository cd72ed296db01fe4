package resourceconsist

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// controlledOnly is a cache that holds controlled pods only.
type controlledOnly struct{ client.Client }

func (c controlledOnly) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Client.List(ctx, list, options...)
	if pods, ok := list.(*corev1.PodList); ok {
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !appsv1alpha1.IsControlled(pod.Labels) })
	}
	return err
}

func (c controlledOnly) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, object, options...)
	if pod, ok := object.(*corev1.Pod); ok && err == nil && !appsv1alpha1.IsControlled(pod.Labels) {
		return notFound(key.Name)
	}
	return err
}

// unlabel takes the control label from a pod that serves, or from one that does not.
func (w *cluster) unlabel(name string, serves bool) {
	pod := webPod(name).Uncontrolled().Unready(w.clock.Now())
	if serves {
		pod = webPod(name).Uncontrolled().Ready()
	}
	w.becomes(pod)
}

// TestPodsThatLoseTheControlLabelKeepTheirTraffic has an adapter that reads a cache of controlled pods, and more pods than one round
// looks up one by one.
func TestPodsThatLoseTheControlLabelKeepTheirTraffic(t *testing.T) {
	const all = maxLookups + 10
	var adapter *lb
	w := newCluster(t, func(l *lb) ReconcileAdapter {
		adapter = l
		l.client = controlledOnly{l.client}
		return l
	}, workload(all)...)
	w.r.client = controlledOnly{w.client}
	w.settles()
	w.settles()
	served := maps.Clone(adapter.servers)
	if len(served) != all || !w.protected("p000") {
		t.Fatalf("%d servers, protected: %t", len(served), w.protected("p000"))
	}
	for i := range all {
		w.unlabel(fmt.Sprintf("p%03d", i), true)
	}
	after := w.settles().RequeueAfter
	if diff := cmp.Diff(served, adapter.servers, cmp.AllowUnexported(server{})); diff != "" || after > keptPoll {
		t.Errorf("reconciled again after %v; servers (-before +after):\n%s", after, diff)
	}
	for i := range all {
		if w.protected(fmt.Sprintf("p%03d", i)) || w.expects(fmt.Sprintf("p%03d", i)) {
			t.Errorf("the finalizer of pod %s stays", fmt.Sprintf("p%03d", i))
		}
	}
	w.unlabel("p000", false)
	w.deletes(w.pod("p001"))
	w.becomes(webPod("p002").Uncontrolled().Ready().Label("app", "other"))
	w.settles()
	if len(adapter.servers) != all-3 {
		t.Errorf("%d servers; want those gone whose pods are unready, deleted, or not selected", len(adapter.servers))
	}
	w.deletes(w.service())
	w.settles()
	w.settles()
	if len(adapter.servers) > 0 {
		t.Errorf("%d servers of a Service that is deleted", len(adapter.servers))
	}
}
