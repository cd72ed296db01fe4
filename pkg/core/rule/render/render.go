// Package render renders a rule of a PodTransitionRule as one human-readable Rego module that calls the
// library in policies. The engine evaluates the same library with spec.Module.Literal in the input; a
// property test compares the two. It is pure.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Module returns the text of the module, formatted as by "opa fmt". Its package is unique per rule,
// so that modules of many rules can be checked and tested together, and its entry point is the rule
// "decision". Strings of users get into it only through a quoting encoder, so no name or label value
// can end a literal or a comment.
func Module(module spec.Module) (string, error) {
	name, err := literal(module.ID.Ruleset.Namespace + "/" + module.ID.Ruleset.Name + "/" + module.ID.Rule)
	if err != nil {
		return "", err
	}
	document, err := literal(module.Literal)
	if err != nil {
		return "", err
	}
	library, arguments := spec.Library(module.Kind), ""
	call := library + ".decision(input, parameters)"
	evaluated, shared := fmt.Sprintf("data.podops.rules.%s.decision(input, input.rule)", library), "of this kind"
	if module.Custom != nil {
		evaluated, shared = fmt.Sprintf("data.podops.rules.%s.decision(input, input.rule, %q)", library, module.Custom.Entry), "with the same data.rule"
		if arguments, err = renderArguments(*module.Custom); err != nil {
			return "", err
		}
		call = fmt.Sprintf("answer if {\n\tanswer := %s.decision(input, parameters, %q) with input.parameters as arguments\n}",
			library, module.Custom.Entry)
	}
	// A name in a comment is quoted as ASCII: a comment ends at any line break.
	return fmt.Sprintf(`# Rule %s of PodTransitionRule %s in namespace %s.

# METADATA
# description: |
#   A rule of kind %s, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   %s with these parameters as input.rule;
#   rules %s share the program.
package %s

import data.podops.rules.%s

# METADATA
# description: The fields of the rule.
# scope: document
parameters := %s
%s
# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := %s
`,
		strconv.QuoteToASCII(module.ID.Rule),
		strconv.QuoteToASCII(module.ID.Ruleset.Name),
		strconv.QuoteToASCII(module.ID.Ruleset.Namespace),
		module.Kind, evaluated, shared, "podops.compiled["+name+"]", library, document, arguments, call), nil
}

// renderArguments returns the part of the source that passes the parameters to the user's module.
func renderArguments(custom spec.Custom) (string, error) {
	// The parameters are decoded, so that neither whitespace nor the order of keys makes another
	// module.
	decoder := json.NewDecoder(bytes.NewReader(custom.Parameters))
	decoder.UseNumber()
	values := map[string]any{}
	if len(custom.Parameters) > 0 {
		if err := decoder.Decode(&values); err != nil {
			return "", fmt.Errorf("reading parameters: %w", err)
		}
	}
	document, err := literal(values)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`
# METADATA
# description: The value of input.parameters in the user's module, data.rule.
# scope: document
arguments := %s
`, document), nil
}

// literal returns a value in the format of "opa fmt": JSON, one item per line, a comma after the
// last item too.
func literal(value any) (string, error) {
	buffer := bytes.Buffer{}
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("encoding parameters: %w", err)
	}
	// JSON strings have no raw line break, so the last byte of a line is never inside a string.
	lines := strings.Split(strings.TrimSuffix(buffer.String(), "\n"), "\n")
	for i := range len(lines) - 1 {
		closes := strings.HasPrefix(strings.TrimLeft(lines[i+1], "\t"), "}") ||
			strings.HasPrefix(strings.TrimLeft(lines[i+1], "\t"), "]")
		if closes {
			lines[i] += ","
		}
	}
	return escaped(strings.Join(lines, "\n")), nil
}

// escaped returns JSON text in ASCII. Rego rejects some characters that JSON allows, a byte order
// mark for example.
func escaped(text string) string {
	escape := strings.Builder{}
	for _, char := range text {
		switch {
		case char < 0x7f:
			escape.WriteRune(char)
		case char <= 0xffff:
			fmt.Fprintf(&escape, `\u%04x`, char)
		default:
			high, low := utf16.EncodeRune(char)
			fmt.Fprintf(&escape, `\u%04x\u%04x`, high, low)
		}
	}
	return escape.String()
}
