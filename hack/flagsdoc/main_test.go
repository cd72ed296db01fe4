package main

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPageHasTheFlagsOfTheManager(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "other") // Restores the variable, which page unsets.
	want, err := page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/flags.md is out of date, run make docs (-want +got):\n%s", diff)
	}
}

func TestPageShowsTypesDefaultsAndEscapes(t *testing.T) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.Duration("wait", 2*time.Second, "how long | <time>")
	flags.Int("workers", 10, "how many")
	flags.Bool("secure", true, "whether")
	flags.String("file", "", "a file")
	got, err := render(flags, []group{{"All", []string{"wait", "workers", "secure", "file"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "## All\n\n| Flag | Type | Default | Meaning |\n|---|---|---|---|\n" +
		"| `--wait` | duration | `2s` | how long \\| &lt;time> |\n" +
		"| `--workers` | number | `10` | how many |\n" +
		"| `--secure` | true or false | `true` | whether |\n" +
		"| `--file` | text |  | a file |\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("page:\n%s\nwant at its end:\n%s", got, want)
	}
}

func TestPageNamesTheFileToEditForFlagsWithoutAGroup(t *testing.T) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.Int("new", 0, "")
	_, err := render(flags, []group{{"All", []string{"gone"}}})
	for _, want := range []string{"--new is in no group", "--gone, which is no flag", "hack/flagsdoc/groups.go"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one with %q", err, want)
		}
	}
}
