package vet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

func TestParameterHints(t *testing.T) {
	for name, test := range map[string]struct {
		module string
		set    []string
		want   []string
	}{
		"another spelling": {
			module: `deny contains "wait" if input.parameters.min_age_minutes > 0`, set: []string{"minAgeMinutes"},
			want: []string{vet.HintUnreadParameter, vet.HintUnsetParameter},
		},
		"all set": {module: `allow if input.parameters.limit > count(input.pods)`, set: []string{"limit"}},
		"one that is an argument of a negated call": {
			module: `deny contains "x" if not input.pod.labels.team in input.parameters.teams`, want: []string{vet.HintUnsetParameter},
		},
		"one that is compared in a negation": {module: `deny contains "x" if not input.parameters.mode == "strict"`},
		"none set":                           {module: `allow if input.parameters.limit > count(input.pods)`, want: []string{vet.HintUnsetParameter}},
		"by index":                           {module: `allow if input.parameters["limit"] > 3`, set: []string{"limit"}},
		"a field of one":                     {module: `allow if input.parameters.window.from > 3`, set: []string{"window"}},
		"a local name":                       {module: `allow if { p := input.parameters; p.limit > 3 }`, set: []string{"limits"}, want: []string{vet.HintUnreadParameter, vet.HintUnsetParameter}},
		"an import":                          {module: `import input.parameters as p` + "\n" + `allow if p.limit > 3`, want: []string{vet.HintUnsetParameter}},
		"object.get":                         {module: `allow if object.get(input.parameters, "limit", 3) > 3`},
		"object.get, unset":                  {module: `allow if object.get(input.parameters, ["limit"], 3) > 3`, set: []string{"limits"}, want: []string{vet.HintUnreadParameter}},
		"negated":                            {module: `allow if not input.parameters.hold`},
		"a default":                          {module: "default _limit := 3\n_limit := input.parameters.limit\nallow if _limit > 3"},
		"every parameter":                    {module: `allow if every _, v in input.parameters { v > 3 }`, set: []string{"a", "b"}},
		"a computed name":                    {module: `allow if input.parameters[input.pod.labels.tier] > 3`, set: []string{"gold"}},
		"in a function":                      {module: "_over(x) if x > input.parameters.limit\nallow if _over(3)", want: []string{vet.HintUnsetParameter}},
		"in a message":                       {module: `deny contains sprintf("%v", [input.parameters.text]) if true`, want: []string{vet.HintUnsetParameter}},
		"two local names in else branches":   {module: "_max := m if m := input.parameters.max\nelse := m if m := input.parameters.most\nallow if _max > 3", set: []string{"max", "most"}},
		"a constant else branch":             {module: "_max := m if m := input.parameters.max\nelse := 3\nallow if _max > 3"},
		"a rule that is a name":              {module: "_p := input.parameters\nallow if _p.limit > 3", want: []string{vet.HintUnsetParameter}},
		"a key in a rule that is a name":     {module: "_owner := input.pod.labels[input.parameters.label]\nallow if _owner == \"a\"", set: []string{"label"}},
		"a head":                             {module: "limits.b[input.parameters.name] := 1\nallow if limits.b.shop > 0", set: []string{"name"}},
		"the last else branch":               {module: "_max := 1 if { input.pod.ready } else := input.parameters.max\nallow if _max > 3", want: []string{vet.HintUnsetParameter}},
		"compared with null":                 {module: `allow if { input.parameters.max != null; input.parameters.max > 3 }`},
		"the reason":                         {module: "allow if input.pod.ready\nreason := input.parameters.text", set: []string{"text"}},
		"a test":                             {module: `deny contains "x" if { input.parameters.teams; not "a" in input.parameters.teams }`},
		"read twice":                         {module: `allow if { input.parameters.a > 1; input.parameters.a < 3 }`, want: []string{vet.HintUnsetParameter}},
	} {
		t.Run(name, func(t *testing.T) {
			module, _, err := vet.Read("package rule\n\n"+test.module+"\n", vet.Capabilities())
			if err != nil {
				t.Fatal(err)
			}
			problems := vet.ReadParameters(module[vet.File]).Hints(test.set)
			var got []string
			for _, problem := range problems {
				got = append(got, problem.Code)
				if problem.Row == 0 {
					t.Errorf("%s has no row", problem.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
