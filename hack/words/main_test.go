package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIn(t *testing.T) {
	list, err := parse("# a comment\n\nwidget|gizmo => a name\nas a rule => usually\n")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"Widget is there":                         {"Widget"},
		"func isWidgetThere()":                    {"Widget"},
		"asked_by_gizmo":                          {"gizmo"},
		"it is, as a\trule, so":                   {"as a\trule"},
		"the rule, as a ruler":                    nil,
		"the field `widget` is kept":              nil,
		"Type string `json:\"widget\"`; --widget": nil,
		"gizmo and gizmo":                         {"gizmo", "gizmo"},
	} {
		var got []string
		for _, hit := range list.in([]byte(text)) {
			got = append(got, hit.text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestParseReportsTheLine(t *testing.T) {
	for list, want := range map[string]string{
		"widget":           "words.txt:1",
		"# x\n( => a name": "words.txt:2",
	} {
		if _, err := parse(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", list, err, want)
		}
	}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(file, []byte("package a\n\n// a is told four words.\nvar a = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	found, err := run(&out, false, []string{file})
	if err != nil || found != 1 || !strings.Contains(out.String(), "a.go:3: \"told\"") {
		t.Errorf("got %d, %v:\n%s", found, err, &out)
	}
	out.Reset()
	if _, err := run(&out, true, []string{file}); err != nil || !strings.Contains(out.String(), "200.00  in 5 words") {
		t.Errorf("got %v:\n%s", err, &out)
	}
}
