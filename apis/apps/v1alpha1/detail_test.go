package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestDetailAnnotationKeyIsLegalForEveryName(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{
		"web", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 253),
		strings.Repeat("a", 45) + "." + strings.Repeat("b", 100), strings.Repeat("a.", 126) + "a",
	} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Fatalf("%s is no name of a PodTransitionRule: %v", name, problems)
		}
		key := appsv1alpha1.DetailAnnotationKey(name)
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			t.Errorf("%s: %v", key, problems)
		}
		if other, taken := seen[key]; taken {
			t.Errorf("%s and %s share %s", name, other, key)
		}
		seen[key] = name
	}
	if key := appsv1alpha1.DetailAnnotationKey("web"); key != "detail.podtransitionrule.kusionstack.io/web" {
		t.Errorf("got %s", key)
	}
}
