// Package version implements kubectl podops version.
package version

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
)

// Command returns the verb version.
func Command(env *command.Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin",
		Long:  "Print the version of the plugin, its commit, the version of Go, and the platform that it was\nbuilt for, in one line.",
		Example: `  kubectl podops version

  # Only the version.
  kubectl podops version | cut -d' ' -f2`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(env.Out, buildinfo.Read().Line("kubectl-podops"))
			return err
		},
	}
}
