package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// TestEveryPhaseHasAColor checks that the style sheet has a color for each phase.
func TestEveryPhaseHasAColor(t *testing.T) {
	styles, err := assets.ReadFile("assets/app.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range rolloutview.Phases() {
		for _, rule := range []string{
			fmt.Sprintf("[data-phase=%q] { background-color: var(--%s); }", phase, phase), fmt.Sprintf("--%s: light-dark(", phase),
		} {
			if !strings.Contains(string(styles), rule) {
				t.Errorf("the style sheet has no %s", rule)
			}
		}
	}
}
