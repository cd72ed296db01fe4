package absence_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/opa/absence"
	"github.com/podops-dev/podops/pkg/rule/parameters"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

func TestFind(t *testing.T) {
	engine := newEngine(t)
	const tier, approved, team = `input.pod.labels["tier"]`, `input.pod.labels["approved"]`, `input.pod.labels["team"]`
	for name, test := range map[string]struct {
		module     string
		parameters string
		want       []string

		// with are the other facts that each finding needs.
		with []string
	}{
		// Modules that permit a pod without a fact by accident.
		"!=":                       {module: `deny contains "x" if input.pod.labels.tier != "gold"`, want: []string{tier}},
		"!= of a namespace":        {module: `deny contains "x" if input.namespace.labels["example.com/migration"] != "done"`, want: []string{`input.namespace.labels["example.com/migration"]`}},
		"!= of an annotation":      {module: `deny contains "x" if input.pod.annotations.tier != "gold"`, want: []string{`input.pod.annotations["tier"]`}},
		"a negated index":          {module: `_owners := {"shop": true}` + "\n" + `deny contains "x" if not _owners[input.pod.labels.team]`, want: []string{team}},
		"a negated membership":     {module: `deny contains "x" if { team := input.pod.labels.team; not team in {"shop"} }`, want: []string{team}},
		"a negated function":       {module: `_known(team) if team == "shop"` + "\n" + `deny contains "x" if not _known(input.pod.labels.team)`, want: []string{team}},
		"a negated builtin":        {module: `deny contains "x" if { labels := input.pod.labels; not startswith(labels.approved, "by ") }`, want: []string{approved}},
		"through a rule":           {module: `_labels := input.pod.labels` + "\n" + `deny contains "x" if not startswith(_labels.approved, "by ")`, want: []string{approved}},
		"through an import":        {module: `import input.pod.labels as labels` + "\n" + `deny contains "x" if not startswith(labels.approved, "by ")`, want: []string{approved}},
		"a function with default":  {module: `default _tier(_) := "bronze"` + "\n" + `_tier(x) := "gold" if x == "g"` + "\n" + `deny contains "x" if _tier(input.pod.labels.tier) == "bronze"`, want: []string{tier}},
		"allow by two negations":   {module: `_known(x) if x == "shop"` + "\n" + `_foreign if not _known(input.pod.labels.team)` + "\n" + `allow if not _foreign`, want: []string{team}},
		"allow by default":         {module: `default allow := true` + "\n" + `allow := false if input.pod.labels.tier != "gold"`, want: []string{tier}},
		"behind another condition": {module: `deny contains "x" if { input.operation.type == "restart"; input.pod.labels.app == "db"; input.pod.labels.tier != "gold" }`, want: []string{tier}, with: []string{`input.operation.type restart`, `input.pod.labels["app"] db`}},
		"two facts":                {module: `deny contains "x" if { input.pod.labels.tier != "gold" }` + "\n" + `deny contains "y" if { input.pod.labels.team != "shop" }`, want: []string{team, tier}},
		"a label by parameter":     {module: `deny contains "x" if not input.pod.labels[input.parameters.label] in input.parameters.values`, parameters: `{"label": "tier", "values": ["gold"]}`, want: []string{tier}},
		"a parameter":              {module: `deny contains "x" if { input.pod.labels.tier != "gold"; input.parameters.on }`, parameters: `{"on": true}`, want: []string{tier}},

		// Modules that are right.
		"a negated comparison":      {module: `deny contains "x" if not input.pod.labels.approved == "true"`},
		"a negated rule":            {module: `_approved if startswith(input.pod.labels.approved, "by ")` + "\n" + `deny contains "x" if not _approved`},
		"allow":                     {module: `allow if input.pod.labels.tier == "gold"`},
		"allow with !=":             {module: `allow if input.pod.labels.tier != "gold"`},
		"a hold by value":           {module: `deny contains "x" if input.pod.labels.hold == "true"`},
		"a hold by value, negated":  {module: `allow if not input.pod.labels.hold == "true"`},
		"a hold by existence":       {module: `deny contains "x" if input.pod.labels.hold`},
		"no hold by existence":      {module: `allow if not input.pod.labels.hold`},
		"an end of a hold":          {module: `deny contains "x" if time.parse_rfc3339_ns(input.pod.annotations.until) > input.now`},
		"a list of values":          {module: `deny contains "x" if input.pod.labels.tier in {"gold", "silver"}`},
		"object.get with a value":   {module: `deny contains "x" if object.get(input.pod.labels, "tier", "none") != "gold"`},
		"object.get that permits":   {module: `deny contains "x" if object.get(input.pod.labels, "tier", "gold") == "silver"`},
		"absence stated":            {module: "# podops: absent=permits\n" + `deny contains "x" if input.pod.labels.tier != "gold"`},
		"no fact":                   {module: `allow if input.counts.available > 2`},
		"every other pod":           {module: `allow if every p in input.pods { not p.permitted }`},
		"an exception by namespace": {module: `deny contains "x" if not input.namespace.name in {"shop"}`},
	} {
		t.Run(name, func(t *testing.T) {
			findings, err := absence.Find(t.Context(), engine, spec.Custom{
				Source: "package rule\n\n" + test.module + "\n", Parameters: json.RawMessage(test.parameters),
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, finding := range findings {
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
	files, err := filepath.Glob("../../../config/samples/policies/*.yaml")
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
				schema, errs := parameters.Parse(policy.Spec.Parameters, nil)
				if len(errs) > 0 {
					t.Fatal(errs)
				}
				custom := spec.Custom{Source: policy.Spec.Module}
				if custom.Parameters, err = schema.Example(); err != nil {
					t.Fatal(err)
				}
				if custom.ParametersSchema, err = schema.JSONSchema(); err != nil {
					t.Fatal(err)
				}
				findings, err := absence.Find(t.Context(), engine, custom)
				if err != nil || len(findings) > 0 {
					t.Errorf("%v, %v", findings, err)
				}
			})
		}
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
