package vet

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// HintFormat means that the format of a sprintf call does not fit its arguments: the text has parts such as %!s(MISSING).
const HintFormat = "format"

// verbs are the verbs of a format, with their flags and width.
var verbs = regexp.MustCompile(`%[-+# 0]*\d*(?:\.\d*)?([a-zA-Z%])`)

// formats returns the calls of sprintf in a rule whose constant format has another number of verbs than it has arguments, or the verb %d for
// a quotient.
func (s *scope) formats(rule *ast.Rule) []Problem {
	var found []Problem
	check := func(place *ast.Location, operands []*ast.Term) {
		if len(operands) < 2 {
			return
		}
		format, isConstant := s.value(operands[0]).Value.(ast.String)
		values, isArray := s.value(operands[1]).Value.(*ast.Array)
		if !isConstant || !isArray {
			return
		}
		wanted := slices.DeleteFunc(verbs.FindAllStringSubmatch(string(format), -1), func(verb []string) bool { return verb[1] == "%" })
		if len(wanted) != values.Len() {
			found = append(found, problemAt(place, HintFormat, fmt.Sprintf("the format has %d verbs, and %d arguments", len(wanted), values.Len())))
			return
		}
		for i, verb := range wanted {
			if value := values.Elem(i); verb[1] == "d" && isQuotient(s.value(value)) {
				found = append(found, problemAt(place, HintFormat, fmt.Sprintf(
					"%s is for whole numbers, and %s may be none: use %%v, or round it", verb[0], value)))
			}
		}
	}
	walkCalls(rule, func(name string, place *ast.Location, operands []*ast.Term) {
		if name == "sprintf" {
			check(place, operands)
		}
	})
	return found
}

func isQuotient(term *ast.Term) bool {
	call, ok := term.Value.(ast.Call)
	return ok && call[0].String() == "div"
}
