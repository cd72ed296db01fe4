package operator

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/objectbounds"
)

// TestTheCacheLoadsNoLargeObject shows that the transforms of the cache replace objects over their bounds.
func TestTheCacheLoadsNoLargeObject(t *testing.T) {
	large := map[string]metav1.Object{
		"*v1alpha1.PodTransitionRule": &appsv1alpha1.PodTransitionRule{Spec: appsv1alpha1.PodTransitionRuleSpec{
			Rules: make([]appsv1alpha1.TransitionRule, appsv1alpha1.MaxTransitionRules+1),
		}},
		"*v1alpha1.PodTransitionPolicy": &appsv1alpha1.PodTransitionPolicy{Spec: appsv1alpha1.PodTransitionPolicySpec{
			Module: strings.Repeat("x", appsv1alpha1.MaxPolicySpecBytes),
		}},
	}
	for kind, options := range cacheOptions(Options{Namespace: "podops-system"}).ByObject {
		object, ok := large[fmt.Sprintf("%T", kind)]
		if !ok {
			continue
		}
		delete(large, fmt.Sprintf("%T", kind))
		if options.Transform == nil {
			t.Errorf("%T has no transform", kind)
			continue
		}
		if _, err := options.Transform(object); err != nil || objectbounds.TooLarge(object) == nil {
			t.Errorf("%T is loaded: %v", kind, err)
		}
	}
	if len(large) > 0 {
		t.Errorf("not in the cache: %v", large)
	}
}
