package spec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

const allowModule = "package rule\n\nallow if input.pod.ready\n"

func inline() *appsv1alpha1.RegoRule { return &appsv1alpha1.RegoRule{Module: allowModule} }

func TestRuleNeedsTheModule(t *testing.T) {
	object := types.NamespacedName{Namespace: "shop", Name: "web"}
	rule := appsv1alpha1.TransitionRule{Name: "ready", Rego: inline()}
	if _, err := spec.Rule(object, rule, nil); err == nil || !strings.Contains(err.Error(), "spec.rules[ready].rego") {
		t.Errorf("got %v, want an error that names the field", err)
	}
	if _, err := spec.Rule(object, rule, &spec.Custom{Parameters: json.RawMessage(`[]`)}); err == nil {
		t.Error("parameters that are no object were accepted")
	}
}
