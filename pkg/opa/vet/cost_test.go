package vet

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/policies"
)

// compile compiles a module as a user's, with the stages under test.
func compile(t *testing.T, source string) error {
	t.Helper()
	allowed := Capabilities()
	module, err := ast.ParseModuleWithOpts(File, source, ast.ParserOptions{Capabilities: allowed})
	if err != nil {
		return err
	}
	schema := map[string]any{}
	if err := json.Unmarshal(policies.InputSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	schemas, err := Schemas(schema, "")
	if err != nil {
		t.Fatal(err)
	}
	compiler := Compiler(schemas).WithStrict(true).WithCapabilities(allowed)
	if compiler.Compile(map[string]*ast.Module{File: module}); compiler.Failed() {
		return compiler.Errors
	}
	return nil
}

// doubling repeats a line for each level, with %[1]d as the level and %[2]d as the one before.
func doubling(line string) string {
	lines := strings.Builder{}
	for level := 1; level <= 16; level++ {
		fmt.Fprintf(&lines, line+"\n", level, level-1)
	}
	return lines.String()
}

func TestTooExpensive(t *testing.T) {
	for name, source := range map[string]string{
		"rules": "s0 := input.pod.name\n" + doubling(`s%[1]d := {"l": s%[2]d, "r": s%[2]d}`) +
			"allow if s16 == input.now",
		"rules by their full name": "s0 := input.pod.name\n" +
			doubling(`s%[1]d := [data.rule.s%[2]d, data.rule.s%[2]d]`) + "allow if s16 == s15",
		"rules by a name that is computed": "p0.x := input.pod.name\n" +
			doubling(`p%[1]d.x := [data.rule.p%[2]d[k], data.rule.p%[2]d[k]] if some k in [input.pod.name]`) +
			"allow if p16.x == p15.x",
		"locals": "allow if {\ns0 := input.pod.name\n" + doubling("s%[1]d := [s%[2]d, s%[2]d]") + "s16 == s15\n}",
		"arguments": "twice(x) := [x, x]\nallow if {\ns0 := input.pod.name\n" + doubling("s%[1]d := twice(s%[2]d)") +
			"s16 == s15\n}",
		"functions of functions": "f0(x) := [x, x]\n" + doubling("f%[1]d(x) := [f%[2]d(x), f%[2]d(x)]") +
			"allow if f16(1) == f15(1)",
		"patterns": "allow if {\n[s0, t0] = [input.pod.name, 1]\n" +
			doubling("[s%[1]d, t%[1]d] = [[s%[2]d, s%[2]d], [t%[2]d, t%[2]d]]") + "s16 == t16\n}",
		"patterns in the wrong order": "allow if {\ns0 := input.pod.name\n[" + doubling("s%[1]d,") + "] = [" +
			doubling("[s%[2]d, s%[2]d],") + "]\ns16 == s15\n}",
		"objects as patterns": "allow if {\ns0 := input.pod.name\n" +
			doubling(`{"x": s%[1]d} = {"x": [s%[2]d, s%[2]d]}`) + "s16 == s15\n}",
		"a builtin that returns its argument": "s0 := input.pod.name\n" +
			doubling(`s%[1]d := object.get({"x": [s%[2]d, s%[2]d]}, "x", 0)`) + "allow if s16 == s15",
		"comprehensions": "s0 := input.pod.name\n" + doubling("s%[1]d := [[s%[2]d, x] | x := s%[2]d]") +
			"allow if s16 == s15",
		"else": "s0 := input.pod.name\n" +
			doubling("s%[1]d := 1 if {\ninput.now == 1\n} else := [s%[2]d, s%[2]d]") + "allow if s16 == s15",
		"partial sets": "s0 contains input.pod.name\n" + doubling("s%[1]d contains [s%[2]d, s%[2]d]") +
			"allow if s16 == s15",
		"members of partial sets": "s0 contains input.pod.name\n" + doubling("s%[1]d contains [x, x] if some x in s%[2]d") +
			"allow if {\nsome x in s16\nsome y in s15\nx == y\n}",
		"keys of partial objects": "s0[input.pod.name] := 1\n" + doubling("s%[1]d[[x, x]] := 1 if some x, _ in s%[2]d") +
			"allow if {\nsome x, _ in s16\nsome y, _ in s15\nx == y\n}",
		"partial objects": "s0.x := input.pod.name\n" + doubling(`s%[1]d[x] := [s%[2]d, s%[2]d] if x := "x"`) +
			"allow if s16 == s15",
		"with": "pair := [input.pod, input.pod]\nallow if {\ns0 := input.pod.name\n" +
			doubling("s%[1]d := pair with input.pod as s%[2]d") + "s16 == s15\n}",
		"with, through a rule": "pair := [input.pod, input.pod]\nouter := pair\nallow if {\ns0 := input.pod.name\n" +
			doubling(`s%[1]d := outer with input as {"pod": s%[2]d}`) + "s16 == s15\n}",
		"every": "allow if {\nevery s0 in [[input.pod.name]] {\n" + doubling("s%[1]d := [s%[2]d, s%[2]d]") +
			"s16 == s15\n}\n}",
		"parts": "s0 := input.pod.name\n" + doubling(`s%[1]d := [[s%[2]d, s%[2]d]][0]`) + "allow if s16 == s15",
		"iteration": "s0 := input.pod.name\n" + doubling("s%[1]d := [x, x] if some x in [s%[2]d]") +
			"allow if s16 == s15",
		"keys": "s0 := input.pod.name\n" + doubling("s%[1]d := [k, k] if some k, _ in {s%[2]d: 1}") +
			"allow if s16 == s15",
		"copies of all pods": "allow if [" + strings.Repeat("input.pods, ", 20) + "] == input.now",
		"many expressions below the limit": "s := [" + strings.Repeat("1, ", 900) + "]\nallow if {\n" +
			strings.Repeat("input.now == s\n", 30) + "}",
		"comprehensions below the limit": "s := [" + strings.Repeat("1, ", 900) + "]\n" +
			strings.Repeat("allow if count([1 | input.now == s]) == 0\n", 30),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			err := compile(t, "package rule\n\n"+source+"\n")
			list := ast.Errors{}
			if !errors.As(err, &list) || list[0].Code != ast.CompileErr || list[0].Location.Row < 3 {
				t.Fatalf("got error %v, want a rego_compile_error with a place", err)
			}
			if !strings.Contains(list[0].Message, "cost above") {
				t.Errorf("got %q, want a message about the cost", list[0].Message)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestNotTooExpensive has typical modules, which are far from the limits.
func TestNotTooExpensive(t *testing.T) {
	for name, source := range map[string]string{
		"a list of a thousand names": "names := [" + strings.Repeat(`"web", `, 1000) + "]\nallow if input.pod.name in names",
		"functions over all pods": `
			allow if {
				not busy(input.pods, "a")
				count(of(input.pods, "b")) < count(of(input.pods, "c"))
			}
			busy(pods, zone) if {
				some pod in of(pods, zone)
				not pod.available
			}
			of(pods, zone) := [pod | some pod in pods; pod.labels["topology.kubernetes.io/zone"] == zone]`,
		"groups of pods": `
			zones := {zone: names |
				some pod in input.pods
				zone := pod.labels.zone
				names := {other.name | some other in input.pods; other.labels.zone == zone}
			}
			deny contains message if {
				some zone, names in zones
				count(names) > 1
				message := sprintf("%d pods in zone %s: %s", [count(names), zone, concat(", ", sort(names))])
			}
			deny contains {"message": input.pod.name, "retry_after_seconds": 60, "details": {"zones": zones}} if {
				count(zones) == 0
			}`,
		"a table of windows": "windows := [" + strings.Repeat(`{"from": "09:00", "to": "17:00", "days": ["Mon", "Tue"]}, `, 50) + `]
			default allow := false
			allow if {
				some window in windows
				time.weekday([input.now, "Europe/Berlin"]) in window.days
			}
			reason := "closed" if not allow
			else := "open"`,
		"with, to evaluate another pod": `
			fit if input.pod.ready
			allow if {
				every pod in input.pods {
					fit with input.pod as pod
				}
			}`,
		"numbers of a usual size": "allow if input.now > 1.5e3 - 12345678901234567890",
	} {
		t.Run(name, func(t *testing.T) {
			if err := compile(t, "package rule\n\n"+source+"\n"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRejectedBeforeTypes(t *testing.T) {
	for name, tc := range map[string]struct{ source, want string }{
		"a number of many digits":   {"allow if input.now < 1" + strings.Repeat("0", 500), "out of range"},
		"a number with an exponent": {"allow if input.now < 1e500", "out of range"},
		"a long body":               {"allow if {\n" + strings.Repeat("input.now == 1\n", 101) + "}", "more than 100 expressions"},
		"a long body of every": {"allow if every p in input.pods {\n" + strings.Repeat("p.ready\n", 101) + "}",
			"more than 100 expressions"},
		"nested comprehensions": {"allow if input.now == " + strings.Repeat("[1 | 1 == ", 20) + "1" + strings.Repeat("]", 20),
			"more than 6 deep"},
		"a long sum":       {"allow if " + strings.Repeat("1 + ", 101) + "1 == 1", "more than 100 expressions"},
		"a long reference": {"allow if input.parameters" + strings.Repeat("[_]", 64), "more than 64 parts"},
		"nested every": {"allow if {\n" + strings.Repeat("every p in input.pods {\np.ready\n", 7) + strings.Repeat("}\n", 8),
			"more than 6 deep"},
		"nested template strings": {"allow if " + strings.Repeat(`$"{`, 40) + "1" + strings.Repeat(`}"`, 40) + ` == ""`,
			"not supported"},
		"with in place of a builtin": {`allow if startswith(input.pod.name, "a") with startswith as true`, "replaces input"},
		"with in place of a rule":    {"a if input.now == 1\nallow if a with data.rule.a as true", "replaces input"},
		"calls on too many paths": {"f0(a, b, c, d) := 1\n" + doubling("f%[1]d(a, b, c, d) := 1 if {\n"+
			"f%[2]d([a], b, c, d)\nf%[2]d(a, [b], c, d)\nf%[2]d(a, b, [c], d)\nf%[2]d(a, b, c, [d])\n}") +
			"allow if f16(1, 1, 1, 1)", "too many paths"},
	} {
		t.Run(name, func(t *testing.T) {
			err := compile(t, "package rule\n\n"+tc.source+"\n")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestDepthOfBrackets(t *testing.T) {
	for name, tc := range map[string]struct {
		source   string
		row, col int // 0: not too deep
	}{
		"brackets of all kinds":      {"x := [\n" + strings.Repeat("({[", 30), 2, 64},
		"as deep as allowed":         {strings.Repeat("[", 64) + strings.Repeat("]", 64) + strings.Repeat("[", 64), 0, 0},
		"in a string":                {`x := "\"` + strings.Repeat("[", 100) + `"`, 0, 0},
		"in a raw string":            {"x := `\n\\" + strings.Repeat("[", 100) + "`", 0, 0},
		"in a comment":               {"# " + strings.Repeat("[", 100) + "\nx := 1", 0, 0},
		"after strings and comments": {"x := \"a\" # b\ny := `\n\n` + " + strings.Repeat("[", 65), 4, 69},
		"a string without an end":    {`"` + strings.Repeat("[", 100), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			found := &CompileError{}
			err := checkDepth(tc.source)
			if !errors.As(err, &found) {
				found.Problems = []Problem{{}}
			}
			if got := found.Problems[0]; got.Row != tc.row || got.Column != tc.col {
				t.Errorf("got error %v, want it at %d:%d", err, tc.row, tc.col)
			}
		})
	}
}
