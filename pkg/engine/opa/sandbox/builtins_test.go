package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// largeValues are rules with the largest values that a few lines of Rego can build within the CPU time of an evaluation. The last of them
// hold the same values many times over.
const largeValues = `package rule

text := concat("/", ["a" | some _ in numbers.range(1, 40000)])
lines := [text | some _ in numbers.range(1, 20000)]
texts := {sprintf("%d", [i]) | some i in numbers.range(1, 20000)}
list := numbers.range(1, 20000)
members := {i | some i in list}
fields := {sprintf("%d", [i]): text | some i in list}
once := [list | some _ in list]
twice := [once | some _ in list]
sets := {[i, list] | some i in list}
`

// arguments returns several expressions for an argument of a type, the cheap ones first.
func arguments(of types.Type) []string {
	switch of := of.(type) {
	case types.String:
		return []string{"text", `"9999999999999999999E"`}
	case types.Number:
		return []string{"1000000000", "1e300", "-1"}
	case types.Boolean:
		return []string{"true"}
	case types.Null:
		return []string{"null"}
	case *types.Array:
		if of.Len() > 0 {
			return []string{tuple(of)}
		}
		if _, ofObjects := of.Dynamic().(*types.Object); ofObjects {
			return []string{`[fields, {"a": twice}]`}
		}
		return []string{"lines", "twice", "list"}
	case *types.Set:
		if _, ofSets := of.Of().(*types.Set); ofSets {
			return []string{"{texts, members}", "{sets}"}
		}
		return []string{"texts", "sets", "members"}
	case *types.Object:
		return []string{"fields", `{"a": twice}`}
	case types.Any:
		var all []string
		for _, one := range of {
			all = append(all, arguments(one)...)
		}
		if len(all) == 0 {
			all = []string{"twice", "text", "sets"}
		}
		return all
	case *types.NamedType:
		return arguments(of.Type)
	default:
		return []string{"twice"}
	}
}

// tuple returns an expression for an array of a fixed length.
func tuple(of *types.Array) string {
	var values []string
	for i := range of.Len() {
		values = append(values, arguments(of.Select(i))[0])
	}
	return "[" + strings.Join(values, ", ") + "]"
}

// largeCalls returns modules that call a builtin with large arguments. Each module has one call, because the first one that overruns ends it.
func largeCalls(builtin *ast.Builtin) []string {
	given := make([][]string, 0, 3)
	most := 0
	for _, argument := range builtin.Decl.FuncArgs().Args {
		values := arguments(argument)
		given, most = append(given, values), max(most, len(values))
	}
	var modules []string
	for i := range most {
		var values []string
		for _, argument := range given {
			values = append(values, argument[i%len(argument)])
		}
		call := fmt.Sprintf("%s(%s)", builtin.Name, strings.Join(values, ", "))
		if builtin.Decl.Result() == nil {
			modules = append(modules, fmt.Sprintf("%s\nallow if {\n\t%s\n\tcount(twice) == 0\n}\n", largeValues, call))
			continue
		}
		modules = append(modules, fmt.Sprintf("%s\nallow if {\n\tx := %s\n\ty := %s\n\tx == y\n\tcount([x]) == 2\n}\n", largeValues, call, call))
	}
	return modules
}

// callable returns the builtins that a module calls by their names and evaluates: the engine erases print.
func callable() []*ast.Builtin {
	return slices.DeleteFunc(vet.Capabilities().Builtins, func(builtin *ast.Builtin) bool {
		return builtin.Name == "assign" || builtin.Name == "eq" || builtin.Name == "print" || strings.HasPrefix(builtin.Name, "internal.")
	})
}

// TestEveryBuiltinWithLargeArguments calls each builtin that rules may call with the largest arguments that a module can build. The module
// has an outcome of its own within its limits, and another namespace gets its verdict.
func TestEveryBuiltinWithLargeArguments(t *testing.T) {
	sandbox := New(Options{Timeout: patience})
	engine := engineWith(t, opa.Options{RoundBudget: time.Minute}, sandbox)
	neighbour := programIn(t, engine, "quiet", fine, `{}`)
	all := pods(2)
	env, waiting := environment(all), requests(all[:1])
	allowed := []string{
		"withheld " + string(rule.CodeTimeout), "withheld " + string(rule.CodeEvaluationFailed),
		"withheld " + string(rule.CodeNotAllowed), "withheld " + string(rule.CodeUndefined), "passed",
	}
	before, outcomes := heapInUse(), map[string]int{}
	for _, builtin := range callable() {
		evaluated := 0
		for i, module := range largeCalls(builtin) {
			one := hostile{name: fmt.Sprintf("%s-%d", strings.ReplaceAll(builtin.Name, "_", "-"), i), source: module}
			got := one.outcome(t, engine, env, waiting)
			outcomes[got]++
			if got == "compile rego_type_error" { // an argument of another type of a union
				continue
			}
			evaluated++
			if !slices.Contains(allowed, got) {
				t.Errorf("%s: outcome %q, want one of %q; the module ends with %q", one.name, got, allowed, module[len(largeValues):])
			}
		}
		if evaluated == 0 {
			t.Errorf("no call of %s has arguments of its types", builtin.Name)
		}
		if verdict := evaluate(t, neighbour, env, waiting).Verdicts[waiting[0].Key()]; verdict.Outcome != rule.Passed {
			t.Errorf("after %s the neighbour got %+v", builtin.Name, verdict)
		}
	}
	if grown := int64(heapInUse()) - int64(before); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	t.Logf("outcomes: %v", outcomes)
}
