package approval_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/core/approval"
)

// BenchmarkRevision is what each event of a workload costs the cache of the manager.
func BenchmarkRevision(b *testing.B) {
	made := template("registry.example.com/web:v1")
	for range 3 {
		made.Spec.Containers = append(made.Spec.Containers, corev1.Container{
			Name: "sidecar", Image: "registry.example.com/sidecar:v1", Env: make([]corev1.EnvVar, 20), Args: make([]string, 10),
		})
	}
	for b.Loop() {
		approval.Revision(&made)
	}
}
