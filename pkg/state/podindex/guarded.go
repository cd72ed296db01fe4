package podindex

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// gap is why PodOps cannot guard a pod; empty if it can.
type gap string

const (
	// gapMirror means that only the kubelet stops the mirror pod of a static pod.
	gapMirror gap = "mirror"

	// gapGate means that without the readiness gate only finalizers keep traffic off the pod.
	gapGate gap = "gate"
)

func availabilityGap(object *corev1.Pod, facts lifecycle.PodFacts) gap {
	if _, mirror := object.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return gapMirror
	}
	if facts.Gate == lifecycle.GateMissing {
		return gapGate
	}
	return ""
}

// Unguarded are the selected pods that PodOps cannot guard, without terminating and finished pods.
type Unguarded struct {
	// Mirrors are mirror pods of static pods, which only their kubelet stops, and Gateless are
	// pods without the readiness gate: only finalizers keep traffic from them.
	Mirrors  int
	Gateless int

	// Names are the first names of both, sorted; at most rule.MaxBlockingPods.
	Names []string
}

// countUnguarded counts pods that cannot be guarded.
func countUnguarded(pods map[types.UID]*pod) Unguarded {
	counted := Unguarded{}
	for _, p := range pods {
		if p.gap == gapMirror {
			counted.Mirrors++
		} else {
			counted.Gateless++
		}
		counted.Names = withFirst(counted.Names, p.fact.Name)
	}
	return counted
}
