package eval

import (
	"cmp"
	"slices"

	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// probe adds a module to each PodTransitionRule without a module, so that the input of its pods can be
// shown.
func probe(objects *offline.Objects) {
	for i, object := range objects.Rules {
		for _, stage := range []appsv1alpha1.TransitionStage{appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck} {
			if slices.ContainsFunc(object.Spec.Rules, func(entry appsv1alpha1.TransitionRule) bool {
				return entry.Rego != nil && !entry.Disabled && cmp.Or(entry.Stage, appsv1alpha1.StagePreCheck) == stage
			}) {
				continue
			}
			object = object.DeepCopy()
			object.Spec.Rules = append(object.Spec.Rules, appsv1alpha1.TransitionRule{
				Name: "input", Stage: stage, Enforcement: appsv1alpha1.EnforcementDryRun,
				Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\nallow := true\n"},
			})
			objects.Rules[i] = object
		}
	}
}
