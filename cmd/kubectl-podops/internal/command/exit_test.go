package command_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

func TestExitCode(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"done":             {want: command.ExitDone},
		"failed":           {err: errors.New("no such file"), want: command.ExitFailed},
		"findings":         {err: &command.Findings{Summary: "2 tests failed"}, want: command.ExitFindings},
		"wrapped findings": {err: fmt.Errorf("testing: %w", &command.Findings{}), want: command.ExitFindings},
	} {
		t.Run(name, func(t *testing.T) {
			if got := command.ExitCode(test.err); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
