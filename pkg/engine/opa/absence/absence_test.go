package absence_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/absence"
)

// TestFind runs each row of docs/absent-facts.md. A module that is right has no finding in partial inputs either.
func TestFind(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/absent-facts.md")
	if err != nil {
		t.Fatal(err)
	}
	engine, wrong, right := newEngine(t), 0, 0
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		lines := strings.Split(strings.TrimPrefix(cells[0], "| "), "<br>")
		for i, text := range lines {
			lines[i] = strings.ReplaceAll(strings.Trim(text, "`"), "\x00", "|")
		}
		module := strings.Join(lines, "\n")
		custom := spec.Custom{Source: "package rule\n\n" + module + "\n"}
		if properties := strings.Trim(cells[1], "`"); strings.HasPrefix(properties, "{") {
			setParameters(t, &custom, &appsv1alpha1.PolicyParameters{
				OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(`{"type": "object", "properties": ` + properties + `}`)},
			})
			cells = slices.Delete(cells, 1, 2)
		}
		var want []absence.Finding
		if len(cells) == 3 {
			want = []absence.Finding{{Fact: strings.Trim(cells[1], "`"), Form: absence.Form(strings.TrimSuffix(cells[2], " |"))}}
			wrong++
		} else {
			right++
		}
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			found := find(t, engine, custom)
			if diff := cmp.Diff(want, found, cmpopts.IgnoreFields(absence.Finding{}, "Place", "Permitted", "With"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if len(want) > 0 {
				return
			}
			if found, err := absence.FindIn(t.Context(), engine, custom, parts()); err != nil || len(found.Findings) > 0 {
				t.Errorf("in parts of inputs: %v, %v", found, err)
			}
		})
	}
	if wrong < 30 || right < 30 {
		t.Errorf("%d wrong and %d right modules, want at least 30 of each", wrong, right)
	}
}

func find(t *testing.T, engine *opa.Engine, custom spec.Custom) []absence.Finding {
	t.Helper()
	found, err := absence.Find(t.Context(), engine, custom)
	if err != nil || found.IsCut {
		t.Fatalf("%v, cut: %t", err, found.IsCut)
	}
	return found.Findings
}

func TestFindOfOtherFacts(t *testing.T) {
	engine := newEngine(t)
	const tier, team = `input.pod.labels["tier"]`, `input.pod.labels["team"]`
	for name, test := range map[string]struct {
		module     string
		parameters string
		want       []string

		// with are the other facts that each finding needs.
		with []string
	}{
		"behind another condition": {module: `deny contains "x" if { input.operation.type == "restart"; input.pod.labels.app == "db"; input.pod.labels.tier != "gold" }`, want: []string{tier}, with: []string{`input.operation.type restart`, `input.pod.labels["app"] db`}},
		"two facts":                {module: `deny contains "x" if { input.pod.labels.tier != "gold" }` + "\n" + `deny contains "y" if { input.pod.labels.team != "shop" }`, want: []string{team, tier}},
		"a label by parameter":     {module: `deny contains "x" if not input.pod.labels[input.parameters.label] in input.parameters.values`, parameters: `{"label": "tier", "values": ["gold"]}`, want: []string{tier}},
		"a parameter":              {module: `deny contains "x" if { input.pod.labels.tier != "gold"; input.parameters.on }`, parameters: `{"on": true}`, want: []string{tier}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, finding := range find(t, engine, spec.Custom{Source: "package rule\n\n" + test.module + "\n", Parameters: json.RawMessage(test.parameters)}) {
				got = append(got, finding.Fact)
				if diff := cmp.Diff(test.with, finding.With); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The shipped policies are right, or state what they mean.
func TestShippedPolicies(t *testing.T) {
	files, err := filepath.Glob("../../../../config/samples/policies/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files of policies: %v", len(files), err)
	}
	engine := newEngine(t)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(content), "\n---\n") {
			policy := &appsv1alpha1.PodTransitionPolicy{}
			if err := yaml.Unmarshal([]byte(document), policy); err != nil {
				t.Fatal(err)
			}
			if policy.Kind != "PodTransitionPolicy" {
				continue
			}
			t.Run(policy.Name, func(t *testing.T) {
				custom := spec.Custom{Source: policy.Spec.Module}
				setParameters(t, &custom, policy.Spec.Parameters)
				if findings := find(t, engine, custom); len(findings) > 0 {
					t.Error(findings)
				}
			})
		}
	}
}

// setParameters gives a module an example of parameters, and their schema.
func setParameters(t *testing.T, custom *spec.Custom, declared *appsv1alpha1.PolicyParameters) {
	t.Helper()
	schema, errs := parameters.Parse(declared, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var err error
	if custom.Parameters, err = schema.Example(); err != nil {
		t.Fatal(err)
	}
	if custom.ParametersSchema, err = schema.JSONSchema(); err != nil {
		t.Fatal(err)
	}
}

func newEngine(t *testing.T) *opa.Engine {
	t.Helper()
	engine, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}
