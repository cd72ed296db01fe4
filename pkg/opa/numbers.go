package opa

import (
	"strconv"
	"strings"

	"github.com/podops-dev/podops/pkg/text"
)

// Bounds of numbers; no rule needs larger ones. A number with an exponent of a hundred million is
// ten bytes in a module, and takes 40 MB and seconds as soon as it is rounded.
const (
	maxDigits   = 400
	maxExponent = 400
)

// isPlain reports whether the text of a number is within the bounds.
func isPlain(number string) bool {
	if len(number) > maxDigits {
		return false
	}
	_, exponent, found := strings.Cut(strings.ToLower(number), "e")
	if !found {
		return true
	}
	value, err := strconv.Atoi(exponent)
	return err == nil && -maxExponent <= value && value <= maxExponent
}

// shortened returns the beginning of a text, for a message.
func shortened(number string) string { return text.Cut(number, 40) }
