package root_test

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/root"
)

// TestHelpOfEveryVerb checks --help, which with the reference pages is the documentation of a verb.
func TestHelpOfEveryVerb(t *testing.T) {
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
	for _, verb := range root.Command(command.NewEnvironment(streams)).Commands() {
		if verb.Name() == "completion" || verb.Name() == "help" {
			continue
		}
		t.Run(verb.Name(), func(t *testing.T) { checkHelp(t, verb) })
	}
}

func checkHelp(t *testing.T, verb *cobra.Command) {
	t.Helper()
	if verb.Short == "" || strings.HasSuffix(verb.Short, ".") {
		t.Errorf("Short is %q, want a phrase without a full stop", verb.Short)
	}
	if verb.Long == "" {
		t.Error("Long is empty")
	}
	if examples := strings.Count(verb.Example, "kubectl podops "+verb.Name()); examples < 2 {
		t.Errorf("%d examples, want at least 2", examples)
	}
	for _, line := range strings.Split(verb.Long+"\n"+verb.Example, "\n") {
		if len(line) > 110 || strings.TrimRight(line, " ") != line {
			t.Errorf("a line of the help is too long, or ends in a space: %q", line)
		}
	}
}
