package opa

import (
	"fmt"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Bounds of decisions by users' modules.
const (
	// maxOutputBytes bounds the decision as JSON.
	maxOutputBytes = 64 << 10

	// minRetryAfter prevents a module from being evaluated in a hot loop.
	minRetryAfter = time.Second

	// MaxRetryAfter bounds the delay after which a module is evaluated again; it is short enough for any clock.
	MaxRetryAfter = 24 * time.Hour

	// omittedDetails replaces details that are too large.
	omittedDetails = `{"omitted":"more than 512 bytes"}`
)

// requestKey is the key of the one request in the decision of a user's module.
const requestKey = "request"

// decodeCustom reads the decision of a user's module about one request, with its message, details
// and time of retry. Like decode it fails closed. Every part that the user chooses is read with a
// bound.
func decodeCustom(term *ast.Term) (rule.Verdict, error) {
	result, err := decode(term, []key{{name: requestKey, term: ast.StringTerm(requestKey)}}, parts{})
	if err != nil {
		return rule.Verdict{}, err
	}
	verdict := result.Verdicts[requestKey]
	if verdict.Code == rule.CodeUndefined {
		return verdict, nil
	}
	document, ok := term.Value.(ast.Object)
	if !ok {
		return rule.Verdict{}, fmt.Errorf("decoding decision: it is of type %s", ast.ValueName(term.Value))
	}
	explanation, err := field[ast.Object](document, "explanation")
	if err != nil {
		return rule.Verdict{}, fmt.Errorf("decoding decision: %w", err)
	}
	if verdict.Message, err = parseMessage(explanation); err != nil {
		return rule.Verdict{}, fmt.Errorf("decoding messages: %w", err)
	}
	if verdict.Details, err = parseDetails(explanation); err != nil {
		return rule.Verdict{}, fmt.Errorf("decoding details: %w", err)
	}
	if verdict.RetryAfter, err = parseRetryAfter(explanation); err != nil {
		return rule.Verdict{}, fmt.Errorf("decoding retry_after_seconds: %w", err)
	}
	return verdict, nil
}

// parseMessage joins the messages, as many as fit.
func parseMessage(explanation ast.Object) (string, error) {
	messages, err := field[*ast.Array](explanation, "messages")
	if err != nil {
		return "", err
	}
	joined := strings.Builder{}
	for i := 0; i < messages.Len() && joined.Len() <= rule.MaxMessageBytes; i++ {
		text, ok := messages.Elem(i).Value.(ast.String)
		if !ok {
			return "", fmt.Errorf("message %d is of type %s", i, ast.ValueName(messages.Elem(i).Value))
		}
		if i > 0 {
			joined.WriteString("; ")
		}
		joined.WriteString(string(text))
	}
	return boundedMessage(joined.String()), nil
}

// parseDetails returns the first of the details as a JSON object. A value of another type becomes the
// field "value" of an object.
func parseDetails(explanation ast.Object) (string, error) {
	details, err := field[*ast.Array](explanation, "details")
	if err != nil || details.Len() == 0 {
		return "", err
	}
	value := details.Elem(0).Value
	if _, ok := value.(ast.Object); !ok {
		value = ast.NewObject([2]*ast.Term{ast.StringTerm("value"), details.Elem(0)})
	}
	encoded, err := canonical(value, rule.MaxMessageBytes)
	if err != nil {
		return omittedDetails, nil //nolint:nilerr // details that are too large are not an error of the decision
	}
	return string(encoded), nil
}

// parseRetryAfter returns the shortest of the delays, within its bounds; 0 without a delay.
func parseRetryAfter(explanation ast.Object) (time.Duration, error) {
	times, err := field[*ast.Array](explanation, "retry_after_seconds")
	if err != nil || times.Len() == 0 {
		return 0, err
	}
	number, ok := times.Elem(0).Value.(ast.Number)
	if !ok {
		return 0, fmt.Errorf("it is of type %s", ast.ValueName(times.Elem(0).Value))
	}
	seconds, ok := number.Float64()
	if !ok || seconds >= MaxRetryAfter.Seconds() {
		return MaxRetryAfter, nil
	}
	return max(minRetryAfter, time.Duration(seconds*float64(time.Second))), nil
}

// boundedMessage returns a message of a user's module, or of its error, as one printable line: terminals and logs print it.
func boundedMessage(message string) string { return text.Line(message, rule.MaxMessageBytes) }
