package root_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/root"
)

// full is a device without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestLostOutputIsAFailure matters because the exit code 0 means that the output was written.
func TestLostOutputIsAFailure(t *testing.T) {
	rule := strings.NewReader(`
apiVersion: apps.kusionstack.io/v1alpha1
kind: PodTransitionRule
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  rules:
  - {name: availability, availablePolicy: {maxUnavailableValue: 1}}
`)
	var messages strings.Builder
	code := root.Run(t.Context(), []string{"render", "-f", "-"}, genericiooptions.IOStreams{In: rule, Out: full{}, ErrOut: &messages})
	if code != command.ExitFailed || !strings.Contains(messages.String(), "no space left on device") {
		t.Errorf("exit code %d, want 1: %s", code, messages.String())
	}
}
