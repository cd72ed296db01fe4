package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

func TestWrap(t *testing.T) {
	const word = "größer"
	if got, want := text.Wrap("-> ", "   ", word+" "+word+"  "+word, 16), "-> "+word+" "+word+"\n   "+word+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := text.Wrap("", "  ", word+" "+word, 3), word+"\n  "+word+"\n"; got != want {
		t.Errorf("words that are too long: got %q, want %q", got, want)
	}
}

func TestCount(t *testing.T) {
	for number, want := range map[int]string{0: "0 errors", 1: "1 error", 2: "2 errors"} {
		if got := text.Count(number, "error"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"plain text stays":                  {"db-1 is the leader", 64, "db-1 is the leader"},
		"letters of other scripts stay":     {"größer, 大, שלום", 64, "größer, 大, שלום"},
		"lines become one":                  {"a\r\nb\tc\u2028d\u0085e", 64, "a  b c d e"},
		"terminal control is escaped":       {"\x1b[31mred\x07", 64, `\x1b[31mred\x07`},
		"C1 control is escaped":             {"\u009b31m", 64, `\u009b31m`},
		"an override of direction":          {"ok\u202eevil", 64, `ok\u202eevil`},
		"isolates of direction":             {"\u2066a\u2069", 64, `\u2066a\u2069`},
		"a mark of direction":               {"\u200fa\u061c", 64, `\u200fa\u061c`},
		"tags beyond the basic plane":       {"\U000e0041", 64, `\U000e0041`},
		"a byte order mark and no space":    {"\ufeffa\u200bb", 64, `\ufeffa\u200bb`},
		"bytes that are no UTF-8":           {"a\xffb", 64, "a\ufffdb"},
		"as long as the limit":              {"12345", 5, "12345"},
		"longer than the limit":             {"123456", 5, "12..."},
		"no character is cut in two":        {"1ßßß", 6, "1ß..."},
		"no escape is cut in two":           {"123\u202e4567", 10, "123..."},
		"a limit that an escape just fills": {"1234\u202e", 10, `1234\u202e`},
		"a limit for the ellipsis only":     {"1234", 3, "..."},
		"an escape longer than the limit":   {"\u202e", 5, "..."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text.Line(tc.text, tc.limit); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestLineIsAlwaysPrintable shows that any text becomes one bounded line of printable UTF-8, which
// does not change when it is prepared again.
func TestLineIsAlwaysPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(3, 40).Draw(t, "limit")
		from := string(rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "bytes")) + rapid.StringN(0, 40, -1).Draw(t, "text")
		line := text.Line(from, limit)
		if len(line) > limit || !utf8.ValidString(line) {
			t.Fatalf("%q has %d bytes, want valid UTF-8 of at most %d", line, len(line), limit)
		}
		if at := strings.IndexFunc(line, func(char rune) bool { return !unicode.IsPrint(char) && char != utf8.RuneError }); at >= 0 {
			t.Fatalf("%q does not print at byte %d", line, at)
		}
		if again := text.Line(line, limit); again != line {
			t.Fatalf("prepared again, %q is %q", line, again)
		}
	})
}

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"as long as the limit":          {"12345", 5, "12345"},
		"longer than the limit":         {"123456", 5, "12..."},
		"no character is cut in two":    {"1ßßß", 5, "1..."},
		"a limit of the ellipsis alone": {"1234", 3, "..."},
		"nothing else is changed":       {"a\nb\x1b", 5, "a\nb\x1b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text.Cut(tc.text, tc.limit); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPrefix(t *testing.T) {
	for _, tc := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly", 7, "exactly"},
		{"longer", 4, "long"},
		{"größer", 3, "gr"}, // ö has two bytes
		{"", 0, ""},
	} {
		if got := text.Prefix(tc.text, tc.limit); got != tc.want {
			t.Errorf("%q cut to %d bytes: got %q, want %q", tc.text, tc.limit, got, tc.want)
		}
	}
}
