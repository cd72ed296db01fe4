// Package root assembles the verbs of the plugin.
package root

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/approval"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/dashboard"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/deletion"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/doctor"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/drain"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/explain"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/freeze"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/get"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/install"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/timeline"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/uninstall"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/unstick"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/version"
)

// Run runs the plugin with arguments, and returns its exit code.
func Run(ctx context.Context, arguments []string, streams genericiooptions.IOStreams) int {
	var out *output
	if _, _, terminal := command.NewEnvironment(streams).Terminal(); !terminal {
		out = &output{to: streams.Out}
		streams.Out = out
	}
	root := Command(command.NewEnvironment(streams))
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	if out != nil && out.err != nil && command.ExitCode(err) != command.ExitFailed {
		err = fmt.Errorf("writing the output: %w", out.err)
	}
	if text := message(err); text != "" {
		_, _ = fmt.Fprintln(streams.ErrOut, text)
	}
	return command.ExitCode(err)
}

// output is the standard output of a verb, and keeps its first error: a verb whose output is lost has failed.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.to.Write(text)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

func message(err error) string {
	if err == nil || err.Error() == "" {
		return ""
	}
	if command.ExitCode(err) == command.ExitFindings {
		return err.Error()
	}
	return "error: " + err.Error()
}

// Command returns the plugin with all its verbs. Its name is the name of the binary with a space, as
// kubectl runs plugins.
func Command(env *command.Environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-podops",
		Short: "Show, explain, test and repair the operations of PodOps on pods",
		Long: `Show, explain, test and repair the operations of PodOps on pods.

Exit codes: 0 the command succeeded; 1 it failed (wrong arguments, no file, no API server,
no rights); 2 it succeeded and found a failed test, an invalid rule, a misconfiguration or a
verdict that differs.`,
		// The name is that of the binary, for which the scripts of completion are; usage lines show "kubectl podops".
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl podops"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.ErrOut)
	root.AddGroup(groups()...)
	root.SetFlagErrorFunc(withHelp)
	for group, verbs := range verbs(env) {
		for _, verb := range verbs {
			check := verb.Args
			verb.Args = func(cmd *cobra.Command, arguments []string) error { return withHelp(cmd, check(cmd, arguments)) }
			verb.GroupID = group
			root.AddCommand(verb)
		}
	}
	root.AddCommand(version.Command(env))
	return root
}

// withHelp adds the command that prints the help of a verb to an error of its arguments.
func withHelp(verb *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; see %s --help", err, verb.CommandPath())
}

// The groups of verbs by the question that they answer.
const (
	groupSee    = "see"
	groupRemove = "remove"
	groupTest   = "test"
	groupDecide = "decide"
	groupMend   = "mend"
)

func groups() []*cobra.Group {
	return []*cobra.Group{
		{ID: groupSee, Title: "Show the state:"},
		{ID: groupRemove, Title: "Remove pods as their rules permit it:"},
		{ID: groupTest, Title: "Test rules, offline or against live pods:"},
		{ID: groupDecide, Title: "Decide about revisions, and hold operations:"},
		{ID: groupMend, Title: "Find and repair:"},
	}
}

// verbs returns the verbs by group.
func verbs(env *command.Environment) map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		groupSee:    {explain.Command(env), get.Command(env), timeline.Command(env), dashboard.Command(env)},
		groupRemove: {deletion.Command(env), drain.Command(env)},
		groupTest:   testVerbs(env),
		groupDecide: {approval.List(env), approval.Approve(env), approval.Deny(env), freeze.Command(env), freeze.Thaw(env)},
		groupMend:   {doctor.Command(env), install.Command(env), uninstall.Command(env), unstick.Command(env)},
	}
}
