package command

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
)

// TakeFiles has a verb read files, which are its arguments or values of the flag --filename, as those of kubectl. what describes
// them in the help. run gets at least one, of which - is standard input.
func TakeFiles(verb *cobra.Command, what string, run func(ctx context.Context, paths []string) error) {
	var flagged []string
	verb.Flags().StringArrayVarP(&flagged, "filename", "f", nil, what+"; the same as an argument")
	verb.Args = func(_ *cobra.Command, arguments []string) error {
		if len(arguments)+len(flagged) == 0 {
			return errors.New("no file is given, as an argument or with -f")
		}
		return nil
	}
	verb.RunE = func(verb *cobra.Command, arguments []string) error {
		return run(verb.Context(), slices.Concat(arguments, flagged))
	}
}
