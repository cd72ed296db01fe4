package vet

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of the form of a module. The time of the compiler grows with the third power of the length
// of a body, and triples with each level of comprehensions. (It doubles with each level of template
// strings, which the capabilities do not allow.)
const (
	// maxBody counts nested calls as expressions of their own, as the compiler does.
	maxBody     = 100
	maxClosures = 6
	maxRef      = 64
)

// withNestingStage rejects modules that keep the first stages of the compiler busy. It runs before
// all stages that look at more than one term at a time, and again after calls became expressions.
func withNestingStage(compiler *ast.Compiler) *ast.Compiler {
	stage := ast.CompilerStageDefinition{
		Name:       "CheckNesting",
		MetricName: "compile_stage_check_nesting",
		Stage: func(compiler *ast.Compiler) *ast.Error {
			for _, rule := range usersRules(compiler) {
				if err := checkNesting(rule); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return compiler.
		WithStageAfterID(ast.StageInitLocalVarGen, stage).
		WithStageAfterID(ast.StageRewriteExprTerms, stage)
}

// checkNesting checks one rule, with its else branches.
func checkNesting(rule *ast.Rule) *ast.Error {
	var found *ast.Error
	place, closures := rule.Location, 0
	fail := func(format string, arguments ...any) {
		if found == nil {
			found = ast.NewError(ast.CompileErr, place, format, arguments...)
		}
	}
	enter := func(node any) bool {
		switch node := node.(type) {
		case *ast.Term:
			if node.Location != nil {
				place = node.Location
			}
		case ast.Body:
			if len(node) > maxBody {
				place = node[maxBody].Location
				fail("a body of rule %s has more than %d expressions and calls: move some to rules of their own", nameOf(rule), maxBody)
			}
		case ast.Ref:
			if len(node) > maxRef {
				fail("a reference in rule %s has more than %d parts", nameOf(rule), maxRef)
			}
		}
		if closures += closureOf(node); closures > maxClosures {
			fail("rule %s nests comprehensions and every more than %d deep: move some to rules of their own", nameOf(rule), maxClosures)
		}
		return found != nil
	}
	leave := func(node any) { closures -= closureOf(node) }
	ast.NewBeforeAfterVisitor(enter, leave).Walk(rule)
	return found
}

// closureOf returns 1 for a node that has a body of its own.
func closureOf(node any) int {
	switch node.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every:
		return 1
	default:
		return 0
	}
}

// maxDepth bounds nested brackets. Parsing nested sets takes time that grows with the square of the
// depth.
const maxDepth = 64

// checkDepth checks the text of a module, because parsing it may already take too long.
func checkDepth(source string) error {
	depth, row, start := 0, 1, 0
	for i := 0; i < len(source); i++ {
		switch source[i] {
		case '\n':
			row, start = row+1, i+1
		case '#':
			i += max(0, strings.IndexByte(source[i:], '\n')-1)
		case '"', '`':
			end := endOfString(source, i)
			if last := strings.LastIndexByte(source[i:end], '\n'); last >= 0 {
				row, start = row+strings.Count(source[i:end], "\n"), i+last+1
			}
			i = end
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth > maxDepth {
			place := &ast.Location{Row: row, Col: i - start + 1}
			return contractError(place, "brackets are nested more than %d deep: give parts of it names", maxDepth)
		}
	}
	return nil
}

// endOfString returns the index of the quote that closes the string that starts at an index, or of
// the last byte if the string is not closed.
func endOfString(source string, start int) int {
	for i := start + 1; i < len(source); i++ {
		switch {
		case source[i] == '\\' && source[start] == '"':
			i++
		case source[i] == source[start]:
			return i
		}
	}
	return len(source) - 1
}
