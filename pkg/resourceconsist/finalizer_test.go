package resourceconsist_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

func TestLifecycleFinalizersAreThoseOfKusionStack(t *testing.T) {
	for name, want := range map[string]string{
		"server":                    "prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb",
		"foo":                       "prot.podopslifecycle.kusionstack.io/4cc2f85cedef654f",
		"resource-consist-ut-svc-1": "prot.podopslifecycle.kusionstack.io/7ba82bbc976edd3f",
	} {
		if got := resourceconsist.GenerateLifecycleFinalizer(name); got != want {
			t.Errorf("GenerateLifecycleFinalizer(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestTheKeyOfAnEmployerNeedsNoTypeMeta(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	key, err := resourceconsist.EmployerKey(service, clientgoscheme.Scheme)
	if err != nil || key != "Service/shop/web" {
		t.Errorf("KeyOf = %q, %v, want Service/shop/web", key, err)
	}
	service.Kind = "Service"
	if got := resourceconsist.GenerateLifecycleFinalizerKey(service); got != key {
		t.Errorf("GenerateLifecycleFinalizerKey = %q, want %q", got, key)
	}
}

func TestCleanFinalizersAreAlwaysValid(t *testing.T) {
	for name, want := range map[string]string{
		"web":                     "resource-consist.kusionstack.io/clean-web",
		strings.Repeat("a", 57):   "resource-consist.kusionstack.io/clean-" + strings.Repeat("a", 57),
		strings.Repeat("a", 58):   "",
		strings.Repeat("a.b", 80): "",
	} {
		got := resourceconsist.CleanFinalizer(name)
		if want != "" && got != want {
			t.Errorf("CleanFinalizer(%q) = %q, want %q", name, got, want)
		}
		if problems := validation.IsQualifiedName(got); len(problems) > 0 {
			t.Errorf("CleanFinalizer(%q) = %q: %v", name, got, problems)
		}
	}
	if resourceconsist.CleanFinalizer(strings.Repeat("a", 58)) == resourceconsist.CleanFinalizer(strings.Repeat("a", 59)) {
		t.Error("two long names share a clean finalizer")
	}
}
