package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func readSample(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("samples", "rego", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatal(err)
	}
}

// TestSamplesOfPodOperation decodes each sample strictly; the smallest has ten lines at most.
func TestSamplesOfPodOperation(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("samples", "podoperation", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v", files, err)
	}
	for _, file := range files {
		var operation appsv1alpha1.PodOperation
		readSample(t, filepath.Join("..", "podoperation", filepath.Base(file)), &operation)
		if operation.Kind != "PodOperation" || operation.Spec.Action.Type == "" {
			t.Errorf("%s: got %+v", file, operation)
		}
	}
	content, err := os.ReadFile(filepath.Join("samples", "podoperation", "restart.yaml"))
	if err != nil || strings.Count(string(content), "\n") > 10 {
		t.Errorf("restart.yaml has %d lines, %v", strings.Count(string(content), "\n"), err)
	}
}

// TestSamplesOfRegoCompile checks that admission accepts the samples.
func TestSamplesOfRegoCompile(t *testing.T) {
	var policy appsv1alpha1.PodTransitionPolicy
	var object appsv1alpha1.PodTransitionRule
	readSample(t, "podtransitionpolicy.yaml", &policy)
	readSample(t, "podtransitionrule.yaml", &object)
	e, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	schema, errs := parameters.Parse(policy.Spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	typed, err := schema.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range object.Spec.Rules {
		custom := &spec.Custom{Source: rule.Rego.Module, Parameters: []byte(`{}`)}
		if rule.Rego.PolicyRef != nil {
			if rule.Rego.PolicyRef.Name != policy.Name {
				t.Errorf("rule %s refers to %q", rule.Name, rule.Rego.PolicyRef.Name)
			}
			custom.Source, custom.ParametersSchema = policy.Spec.Module, typed
			if custom.Parameters, errs = schema.Complete(rule.Rego.Parameters.Raw, field.NewPath("parameters")); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		}
		inspection, err := e.Inspect(t.Context(), opa.Source{Module: custom.Source, ParametersSchema: custom.ParametersSchema})
		if err != nil {
			t.Errorf("rule %s: %v", rule.Name, err)
			continue
		}
		custom.Entry = inspection.Entry
		module, err := spec.Rule(types.NamespacedName{Namespace: "default", Name: object.Name}, rule, custom)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := e.Prepare(t.Context(), module); err != nil {
			t.Error(err)
		}
	}
}
