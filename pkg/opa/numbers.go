package opa

import (
	"strconv"
	"strings"
)

// Bounds of numbers; no rule needs larger ones. A number with an exponent of a hundred million is
// ten bytes in a module, and takes 40 MB and seconds as soon as it is rounded.
const (
	maxDigits   = 400
	maxExponent = 400
)

// isPlain reports whether the text of a number is within the bounds.
func isPlain(text string) bool {
	if len(text) > maxDigits {
		return false
	}
	_, exponent, found := strings.Cut(strings.ToLower(text), "e")
	if !found {
		return true
	}
	value, err := strconv.Atoi(exponent)
	return err == nil && -maxExponent <= value && value <= maxExponent
}

// shortened returns the beginning of a text, for a message.
func shortened(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
