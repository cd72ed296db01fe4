package doctor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/test/builders"
)

func TestUnstick(t *testing.T) {
	const id, undo = "upgrade", appsv1alpha1.UndoOperationTypeLabelPrefix + "/"
	ago := now.Add(-45 * time.Minute)
	of, ofRetired := resourceconsist.GenerateLifecycleFinalizer("web"), resourceconsist.GenerateLifecycleFinalizer("retired")
	preparing := func(since time.Time) *builders.PodBuilder {
		return pod("web-0").Preparing(id, "update").
			Label(appsv1alpha1.PrepareLabelPrefix+"/"+id, builders.Stamp(since)).Label(appsv1alpha1.PreparingLabelPrefix+"/"+id, builders.Stamp(since))
	}
	ready := func(since time.Time) *builders.PodBuilder { return pod("web-0").Gate(true).ReadySince(since) }
	for sentence, test := range map[string]struct {
		pod        *builders.PodBuilder
		labels     map[string]*string
		annotation *string
		finalizers []string
		lost       bool
		waits      string
	}{
		"a pod that serves needs nothing":          {pod: pod("web-0")},
		"a pod that waits for a rule is not stuck": {pod: pod("web-0").Waiting(id, "update", ago), waits: "it waits for PreCheck rules (operation update of id upgrade)"},
		"a pod that is operated on is not stuck": {
			pod:   pod("web-0").Allowed(id, "update").Label(appsv1alpha1.OperateLabelPrefix+"/"+id, builders.Stamp(now)),
			waits: "it is operated on: operation update of id upgrade",
		},
		"the finalizer of a controller that is gone is removed": {pod: pod("web-0").Finalizer(finalizer), finalizers: []string{finalizer}},
		"the finalizer of a Service stays":                      {pod: pod("web-0").Finalizer(of)},
		"the finalizer of a retired adapter is removed":         {pod: preparing(now.Add(-time.Minute)).Finalizer(ofRetired), finalizers: []string{ofRetired}, lost: true},
		"an adapter may be about to begin":                      {pod: preparing(now).Finalizer(ofRetired), waits: "it waits for an unknown owner to take finalizer " + ofRetired + " off (annotation " + appsv1alpha1.AvailableConditionsAnnotationKey + " does not name it)"},
		"a pod that expects a retired adapter serves without it": {
			pod:        ready(now.Add(-time.Minute)).Expect("Service/"+shop+"/web", of).Expect("Service/"+shop+"/retired", ofRetired).Finalizer(of),
			annotation: new(`{"expectedFinalizers":{"Service/` + shop + `/web":"` + of + `"}}`), lost: true,
		},
		"a pod that expects an adapter waits for it": {
			pod:   ready(now.Add(-time.Minute)).Expect("Service/"+shop+"/web", of),
			waits: "it waits for Service/" + shop + "/web to confirm that traffic is on (finalizer " + of + " is missing)",
		},
		"the finalizer of a Service that lags for long is removed": {pod: preparing(ago).Finalizer(of), finalizers: []string{of}, lost: true},
		"a foreign finalizer stays":                                {pod: pod("web-0").Finalizer("example.com/x").Terminating(ago)},
		"a terminating pod waits for a while":                      {pod: pod("web-0").Finalizer(of).Terminating(now)},
		"a terminating pod does not wait for ever":                 {pod: pod("web-0").Finalizer(of).Terminating(ago), finalizers: []string{of}, lost: true},
		"an operation whose request is gone is cancelled": {
			pod: pod("web-0").Waiting("podoperation-1", "restart", now), labels: map[string]*string{undo + "podoperation-1": new("restart")},
		},
		"a deferred delete without its record is cancelled": {
			pod:    pod("web-0").Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, now),
			labels: map[string]*string{undo + appsv1alpha1.PodDeleteID: new(appsv1alpha1.DeleteOperationType)},
		},
		"an operation that runs for long is cancelled": {
			pod:    pod("web-0").Allowed(id, "update").Label(appsv1alpha1.OperateLabelPrefix+"/"+id, builders.Stamp(ago)),
			labels: map[string]*string{undo + id: new("update")}, lost: true,
		},
		"an operation without a type is removed": {
			pod:    pod("web-0").Label(appsv1alpha1.OperatingLabelPrefix+"/"+id, builders.Stamp(now)),
			labels: map[string]*string{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			snapshot := doctor.Snapshot{Services: []corev1.Service{
				{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web", Finalizers: []string{resourceconsist.CleanFinalizer("web")}}},
				{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "retired"}},
			}}
			var annotations map[string]*string
			before := test.pod.Obj()
			if _, expects := before.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey]; expects {
				delete(before.Labels, appsv1alpha1.ServiceAvailableLabelKey)
			}
			stuck := before.DeepCopy()
			plan := doctor.Unstick(snapshot, stuck, doctor.Options{}, now)
			if test.labels == nil {
				test.labels = map[string]*string{}
			}
			if test.annotation != nil {
				annotations = map[string]*string{appsv1alpha1.AvailableConditionsAnnotationKey: test.annotation}
			}
			got := doctor.Plan{Annotations: plan.Annotations, Labels: plan.Labels, Finalizers: plan.Finalizers, Waits: plan.Waits}
			if diff := cmp.Diff(doctor.Plan{Annotations: annotations, Labels: test.labels, Finalizers: test.finalizers, Waits: test.waits}, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, stuck); diff != "" {
				t.Errorf("Unstick modified the pod (-before +after):\n%s", diff)
			}
			if want := len(test.labels) + len(test.finalizers) + len(annotations); len(plan.Steps) != want {
				t.Errorf("%d steps, want %d: %+v", len(plan.Steps), want, plan.Steps)
			}
			for _, step := range plan.Steps {
				if step.Why == "" || (step.Lost != "") != test.lost {
					t.Errorf("step %+v, want a loss: %t", step, test.lost)
				}
			}
		})
	}
}
