package spec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// TestSplitReturnsWhatJoinWasGiven draws texts without the line that separates them.
func TestSplitReturnsWhatJoinWasGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.StringMatching(`((package rule|# podops|allow := true| )?\n){1,4}`)
		module := lines.Draw(t, "module")
		var parts []spec.Part
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z.-]{0,8}`), 0, 3, rapid.ID).Draw(t, "names") {
			parts = append(parts, spec.Part{File: "lib/" + name + ".rego", Source: lines.Draw(t, name)})
		}
		gotModule, gotParts := spec.Split(spec.Join(module, parts))
		if diff := cmp.Diff(parts, gotParts); gotModule != module || diff != "" {
			t.Errorf("module %q, want %q; parts (-want +got):\n%s", gotModule, module, diff)
		}
	})
}

func TestAModuleWithoutImportsIsItsOwnText(t *testing.T) {
	const module = "package rule\n\nallow if true"
	if joined := spec.Join(module, nil); joined != module {
		t.Errorf("got %q", joined)
	}
}
