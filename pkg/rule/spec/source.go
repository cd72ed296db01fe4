package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// parameters is the literal document of a module. Its fields are those that the library in policies
// reads; fields that are not set are left out, which the library treats as "for all".
type parameters struct {
	Name           string                       `json:"name"`
	Stage          appsv1alpha1.TransitionStage `json:"stage"`
	Enforcement    appsv1alpha1.Enforcement     `json:"enforcement"`
	Conditions     []string                     `json:"conditions,omitempty"`
	Filter         *metav1.LabelSelector        `json:"filter,omitempty"`
	Requires       *metav1.LabelSelector        `json:"requires,omitempty"`
	MaxUnavailable *bound                       `json:"max_unavailable,omitempty"`
	MinAvailable   *bound                       `json:"min_available,omitempty"`
	FailurePolicy  appsv1alpha1.FailurePolicy   `json:"failure_policy,omitempty"`
}

// bound has exactly one field set.
type bound struct {
	Count   *int `json:"count,omitempty"`
	Percent *int `json:"percent,omitempty"`
}

// parametersOf returns the parameters of a valid rule. The service of a webhook and the body of its
// calls are not among them: no Rego reads them.
func parametersOf(rule appsv1alpha1.TransitionRule) parameters {
	found := parameters{
		Name:        rule.Name,
		Stage:       rule.Stage,
		Enforcement: rule.Enforcement,
		// A set in the API: the order of a user's list must not make another module.
		Conditions: slices.Sorted(slices.Values(rule.Conditions)),
	}
	if rule.Filter != nil && !isEmpty(rule.Filter.LabelSelector) {
		found.Filter = rule.Filter.LabelSelector
	}
	if rule.LabelCheck != nil {
		found.Requires = rule.LabelCheck.Requires
	}
	if rule.AvailablePolicy != nil {
		found.MaxUnavailable = boundOf(rule.AvailablePolicy.MaxUnavailableValue)
		found.MinAvailable = boundOf(rule.AvailablePolicy.MinAvailableValue)
	}
	if rule.Webhook != nil {
		found.FailurePolicy = rule.Webhook.FailurePolicy
	}
	return found
}

// isEmpty reports whether a selector matches everything. An unset selector is empty.
func isEmpty(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}

// boundOf returns a valid value as a bound; nil for an unset one.
func boundOf(value *intstr.IntOrString) *bound {
	if value == nil {
		return nil
	}
	if percent, ok := percentOf(*value); ok {
		return &bound{Percent: &percent}
	}
	count := value.IntValue()
	return &bound{Count: &count}
}

// percentOf parses "25%", and only that: a whole number and a percent sign.
func percentOf(value intstr.IntOrString) (int, bool) {
	digits, found := strings.CutSuffix(value.StrVal, "%")
	if value.Type != intstr.String || !found || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	percent, err := strconv.Atoi(digits)
	return percent, err == nil
}

// source renders the module. Strings of users get into it only through a quoting encoder, so no
// name or label value can end a literal or a comment.
func source(module Module, values parameters) (string, error) {
	document, err := literal(values)
	if err != nil {
		return "", err
	}
	library, arguments := Library(module.Kind), ""
	call := library + ".decision(input, parameters)"
	if module.Custom != nil {
		if arguments, err = argumentsOf(*module.Custom); err != nil {
			return "", err
		}
		call = fmt.Sprintf("answer if {\n\tanswer := %s.decision(input, parameters, %q) with input.parameters as arguments\n}",
			library, module.Custom.Entry)
	}
	// A name in a comment is quoted as ASCII: a comment ends at any line break.
	return fmt.Sprintf(`# Rule %s of PodTransitionRule %s in namespace %s.

# METADATA
# description: A rule of kind %s, compiled. Edit the PodTransitionRule, not this module.
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
		strconv.QuoteToASCII(module.ID.Object.Name),
		strconv.QuoteToASCII(module.ID.Object.Namespace),
		module.Kind, module.Package, library, document, arguments, call), nil
}

// argumentsOf returns the part of the source that passes the parameters to the user's module.
func argumentsOf(custom Custom) (string, error) {
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
// last one too.
func literal(value any) (string, error) {
	buffer := bytes.Buffer{}
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("encoding parameters: %w", err)
	}
	// Strings have no raw line break in JSON, so the last byte of a line is never inside one.
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
