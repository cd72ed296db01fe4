package approval

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/podops-dev/podops/pkg/policy"
)

// Limits of strings in status. The API server counts characters and refuses the whole status when
// one is too long, so everything that comes from a service is held to bytes here.
const (
	maxReasonBytes = 63
	maxTaskIDBytes = 256
)

// shortened makes a message of a service fit to be shown.
func shortened(text string) string { return shortenedTo(policy.MaxMessageBytes, text) }

// shortenedTo cuts a text between characters, so that it stays UTF-8, and shows that it did.
// Control characters become spaces: they would reach terminals.
func shortenedTo(limit int, text string) string {
	const ellipsis = "..."
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
