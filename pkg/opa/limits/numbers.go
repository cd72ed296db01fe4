package limits

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/podops-dev/podops/pkg/text"
)

// Bounds of numbers; no rule needs larger numbers. A number with an exponent of a hundred million
// is ten bytes in a module, and takes 40 MB and seconds as soon as it is rounded.
const (
	maxDigits   = 400
	maxExponent = 400
)

// maxShown bounds the part of a number that a message repeats.
const maxShown = 40

// CheckNumber returns an error if a number, as it is written, is out of bounds.
func CheckNumber(number string) error {
	_, exponent, found := strings.Cut(strings.ToLower(number), "e")
	value, err := 0, error(nil)
	if found {
		value, err = strconv.Atoi(exponent)
	}
	if len(number) <= maxDigits && err == nil && -maxExponent <= value && value <= maxExponent {
		return nil
	}
	return fmt.Errorf("%s is out of range: at most %d digits, and an exponent of at most %d",
		text.Cut(number, maxShown), maxDigits, maxExponent)
}
