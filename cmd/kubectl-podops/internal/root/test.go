package root

import (
	"github.com/spf13/cobra"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/eval"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/policytest"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/render"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/replay"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/verify"
)

// testVerbs returns the verbs that test rules.
func testVerbs(env *command.Environment) []*cobra.Command {
	return []*cobra.Command{render.Command(env), eval.Command(env), policytest.Command(env), replay.Command(env), verify.Command(env)}
}
