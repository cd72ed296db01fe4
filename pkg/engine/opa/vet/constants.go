package vet

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/open-policy-agent/opa/v1/ast"
)

// AbsentPermits is the comment by which a module states that a pod without a fact is meant to pass. A reason may follow.
const AbsentPermits = "podops: absent=permits"

// Constants are the parts of a module from which inputs for it are made.
type Constants struct {
	Reads Reads

	// Strings are the constant strings, and Numbers the constant numbers as they are written; sorted.
	Strings, Numbers []string

	// AbsentPermits reports whether the module, or one that it imports, has the comment AbsentPermits.
	AbsentPermits bool
}

// ReadConstants returns the constants of a module that compiles, and of what it imports.
func ReadConstants(source string) (Constants, error) {
	modules, err := parse(source, Capabilities())
	if err != nil {
		return Constants{}, AsCompileError(err)
	}
	found := Constants{Reads: *newReads()}
	numbers := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		module := modules[file]
		found.AbsentPermits = found.AbsentPermits || slices.ContainsFunc(module.Comments, statesAbsence)
		readReads(module, &found.Reads)
		ast.WalkTerms(module, func(term *ast.Term) bool {
			if number, ok := term.Value.(ast.Number); ok {
				numbers[string(number)] = true
			}
			return false
		})
	}
	found.Strings, found.Numbers = slices.Sorted(maps.Keys(found.Reads.Strings)), slices.Sorted(maps.Keys(numbers))
	return found, nil
}

// statesAbsence reports whether a comment is AbsentPermits, in any case and spacing.
func statesAbsence(comment *ast.Comment) bool {
	text := strings.ToLower(strings.Join(strings.Fields(string(comment.Text)), " "))
	rest, ok := strings.CutPrefix(text, AbsentPermits)
	return ok && (rest == "" || !unicode.IsLetter(rune(rest[0])))
}
