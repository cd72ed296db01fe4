package vet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

func TestHints(t *testing.T) {
	for name, test := range map[string]struct {
		module string
		want   []string
	}{
		"no reason":                     {module: `allow if input.pod.ready`, want: []string{vet.HintNoReason}},
		"a reason":                      {module: "allow if input.pod.ready\nreason := \"not ready\""},
		"allow by default":              {module: "default allow := true\nallow := false if input.pod.ready\nreason := \"ready\"", want: []string{vet.HintDefaultAllow}},
		"withheld by default":           {module: "default allow := false\nallow if input.pod.ready\nreason := \"not ready\""},
		"an empty object":               {module: "allow if {}\nreason := \"none\"", want: []string{vet.HintEmptyCondition}},
		"a message with an annotation":  {module: `deny contains m if { input.pod.ready; m := sprintf("owner %s", [input.pod.annotations.owner]) }`, want: []string{vet.HintMessageReads}},
		"a key with an annotation":      {module: `deny contains sprintf("owner %s", [input.pod.annotations["example.com/owner"]]) if input.pod.ready`, want: []string{vet.HintMessageReads}},
		"a message about its condition": {module: `deny contains m if { input.pod.labels.hold == "true"; m := sprintf("hold %s", [input.pod.labels.hold]) }`},
		"a message with a default":      {module: `deny contains m if { input.pod.ready; m := sprintf("owner %s", [object.get(input.pod.annotations, "owner", "?")]) }`},
		"a message with a name":         {module: `deny contains m if { input.pod.ready; m := sprintf("ask about %s", [input.pod.name]) }`},
		"a label above a number":        {module: `deny contains "x" if input.pod.labels.weight > 5`, want: []string{vet.HintNoNumber}},
		"a label that equals a number":  {module: `deny contains "x" if input.pod.labels.weight == 5`, want: []string{vet.HintNoNumber}},
		"a number of a label":           {module: `deny contains "x" if to_number(input.pod.labels.weight) > 5`},
		"a label that equals a string":  {module: `deny contains "x" if input.pod.labels.weight == "5"`},
		"an incident on any other pod":  {module: `deny contains "x" if { some p in input.pods; p.annotations.incident == "open" }`, want: []string{vet.HintOtherPods}},
		"the same, negated": {
			module: "allow if not busy\nbusy if { some p in input.pods; p.labels[\"example.com/busy\"] }\nreason := \"busy\"", want: []string{vet.HintOtherPods},
		},
		"an incident on any pod": {
			module: `deny contains "x" if { some p in array.concat([input.pod], input.pods); p.annotations.incident == "open" }`,
		},
		"a standby among the others":      {module: "allow if { some p in input.pods; p.labels.standby == \"true\"; p.available }\nreason := \"no standby\""},
		"the number of the others":        {module: `deny contains "x" if { some p in input.pods; not p.available }`},
		"others of the zone":              {module: `deny contains "x" if { some p in input.pods; p.labels.zone == input.pod.labels.zone }`},
		"too few arguments":               {module: `deny contains sprintf("%s of %s%%", [input.pod.name]) if input.pod.ready`, want: []string{vet.HintFormat}},
		"too many arguments":              {module: `deny contains m if { input.pod.ready; m := sprintf("100%%", [input.pod.name]) }`, want: []string{vet.HintFormat}},
		"a quotient as a whole number":    {module: `deny contains m if { input.now > 0; m := sprintf("%5d s", [input.now / 1e9]) }`, want: []string{vet.HintFormat}},
		"a variable that is a quotient":   {module: `deny contains m if { s := input.now / 1e9; m := sprintf("%d s", [s]) }`, want: []string{vet.HintFormat}},
		"a quotient that is rounded":      {module: `deny contains m if { input.now > 0; m := sprintf("%d s", [round(input.now / 1e9)]) }`},
		"a quotient with its digits":      {module: `deny contains m if { s := input.now / 1e9; m := sprintf("%.1f s, %v", [s, s]) }`},
		"a time zone":                     {module: `deny contains "x" if time.weekday([input.now, "Europe/Berlin"]) == "Monday"`},
		"a time zone of a parameter":      {module: `deny contains "x" if time.weekday([input.now, input.parameters.zone]) == "Monday"`},
		"a time zone that there is not":   {module: `deny contains "x" if time.weekday([input.now, "Europe/Berln"]) == "Monday"`, want: []string{vet.HintTimeZone}},
		"the time zone of the machine":    {module: `deny contains x if x := time.format([input.now, "Local", "15:04"])`, want: []string{vet.HintTimeZone}},
		"a schemas annotation":            {module: "# METADATA\n# schemas:\n# - input: schema.x\ndeny contains \"x\" if input.pod.ready", want: []string{vet.HintSchemas}},
		"a message by a local name":       {module: `deny contains m if { input.pod.ready; owner := input.pod.annotations.owner; m := sprintf("owner %s", [owner]) }`, want: []string{vet.HintMessageReads}},
		"a message by a rule":             {module: "_m := sprintf(\"owner %s\", [input.pod.annotations.owner])\ndeny contains _m if input.pod.ready", want: []string{vet.HintMessageReads}},
		"a message by an import":          {module: "import input.pod\ndeny contains sprintf(\"owner %s\", [pod.annotations.owner]) if pod.ready", want: []string{vet.HintMessageReads}},
		"a local name in a condition":     {module: `deny contains m if { owner := input.pod.annotations.owner; owner != "shop"; m := sprintf("owner %s", [owner]) }`},
		"a message by a rule by default":  {module: "default _m := \"none\"\n_m := sprintf(\"owner %s\", [input.pod.annotations.owner])\ndeny contains _m if input.pod.ready"},
		"a local name above a number":     {module: `deny contains "x" if { w := input.pod.labels.weight; w > 3 }`, want: []string{vet.HintNoNumber}},
		"labels by a local name":          {module: `deny contains "x" if { l := input.pod.labels; l.weight > 3 }`, want: []string{vet.HintNoNumber}},
		"a label above a constant rule":   {module: "_max := 3\ndeny contains \"x\" if input.pod.labels.weight > _max", want: []string{vet.HintNoNumber}},
		"an annotation after now":         {module: `deny contains "x" if input.pod.annotations.until > input.now`, want: []string{vet.HintNoNumber}},
		"a label by object.get":           {module: `deny contains "x" if object.get(input.pod.labels, "weight", 0) > 3`, want: []string{vet.HintNoNumber}},
		"a local number of a label":       {module: `deny contains "x" if { w := to_number(input.pod.labels.weight); w > 3 }`},
		"a time zone by a rule":           {module: "_zone := \"Europe/Berln\"\ndeny contains \"x\" if time.weekday([input.now, _zone]) == \"Monday\"", want: []string{vet.HintTimeZone}},
		"a time zone by a local name":     {module: `deny contains "x" if { zone := "Local"; time.weekday([input.now, zone]) == "Monday" }`, want: []string{vet.HintTimeZone}},
		"a quotient by a function":        {module: "_minutes(ns) := ns / 6e10\ndeny contains sprintf(\"%d min\", [_minutes(input.now)]) if input.pod.ready", want: []string{vet.HintFormat}},
		"a quotient by a rule":            {module: "_m := input.now / 60\ndeny contains sprintf(\"%d min\", [_m]) if input.pod.ready", want: []string{vet.HintFormat}},
		"an empty set":                    {module: "allow if set()\nreason := \"none\"", want: []string{vet.HintEmptyCondition}},
		"an empty array":                  {module: "allow if []\nreason := \"none\"", want: []string{vet.HintEmptyCondition}},
		"a text":                          {module: "allow if \"yes\"\nreason := \"none\"", want: []string{vet.HintEmptyCondition}},
		"a negated comparison is no hint": {module: `deny contains "x" if not input.pod.labels.approved == "true"`},
	} {
		t.Run(name, func(t *testing.T) {
			module, entry, err := vet.Read("package rule\n\n"+test.module+"\n", vet.Capabilities())
			if err != nil {
				t.Fatal(err)
			}
			problems := vet.Hints(module, entry)
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
