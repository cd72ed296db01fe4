package explain_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/view/explain"
)

// TestEverySituationIsDocumented matters because each reason prints the anchor of its section.
func TestEverySituationIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, known []string
	for _, heading := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, heading[1])
	}
	for _, situation := range explain.Situations() {
		known = append(known, string(situation))
	}
	slices.Sort(documented)
	slices.Sort(known)
	if diff := cmp.Diff(known, documented); diff != "" {
		t.Errorf("situations and sections of docs/explain.md (-situations +sections):\n%s", diff)
	}
}
