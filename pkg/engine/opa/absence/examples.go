package absence

import (
	"regexp/syntax"
	"strings"
)

// examples returns a text that matches each of these texts that is a regular expression or a glob, so that a module that compares
// with patterns has values, too.
func examples(texts []string) []string {
	var found []string
	for _, text := range texts {
		if strings.ContainsRune(text, '*') {
			found = append(found, strings.ReplaceAll(text, "*", "x"))
		}
		pattern, err := syntax.Parse(text, syntax.Perl)
		if err != nil || pattern.Op == syntax.OpLiteral {
			continue
		}
		var example strings.Builder
		if match(&example, pattern.Simplify()) {
			found = append(found, example.String())
		}
	}
	return found
}

// match writes the first text that matches a regular expression; false if none does. Anchors match, wherever they are.
func match(text *strings.Builder, pattern *syntax.Regexp) bool {
	switch pattern.Op {
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		text.WriteString(string(pattern.Rune))
	case syntax.OpCharClass:
		if len(pattern.Rune) == 0 {
			return false
		}
		text.WriteRune(pattern.Rune[0])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		text.WriteRune('x')
	case syntax.OpAlternate, syntax.OpPlus, syntax.OpCapture:
		return match(text, pattern.Sub[0])
	case syntax.OpRepeat, syntax.OpConcat:
		for _, below := range pattern.Sub {
			if !match(text, below) {
				return false
			}
		}
	default: // empty matches, and what may be missing
	}
	return true
}
