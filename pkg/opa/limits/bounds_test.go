package limits_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/podops-dev/podops/pkg/opa/limits"
	"github.com/podops-dev/podops/pkg/opa/vet"
	"github.com/podops-dev/podops/pkg/text"
)

// compiled compiles a user's module with bounded builtins.
func compiled(t *testing.T, source string) *ast.Compiler {
	t.Helper()
	module, err := ast.ParseModuleWithOpts(vet.File, source, ast.ParserOptions{Capabilities: vet.Capabilities()})
	if err != nil {
		t.Fatal(err)
	}
	compiler := limits.WithStage(vet.Compiler(ast.NewSchemaSet()), vet.IsUsers).WithStrict(true).WithCapabilities(vet.Capabilities())
	if compiler.Compile(map[string]*ast.Module{vet.File: module}); compiler.Failed() {
		t.Fatal(compiler.Errors)
	}
	return compiler
}

// evaluated returns the value of an expression in a user's module, as text; "undefined" if it has
// none.
func evaluated(t *testing.T, expression string) (string, error) {
	t.Helper()
	compiler := compiled(t, "package rule\n\nanswer := "+expression+"\n")
	results, err := rego.New(append(limits.Builtins(),
		rego.Compiler(compiler),
		rego.Query("x := sprintf(\"%v\", [data.rule.answer])"),
		rego.StrictBuiltinErrors(true),
		rego.Input(map[string]any{"pod": map[string]any{"name": "web-0", "labels": map[string]any{"shard": "7"}}}),
	)...).Eval(t.Context())
	if err != nil || len(results) == 0 {
		return "undefined", err
	}
	return results[0].Bindings["x"].(string), nil
}

func TestBoundedBuiltins(t *testing.T) {
	for expression, want := range map[string]string{
		`sprintf("%s is %05.1f%% of %v", [input.pod.name, 12.5, [1, {"a"}]])`: `web-0 is 012.5% of [1, {"a"}]`,
		`concat(", ", {"b", "a"})`:                        "a, b",
		`replace("a.b.c", ".", "--")`:                     "a--b--c",
		`split(input.pod.name, "-")`:                      `["web", "0"]`,
		`trim("..a..", ".")`:                              "a",
		`regex.match("^web-[0-9]{1,3}$", input.pod.name)`: "true",
		`array.concat([1], [2])`:                          "[1, 2]",
		`numbers.range(3, 1)`:                             "[3, 2, 1]",
		`to_number(input.pod.labels.shard) * 3 % 4`:       "1",
		`floor(7 / 2) + ceil(0.1) + round(2.5)`:           "7",
		`format_int(255, 16)`:                             "ff",
		`{1, 2} - {2}`:                                    "{1}",
	} {
		if got, err := evaluated(t, expression); err != nil || got != want {
			t.Errorf("%s is %q (error: %v), want %q", expression, got, err, want)
		}
	}
}

// TestBoundsOfBuiltins has calls that take seconds or gigabytes in a stock OPA and cannot be
// interrupted.
func TestBoundsOfBuiltins(t *testing.T) {
	for expression, want := range map[string]string{
		`sprintf("%900000d", [1])`: "longer than",
		`sprintf("` + strings.Repeat("%999d", 100) + `", numbers.range(1, 100))`:                                         "longer than",
		`sprintf("%*d", [1000000, 1])`:                                                                                   "not supported",
		`sprintf("` + strings.Repeat("%[1]s", 100) + `", ["x"])`:                                                         "not supported",
		`concat(` + literal(1000) + `, [x | some i in numbers.range(1, 100); x := format_int(i, 10)])`:                   "longer than",
		`concat("", [x | some i in numbers.range(1, 100); x := concat("", [` + literal(1000) + `, format_int(i, 10)])])`: "longer than",
		`replace(` + literal(300) + `, "x", ` + literal(300) + `)`:                                                       "longer than",
		`replace(` + literal(300) + `, "", ` + literal(300) + `)`:                                                        "longer than",
		`split(concat("", [` + literal(9000) + `, ` + literal(5000) + `]), "")`:                                          "more than",
		`trim("x", ` + literal(300) + `)`:                                                                                "more than",
		`regex.match("` + strings.Repeat("a", 300) + `", "a")`:                                                           "longer than",
		`regex.match("a{1000}", "a")`:                                                                                    "more than",
		`regex.match("((a{10}){10}){10}", "a")`:                                                                          "more than",
		`regex.match("(", "a")`:                                                                                          "wrong",
		`regex.match("a", ` + literal(5000) + `)`:                                                                        "longer than",
		`numbers.range(1, 1000000000)`:                                                                                   "more than",
		`numbers.range(1, 1e300)`:                                                                                        "not a whole number in range",
		`numbers.range(-9223372036854775807, 9223372036854775807)`:                                                       "in range",
		`to_number("1e100000000")`:                                                                                       "out of range",
		`floor(1e300 * 1e300 * 1e300)`:                                                                                   "out of range",
		`1 / (1e-300 * 1e-300)`:                                                                                          "out of range",
		`format_int(1e300 * 1e300, 10)`:                                                                                  "out of range",
		`count([x | some i in numbers.range(1, 9000); x := concat("", [` + literal(9000) + `, format_int(i, 10)])])`:            "more than 32 MiB",
		`count([x | xs := numbers.range(1, 9000); some i in xs; x := array.reverse(array.slice(xs, i, 9000))])`:                 "more than 32 MiB",
		`count([x | xs := {y | some y in numbers.range(1, 9000)}; some i in xs; x := xs - {i}])`:                                "more than 32 MiB",
		`count([x | xs := {{y | some y in numbers.range(1, 9000)}}; some i in numbers.range(1, 9000); x := union(xs | {{i}})])`: "more than 32 MiB",
	} {
		t.Run(text.Cut(expression, 40), func(t *testing.T) {
			before, start := allocated(), time.Now()
			got, err := evaluated(t, expression)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %q with error %v, want an error with %q", text.Cut(got, 40), err, want)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
			if grown := allocated() - before; grown > 128<<20 {
				t.Errorf("allocated %d MiB", grown>>20)
			}
		})
	}
}

// literal returns a string literal of the given number of bytes.
func literal(length int) string { return `"` + strings.Repeat("x", length) + `"` }

// allocated returns the total bytes ever allocated.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}
