package limits

import (
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Limits of single calls of builtins. A builtin cannot be interrupted: the size of its result and
// the time that it takes must follow from its arguments.
const (
	maxText         = 64 << 10 // bytes of a string that a rule makes
	maxItems        = 10000    // of an array that split or numbers.range makes
	maxJoined       = 100000   // items of an array that array.concat makes
	maxCutset       = 256      // bytes
	maxPattern      = 256      // bytes of a regular expression
	maxMatched      = 4096     // bytes of the string that it is matched against
	maxInstructions = 1000     // of the compiled expression: a{1000} is seven bytes
	maxMade         = 32 << 20 // bytes of the results of all builtins of one evaluation
)

// Prefix marks the bounded variants of builtins, and the messages of their errors. No builtin of OPA
// begins with it.
const Prefix = "podops.bounded."

// bound returns an upper estimate of the bytes of the result of a call with these arguments, or an
// error if the call is too expensive. Arguments of a wrong type are left to the builtin, which
// returns an error for them.
type bound func(arguments []*ast.Term) (made int, err error)

// bounds returns the bounds by builtin. The results of all other builtins do not grow with their
// arguments.
func bounds() map[string]bound {
	known := map[string]bound{
		ast.Sprintf.Name:      boundSprintf,
		ast.Concat.Name:       boundConcat,
		ast.Replace.Name:      boundReplace,
		ast.Split.Name:        boundSplit,
		ast.Trim.Name:         boundCutset,
		ast.TrimLeft.Name:     boundCutset,
		ast.TrimRight.Name:    boundCutset,
		ast.RegexMatch.Name:   boundRegex,
		ast.ArrayConcat.Name:  boundJoined,
		ast.NumbersRange.Name: boundRange,
		ast.Multiply.Name:     boundNumbers,
		ast.Divide.Name:       boundNumbers,
		ast.Rem.Name:          boundNumbers,
		ast.Ceil.Name:         boundNumbers,
		ast.Floor.Name:        boundNumbers,
		ast.Round.Name:        boundNumbers,
		ast.FormatInt.Name:    boundNumbers,
		ast.ToNumber.Name:     boundNumbers,
	}
	for _, copies := range []*ast.Builtin{
		ast.Minus, ast.And, ast.Or, ast.Union, ast.Intersection, ast.Sort, ast.ArrayReverse, ast.ArraySlice,
		ast.ObjectFilter, ast.ObjectKeys, ast.ObjectRemove, ast.ObjectUnion, ast.JSONRemove,
		ast.Lower, ast.Upper, ast.Substring, ast.TrimSpace, ast.TrimPrefix, ast.TrimSuffix, ast.Format,
	} {
		known[copies.Name] = boundCopies
	}
	return known
}

// WithStage replaces the builtins that some modules call by their bounded variants. It runs last, so
// that types, messages and indices are OPA's.
func WithStage(compiler *ast.Compiler, includes func(*ast.Module) bool) *ast.Compiler {
	return compiler.WithStageAfterID(ast.StageBuildRequiredCapabilities, ast.CompilerStageDefinition{
		Name:       "BoundBuiltins",
		MetricName: "compile_stage_bound_builtins",
		Stage: func(compiler *ast.Compiler) *ast.Error {
			known := bounds()
			for _, module := range compiler.Modules {
				if includes(module) {
					boundCalls(module, known)
				}
			}
			return nil
		},
	})
}

func boundCalls(module *ast.Module, known map[string]bound) {
	replaced := func(terms []*ast.Term) {
		name := terms[0].Value.String()
		if _, bounded := known[name]; bounded {
			terms[0] = ast.NewTerm(boundedRef(name)).SetLocation(terms[0].Location)
		}
	}
	ast.NewGenericVisitor(func(node any) bool {
		switch node := node.(type) {
		case *ast.Expr:
			if terms, ok := node.Terms.([]*ast.Term); ok && len(terms) > 0 {
				replaced(terms)
			}
		case ast.Call:
			replaced(node)
		}
		return false
	}).Walk(module)
}

// boundedRef returns the operator of a bounded builtin.
func boundedRef(name string) ast.Ref {
	return ast.Ref{ast.VarTerm(Prefix + name)}
}

// Builtins returns the options of a query over modules that were compiled with WithStage.
func Builtins() []func(*rego.Rego) {
	options := []func(*rego.Rego){}
	known := bounds()
	for _, name := range slices.Sorted(maps.Keys(known)) {
		original, bounded := topdown.GetBuiltin(name), known[name]
		function := &rego.Function{Name: boundedRef(name).String(), Decl: ast.BuiltinMap[name].Decl}
		options = append(options, rego.FunctionDyn(function,
			func(call topdown.BuiltinContext, arguments []*ast.Term) (*ast.Term, error) {
				if err := spend(call, arguments, bounded); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				var result *ast.Term
				err := original(call, arguments, func(term *ast.Term) error {
					result = term
					return nil
				})
				return result, err
			}))
	}
	return options
}

// spentKey is the key, in the cache of one evaluation, of the bytes that its builtins have made.
type spentKey struct{}

// spend adds the result of a call to the bytes that its evaluation has made. A loop of cheap calls
// whose results are kept fills the memory in a tenth of a second.
func spend(call topdown.BuiltinContext, arguments []*ast.Term, bounded bound) error {
	made, err := bounded(arguments)
	if err != nil {
		return err
	}
	spent, _ := call.Cache.Get(spentKey{})
	total, _ := spent.(int)
	if total += made; total > maxMade {
		return fmt.Errorf("the evaluation makes more than %d MiB of strings and collections", maxMade>>20)
	}
	call.Cache.Put(spentKey{}, total)
	return nil
}
