package engine

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Limits of single calls of builtins. A builtin is not interrupted: what it makes, and how long it
// computes, must follow from its arguments.
const (
	maxText         = 64 << 10 // bytes of a text that a rule makes
	maxItems        = 10000    // of an array that split or numbers.range makes
	maxJoined       = 100000   // items of an array that array.concat makes
	maxCutset       = 256      // bytes
	maxPattern      = 256      // bytes of a regular expression
	maxMatched      = 4096     // bytes that it is matched with
	maxInstructions = 1000     // that it compiles to: a{1000} is seven bytes
)

// boundedPrefix marks the calls that are bounded. No builtin of OPA begins with it.
const boundedPrefix = "podops.bounded."

// bound is an error if a call with these arguments is too expensive.
type bound func(arguments []*ast.Term) error

// bounds by builtin. Builtins without one take time and memory in proportion to their arguments.
// Arguments of a wrong type are left to the builtin, which has an error for them.
func bounds() map[string]bound {
	return map[string]bound{
		ast.Sprintf.Name:                boundSprintf,
		ast.Concat.Name:                 boundConcat,
		ast.InternalTemplateString.Name: boundTexts,
		ast.Replace.Name:                boundReplace,
		ast.Split.Name:                  boundSplit,
		ast.Trim.Name:                   boundCutset,
		ast.TrimLeft.Name:               boundCutset,
		ast.TrimRight.Name:              boundCutset,
		ast.RegexMatch.Name:             boundRegex,
		ast.ArrayConcat.Name:            boundJoined,
		ast.NumbersRange.Name:           boundRange,
		ast.Multiply.Name:               boundNumbers,
		ast.Divide.Name:                 boundNumbers,
		ast.Rem.Name:                    boundNumbers,
		ast.Ceil.Name:                   boundNumbers,
		ast.Floor.Name:                  boundNumbers,
		ast.Round.Name:                  boundNumbers,
		ast.FormatInt.Name:              boundNumbers,
		ast.ToNumber.Name:               boundNumbers,
	}
}

