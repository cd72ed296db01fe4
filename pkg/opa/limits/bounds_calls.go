package limits

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/text"
)

// itemBytes is roughly the memory of an item of a collection when the item itself is shared.
const itemBytes = 32

// boundSprintf rejects formats that make a long string of short arguments: widths, and arguments
// that are used more than once.
func boundSprintf(arguments []*ast.Term) (int, error) {
	format, ok := arguments[0].Value.(ast.String)
	if !ok {
		return 0, nil
	}
	length, inVerb, width := len(format), false, 0
	for _, char := range string(format) {
		switch {
		case char == '%':
			inVerb, width = !inVerb, 0
		case !inVerb:
		case char == '*' || char == '[':
			return 0, fmt.Errorf("%%%c is not supported, write the width and use each argument once", char)
		case '0' <= char && char <= '9':
			width = min(10*width+int(char-'0'), maxText+1)
		case strings.ContainsRune("+-# .", char):
			length += width
			width = 0
		default:
			inVerb = false
			length += width
		}
		if length > maxText {
			return 0, tooLong()
		}
	}
	return textsWithin(arguments[1:], length)
}

func boundConcat(arguments []*ast.Term) (int, error) {
	delimiter, ok := arguments[0].Value.(ast.String)
	if !ok {
		return 0, nil
	}
	return textsWithin(arguments[1:], len(delimiter)*lengthOf(arguments[1]))
}

func boundReplace(arguments []*ast.Term) (int, error) {
	texts := [3]string{}
	for i := range texts {
		text, ok := arguments[i].Value.(ast.String)
		if !ok {
			return 0, nil
		}
		texts[i] = string(text)
	}
	text, old, replacement := texts[0], texts[1], texts[2]
	made := len(text) + strings.Count(text, old)*max(0, len(replacement)-len(old))
	if made > maxText {
		return 0, tooLong()
	}
	return made, nil
}

func boundSplit(arguments []*ast.Term) (int, error) {
	text, isText := arguments[0].Value.(ast.String)
	delimiter, isDelimiter := arguments[1].Value.(ast.String)
	if !isText || !isDelimiter {
		return 0, nil
	}
	parts := strings.Count(string(text), string(delimiter))
	if parts >= maxItems {
		return 0, fmt.Errorf("the text has more than %d parts", maxItems)
	}
	return parts * itemBytes, nil
}

func boundCutset(arguments []*ast.Term) (int, error) {
	if cutset, ok := arguments[1].Value.(ast.String); ok && len(cutset) > maxCutset {
		return 0, fmt.Errorf("there are more than %d bytes to cut off", maxCutset)
	}
	return boundCopies(arguments)
}

// boundRegex bounds the text and the compiled expression: matching takes time in proportion to
// their product.
func boundRegex(arguments []*ast.Term) (int, error) {
	pattern, isPattern := arguments[0].Value.(ast.String)
	text, isText := arguments[1].Value.(ast.String)
	switch {
	case !isPattern || !isText:
		return 0, nil
	case len(pattern) > maxPattern:
		return 0, fmt.Errorf("the expression is longer than %d bytes", maxPattern)
	case len(text) > maxMatched:
		return 0, fmt.Errorf("the text is longer than %d bytes", maxMatched)
	}
	parsed, err := syntax.Parse(string(pattern), syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("the expression is wrong: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, fmt.Errorf("the expression is wrong: %w", err)
	}
	if len(program.Inst) > maxInstructions {
		return 0, fmt.Errorf("the expression compiles to more than %d instructions; repeat less", maxInstructions)
	}
	return 0, nil
}

func boundJoined(arguments []*ast.Term) (int, error) {
	if items := lengthOf(arguments[0]) + lengthOf(arguments[1]); items > maxJoined {
		return 0, fmt.Errorf("the array would have more than %d items", maxJoined)
	}
	return boundCopies(arguments)
}

func boundRange(arguments []*ast.Term) (int, error) {
	const far = 1 << 60 // the distance between two such ends fits into an int64
	ends := [2]int64{}
	for i := range ends {
		number, ok := arguments[i].Value.(ast.Number)
		if !ok {
			return 0, nil
		}
		if ends[i], ok = number.Int64(); !ok || ends[i] > far || ends[i] < -far {
			return 0, fmt.Errorf("%s is not a whole number in range", text.Cut(string(number), maxShown))
		}
	}
	distance := max(ends[1]-ends[0], ends[0]-ends[1])
	if distance >= maxItems {
		return 0, fmt.Errorf("the range has more than %d numbers", maxItems)
	}
	return int(distance) * itemBytes, nil
}

func boundNumbers(arguments []*ast.Term) (int, error) {
	made := 0
	for _, argument := range arguments {
		text := ""
		switch value := argument.Value.(type) {
		case ast.Number:
			text = string(value)
		case ast.String: // the argument of to_number
			text = string(value)
		}
		if err := CheckNumber(text); err != nil {
			return 0, err
		}
		made += len(text)
	}
	return made, nil
}

// boundCopies is the bound of builtins that return at most a copy of their arguments.
func boundCopies(arguments []*ast.Term) (int, error) {
	made := 0
	for _, argument := range arguments {
		made += copiedBytes(argument)
	}
	return made, nil
}

// copiedBytes returns the bytes of a string or a collection. For a collection of collections, such
// as the argument of union, it includes the items of the inner collections.
func copiedBytes(term *ast.Term) int {
	if text, ok := term.Value.(ast.String); ok {
		return len(text)
	}
	items := lengthOf(term)
	inner := func(item *ast.Term) { items += lengthOf(item) }
	if set, ok := term.Value.(ast.Set); ok {
		set.Foreach(inner)
	}
	return items * itemBytes
}

// lengthOf returns the number of items of a collection; 0 for any other term.
func lengthOf(term *ast.Term) int {
	switch value := term.Value.(type) {
	case *ast.Array:
		return value.Len()
	case ast.Set:
		return value.Len()
	case ast.Object:
		return value.Len()
	default:
		return 0
	}
}

func tooLong() error { return fmt.Errorf("the text would be longer than %d bytes", maxText) }

// textsWithin returns the length of the string that has begins bytes and then the terms, or an
// error if it is too long. It stops at the limit: a value that shares its parts may be small in
// memory and print as gigabytes.
func textsWithin(terms []*ast.Term, begins int) (int, error) {
	left := maxText - begins
	for _, term := range terms {
		if left < 0 {
			break
		}
		left = leftAfter(term, left)
	}
	if left < 0 {
		return 0, tooLong()
	}
	return maxText - left, nil
}

// leftAfter returns how many of left bytes remain after a term was printed; negative if they are
// too few.
func leftAfter(term *ast.Term, left int) int {
	const separator = 2
	child := func(item *ast.Term) bool {
		left = leftAfter(item, left-separator)
		return left < 0
	}
	switch value := term.Value.(type) {
	case ast.String:
		return left - len(value)
	case ast.Number:
		return left - len(value)
	case *ast.Array:
		value.Until(child)
	case ast.Set:
		value.Until(child)
	case ast.Object:
		value.Until(func(key, item *ast.Term) bool { return child(key) || child(item) })
	default:
		return left - len("false")
	}
	return left - separator
}
