// Package text prepares text from outside of PodOps, such as messages of webhook services, for
// terminals, logs, events and status.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis marks text that was cut.
const ellipsis = "..."

// Line returns text as one printable line of at most limit bytes of UTF-8. Each white space becomes
// a space, bytes that are not UTF-8 become U+FFFD, and every other character that does not print is
// escaped as Go writes it: control characters (\x1b), and format characters such as the overrides of
// writing direction (\u202e), which make a line look like another line. Text that does not fit ends
// in "...", and neither a character nor an escape is cut in two. The limit must be at least 3.
func Line(text string, limit int) string {
	var line strings.Builder
	fits := 0 // the longest beginning of line that fits before the ellipsis
	for _, char := range text {
		printed := printable(char)
		if line.Len()+len(printed) > limit {
			return line.String()[:fits] + ellipsis
		}
		line.WriteString(printed)
		if line.Len() <= limit-len(ellipsis) {
			fits = line.Len()
		}
	}
	return line.String()
}

// Cut returns at most limit bytes of a text. A text that does not fit is cut between two characters
// and ends in "...". The limit must be at least 3.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// printable returns the form of a character in Line.
func printable(char rune) string {
	switch {
	case unicode.IsSpace(char):
		return " "
	case unicode.IsPrint(char), char == utf8.RuneError:
		return string(char)
	case char < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, char)
	case char <= 0xffff:
		return fmt.Sprintf(`\u%04x`, char)
	default:
		return fmt.Sprintf(`\U%08x`, char)
	}
}

// Prefix returns at most limit bytes of a text, cut between two characters, as valid UTF-8. It adds no ellipsis.
func Prefix(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// Wrap returns text in lines of at most width characters, each with its newline: the first after first, the others after rest. Words are
// not broken.
func Wrap(first, rest, text string, width int) string {
	var lines strings.Builder
	line, used, empty := first, utf8.RuneCountInString(first), true
	for _, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		if !empty && used+1+size > width {
			lines.WriteString(strings.TrimRight(line, " ") + "\n")
			line, used, empty = rest, utf8.RuneCountInString(rest), true
		}
		if !empty {
			line, used = line+" ", used+1
		}
		line, used, empty = line+word, used+size, false
	}
	lines.WriteString(strings.TrimRight(line, " ") + "\n")
	return lines.String()
}

// Count returns a number of things, such as "1 error" and "2 errors".
func Count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
