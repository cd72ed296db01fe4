// Package version implements kubectl podops version.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// Command returns the verb version.
func Command(env *command.Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin",
		Long:  "Print the version of the plugin, of Go, and the platform that it was built for, in one line.",
		Example: `  kubectl podops version

  # Only the version.
  kubectl podops version | cut -d' ' -f2`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(env.Out, "kubectl-podops %s, %s, %s/%s\n", built(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// built returns the version that the Go toolchain recorded in the binary.
func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
