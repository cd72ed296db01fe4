// Package golden compares outputs of tests with files.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Check fails a test if a text differs from a file. With the flag -update it writes the file first.
func Check(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s; -update rewrites it (-want +got):\n%s", file, diff)
	}
}

// CheckBlock fails a test if a text differs from the part of a file between two lines. With the flag -update it writes the part.
func CheckBlock(t testing.TB, file, begins, ends, got string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begins)
	want, after, complete := strings.Cut(rest, ends)
	if !found || !complete {
		t.Fatalf("%s has no part between %q and %q", file, begins, ends)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begins+got+ends+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("differs from %s; -update rewrites it (-want +got):\n%s", file, diff)
	}
}
