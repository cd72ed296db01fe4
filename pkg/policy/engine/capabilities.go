package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// allowedBuiltins is all that the library needs. It is an allow-list since most of OPA's builtins
// are unfit for a rule: they reach the network, the clock or the environment, or keep computing
// after they were told to stop.
func allowedBuiltins() []*ast.Builtin {
	return []*ast.Builtin{
		// Operators.
		ast.Assign, ast.Equality, ast.Equal, ast.NotEqual,
		ast.LessThan, ast.LessThanEq, ast.GreaterThan, ast.GreaterThanEq,
		ast.Plus, ast.Minus, ast.Multiply, ast.Divide,
		ast.And, ast.Or, ast.Union,
		ast.Member, ast.MemberWithKey,

		// Numbers.
		ast.Ceil, ast.Floor, ast.Count, ast.Max, ast.Min,

		// Objects.
		ast.ObjectGet, ast.ObjectKeys, ast.ObjectSubset, ast.ObjectUnion,

		// Types.
		ast.IsArray, ast.IsObject, ast.IsString,
	}
}

// capabilities are what a module may use: the allowed builtins, and no network for the compiler.
func capabilities() *ast.Capabilities {
	allowed := ast.CapabilitiesForThisVersion()
	list := allowedBuiltins()
	allowed.Builtins = slices.DeleteFunc(allowed.Builtins, func(builtin *ast.Builtin) bool {
		return !slices.ContainsFunc(list, func(one *ast.Builtin) bool { return one.Name == builtin.Name })
	})
	// Empty is "nowhere"; nil would be "anywhere".
	allowed.AllowNet = []string{}
	return allowed
}
