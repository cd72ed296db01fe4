package rolloutview

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width returns a text's number of terminal columns: two for wide characters of East Asian
// scripts, zero for marks that combine with the character before them.
func Width(text string) int {
	columns := 0
	for _, char := range text {
		columns += runeColumns(char)
	}
	return columns
}

func runeColumns(char rune) int {
	if char < 0x300 { // Latin: most of all text.
		return 1
	}
	if unicode.In(char, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(char).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// cutText returns the beginning of a text that fits into so many columns, without spaces at its end.
func cutText(text string, columns int) string {
	for at, char := range text {
		if columns -= runeColumns(char); columns < 0 {
			return strings.TrimRight(text[:at], " ")
		}
	}
	return text
}

// cutLeft shortens a name to so many columns, with an ellipsis in place of its beginning: the names of the
// pods in a workload differ at the end.
func cutLeft(name string, columns int) string {
	letters := []rune(name)
	if len(letters) <= columns {
		return name
	}
	return "…" + string(letters[len(letters)-max(0, columns-1):])
}

// pad returns a text with spaces up to so many columns.
func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-Width(text)))
}

// wrap splits a text at spaces into at most so many lines of at most so many columns; the last line has
// the rest of the text, of any length.
func wrap(text string, columns, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(lines) < most-1 && Width(line)+1+Width(word) > columns:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
