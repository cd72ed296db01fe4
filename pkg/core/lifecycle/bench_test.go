package lifecycle_test

import (
	"maps"
	"testing"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// BenchmarkAdmission decides about the request with which an operation controller begins an operation, at the mutating
// and at the validating webhook.
func BenchmarkAdmission(b *testing.B) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	old := lifecycle.PodFacts{Gate: lifecycle.GateTrue, Ready: true, ContainersReady: true, Labels: map[string]string{
		appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue, appsv1alpha1.ServiceAvailableLabelKey: "1795410366355797411",
		"app": "web", "pod-template-hash": "7d4b9c6f5d", "team": "payments", "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production",
		"app.kubernetes.io/version": "1.42.7", "app.kubernetes.io/managed-by": "Helm", "topology.kubernetes.io/zone": "zone-1",
	}}
	requested := old
	requested.Labels = maps.Clone(old.Labels)
	requested.Labels[appsv1alpha1.OperatingLabelPrefix+"/scale"] = "1795410407284101656"
	requested.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/scale"] = "update"
	b.ReportAllocs()
	for b.Loop() {
		admission := lifecycle.AdmitUpdate(old, requested, false, lifecycle.Options{}, now)
		mutated := requested
		mutated.Labels = admission.Change.Apply(requested.Labels)
		if denials := lifecycle.CheckUpdate(old, mutated, false, lifecycle.Options{}, now); len(denials) > 0 {
			b.Fatal(denials)
		}
		lifecycle.Advance(mutated, lifecycle.Permits{}, lifecycle.Options{}, now)
	}
}
