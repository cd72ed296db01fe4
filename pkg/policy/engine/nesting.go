package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of the form of a module. The compiler takes time that grows with the third power of the
// length of a body, and triples with each level of comprehensions. Template strings are no part of
// the capabilities, but the compiler says so only when it has spent such time on them.
const (
	maxBody     = 100
	maxClosures = 6
)

// withNestingStage refuses what keeps the first stages of the compiler busy. It runs before all that
// look at more than one term at a time.
func withNestingStage(compiler *ast.Compiler) *ast.Compiler {
	return compiler.WithStageAfterID(ast.StageInitLocalVarGen, ast.CompilerStageDefinition{
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
	})
}

// checkNesting of one rule, with those of its else branches.
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
				fail("a body of rule %s has more than %d expressions: move some to rules of their own", nameOf(rule), maxBody)
			}
		case *ast.TemplateString:
			fail("template strings are not supported: use sprintf")
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

// closureOf is 1 for what has a body of its own.
func closureOf(node any) int {
	switch node.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every:
		return 1
	default:
		return 0
	}
}