// withBoundsStage makes the modules of users call bounded builtins in place of OPA's own. It runs
// last, so that types, messages and indices are those of the builtins that the user wrote.
func withBoundsStage(compiler *ast.Compiler) *ast.Compiler {
	return compiler.WithStageAfterID(ast.StageBuildRequiredCapabilities, ast.CompilerStageDefinition{
		Name:       "BoundBuiltins",
		MetricName: "compile_stage_bound_builtins",
		Stage: func(compiler *ast.Compiler) *ast.Error {
			known := bounds()
			for _, module := range compiler.Modules {
				if isUsers(module) {
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

// boundedRef is the operator of a bounded builtin.
func boundedRef(name string) ast.Ref {
	return ast.Ref{ast.VarTerm(boundedPrefix + name)}
}

// boundedBuiltins are options of a query over modules that were compiled with the stage.
func boundedBuiltins() []func(*rego.Rego) {
	options := []func(*rego.Rego){}
	known := bounds()
	for _, name := range slices.Sorted(maps.Keys(known)) {
		original, tooMuch := topdown.GetBuiltin(name), known[name]
		function := &rego.Function{Name: boundedRef(name).String(), Decl: ast.BuiltinMap[name].Decl}
		options = append(options, rego.FunctionDyn(function,
			func(call topdown.BuiltinContext, arguments []*ast.Term) (*ast.Term, error) {
				if err := tooMuch(arguments); err != nil {
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

// boundSprintf refuses what would make a long text of short arguments: widths, and arguments that
// are used more than once.
func boundSprintf(arguments []*ast.Term) error {
	format, ok := arguments[0].Value.(ast.String)
	if !ok {
		return nil
	}
	length, inVerb, width := len(format), false, 0
	for _, char := range string(format) {
		switch {
		case char == '%':
			inVerb, width = !inVerb, 0
		case !inVerb:
		case char == '*' || char == '[':
			return fmt.Errorf("%%%c is not supported, write the width and use each argument once", char)
		case '0' <= char && char <= '9':
			width = min(10*width+int(char-'0'), maxText+1)
		case !strings.ContainsRune("+-# .", char):
			inVerb = false
			length += width
		default:
			length += width
			width = 0
		}
		if length > maxText {
			return tooLong()
		}
	}
	return textsWithin(arguments[1:], maxText-length)
}

func boundTexts(arguments []*ast.Term) error { return textsWithin(arguments, maxText) }

func boundConcat(arguments []*ast.Term) error {
	delimiter, ok := arguments[0].Value.(ast.String)
	if !ok {
		return nil
	}
	items := 0
	switch collection := arguments[1].Value.(type) {
	case *ast.Array:
		items = collection.Len()
	case ast.Set:
		items = collection.Len()
	}
	if len(delimiter)*items > maxText {
		return tooLong()
	}
	return textsWithin(arguments[1:], maxText-len(delimiter)*items)
}

func boundReplace(arguments []*ast.Term) error {
	text, old, replacement, ok := threeStrings(arguments)
	if !ok {
		return nil
	}
	if len(text)+strings.Count(text, old)*max(0, len(replacement)-len(old)) > maxText {
		return tooLong()
	}
	return nil
}

func boundSplit(arguments []*ast.Term) error {
	text, isText := arguments[0].Value.(ast.String)
	delimiter, isDelimiter := arguments[1].Value.(ast.String)
	if isText && isDelimiter && strings.Count(string(text), string(delimiter)) >= maxItems {
		return fmt.Errorf("the text has more than %d parts", maxItems)
	}
	return nil
}

func boundCutset(arguments []*ast.Term) error {
	if cutset, ok := arguments[1].Value.(ast.String); ok && len(cutset) > maxCutset {
		return fmt.Errorf("there are more than %d bytes to cut off", maxCutset)
	}
	return nil
}

// boundRegex: matching takes time in proportion to the product of text and compiled expression.
func boundRegex(arguments []*ast.Term) error {
	pattern, isPattern := arguments[0].Value.(ast.String)
	text, isText := arguments[1].Value.(ast.String)
	switch {
	case !isPattern || !isText:
		return nil
	case len(pattern) > maxPattern:
		return fmt.Errorf("the expression is longer than %d bytes", maxPattern)
	case len(text) > maxMatched:
		return fmt.Errorf("the text is longer than %d bytes", maxMatched)
	}
	parsed, err := syntax.Parse(string(pattern), syntax.Perl)
	if err != nil {
		return fmt.Errorf("the expression is wrong: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return fmt.Errorf("the expression is wrong: %w", err)
	}
	if len(program.Inst) > maxInstructions {
		return fmt.Errorf("the expression compiles to more than %d instructions; repeat less", maxInstructions)
	}
	return nil
}

func boundJoined(arguments []*ast.Term) error {
	items := 0
	for _, argument := range arguments {
		if array, ok := argument.Value.(*ast.Array); ok {
			items += array.Len()
		}
	}
	if items > maxJoined {
		return fmt.Errorf("the array would have more than %d items", maxJoined)
	}
	return nil
}

func boundRange(arguments []*ast.Term) error {
	ends := [2]int64{}
	for i := range ends {
		number, ok := arguments[i].Value.(ast.Number)
		if !ok {
			return nil
		}
		if ends[i], ok = number.Int64(); !ok || ends[i] > 1<<60 || ends[i] < -1<<60 {
			return fmt.Errorf("%s is not a whole number in range", shortened(string(number)))
		}
	}
	if distance := ends[1] - ends[0]; distance >= maxItems || distance <= -maxItems {
		return fmt.Errorf("the range has more than %d numbers", maxItems)
	}
	return nil
}

func boundNumbers(arguments []*ast.Term) error {
	for _, argument := range arguments {
		text := ""
		switch value := argument.Value.(type) {
		case ast.Number:
			text = string(value)
		case ast.String: // of to_number
			text = string(value)
		}
		if !isPlain(text) {
			return fmt.Errorf("%s is out of range: at most %d digits, and an exponent of at most %d",
				shortened(text), maxDigits, maxExponent)
		}
	}
	return nil
}

func threeStrings(terms []*ast.Term) (first, second, third string, ok bool) {
	values := [3]string{}
	for i := range values {
		value, isString := terms[i].Value.(ast.String)
		if !isString {
			return "", "", "", false
		}
		values[i] = string(value)
	}
	return values[0], values[1], values[2], true
}

func tooLong() error { return fmt.Errorf("the text would be longer than %d bytes", maxText) }

// textsWithin is an error if terms print as more than most bytes. It looks at no more of them than
// that: a value that shares its parts may be small in memory and print as gigabytes.
func textsWithin(terms []*ast.Term, most int) error {
	left := most
	for _, term := range terms {
		if left = leftAfter(term, left); left < 0 {
			return tooLong()
		}
	}
	return nil
}

// leftAfter is what is left of a number of bytes after a term was printed; negative when they are
// too few.
func leftAfter(term *ast.Term, left int) int {
	const separator = 2
	child := func(one *ast.Term) bool {
		left = leftAfter(one, left-separator)
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
