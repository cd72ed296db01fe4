// Package get implements kubectl podops get.
package get

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/podops-dev/podops/pkg/view/rolloutview"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// verb is one run of get.
type verb struct {
	env       *command.Environment
	flags     cluster.Flags
	target    cluster.Target
	output    string
	watch     bool
	untilDone bool
}

// Command returns the verb get.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{env: env}
	get := &cobra.Command{
		Use:   "get (deploy/NAME | sts/NAME | ds/NAME | rs/NAME | ptr/NAME | pod/NAME)",
		Short: "Show a workload and its pods: phases, rules, budgets and traffic",
		Long: `Show a workload and its pods: the phase of each pod, the rules that withhold pods with
the reason, the budgets in use, and whether load balancers send traffic.

Each pod has a bar of five blocks, for PreCheck, Preparing, Operating, PostCheck and
Completing; blocks of phases that are over or in progress are filled. The column after the age is
the traffic of the pod: on, off, or how many of its load balancers send traffic.

With --watch the view is drawn again on a terminal whenever an object changes; q or
Ctrl-C ends it. Elsewhere, such as in a pipe, each phase of a pod is one line: time, pod,
phases and reason; with -o json it is one JSON object per line. With --until-done the watch
ends when every pod is available and of the current revision.

Objects that you may not read are left out, and a note names them. NO_COLOR in the
environment switches colors off.`,
		Example: `  # A Deployment in the namespace shop
  kubectl podops get deploy/web -n shop

  # Watch a rollout until it is complete
  kubectl podops get deploy/web --watch --until-done

  # Which pods are withheld, and by which rule
  kubectl podops get deploy/web -o json |
    jq -r '.revisions[].pods[] | select(.withheld) | [.name, .withheld.rule] | @tsv'

  # All StatefulSets with a label
  kubectl podops get sts -l team=data`,
		Args: cobra.ArbitraryArgs, // cluster.ParseTarget checks them
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if err := v.complete(arguments); err != nil {
				return err
			}
			if v.watch {
				return v.follow(cmd.Context())
			}
			return v.once(cmd.Context())
		},
	}
	get.Flags().BoolVarP(&v.watch, "watch", "w", false, "draw the view again after changes; print one line per change where the output is no terminal")
	get.Flags().BoolVar(&v.untilDone, "until-done", false, "with --watch: end when the rollout is complete")
	get.Flags().StringVarP(&v.output, "output", "o", "", "json, yaml, or wide (lines are not cut)")
	return v.flags.Add(env, get, cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet, cluster.KindReplicaSet,
		cluster.KindRule, cluster.KindPod)
}

// complete checks arguments and flags.
func (v *verb) complete(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("which object? For instance: deploy/NAME, ptr/NAME, or deploy for all Deployments")
	}
	target, err := cluster.ParseTarget(arguments, v.flags.Selector)
	if err != nil {
		return err
	}
	v.target = target
	switch v.output {
	case "", "wide", "json", "yaml":
	default:
		return fmt.Errorf("-o %s: it must be json, yaml or wide", v.output)
	}
	switch {
	case v.untilDone && !v.watch:
		return errors.New("--until-done needs --watch")
	case v.watch && (target.Name == "" || v.flags.AllNamespaces):
		return errors.New("--watch needs one object, such as deploy/NAME")
	case target.Name != "" && v.flags.AllNamespaces:
		return fmt.Errorf("a name and --all-namespaces: %s", target)
	case v.watch && v.output == "yaml":
		return errors.New("--watch prints text or, with -o json, one JSON object per line")
	}
	return nil
}

// once prints the present state.
func (v *verb) once(ctx context.Context) error {
	client, err := v.env.Client(ctx)
	if err != nil {
		return err
	}
	reader := cluster.Reader{Reader: client, ManagerNamespace: v.flags.ManagerNamespace}
	namespaces, err := v.flags.Namespaces(ctx, v.env, client)
	if err != nil {
		return err
	}
	views := []rolloutview.View{}
	for _, namespace := range namespaces {
		snapshot, err := reader.Snapshot(ctx, namespace)
		if err != nil {
			return err
		}
		for _, object := range cluster.Objects(snapshot, v.target) {
			views = append(views, rolloutview.Of(snapshot, object, v.env.Now()))
		}
		if v.target.Name != "" && len(views) == 0 {
			return cluster.NotFound(snapshot, v.target)
		}
	}
	return v.print(views)
}

func (v *verb) print(views []rolloutview.View) error {
	if v.output == "json" || v.output == "yaml" {
		return printObjects(v.env.Out, v.output, views, v.target.Name != "" && len(views) == 1)
	}
	if len(views) == 0 {
		_, err := fmt.Fprintln(v.env.ErrOut, "No objects found.")
		return err
	}
	width := v.width()
	for i, view := range views {
		if i > 0 {
			if _, err := fmt.Fprintln(v.env.Out); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(v.env.Out, text(view.Frame(width, 0), v.env.Colors())); err != nil {
			return err
		}
	}
	return nil
}

// unlimited is a width in which no line is cut.
const unlimited = 2000

// width returns the width of a frame: the width of a terminal; otherwise no limit, because another
// program reads the lines.
func (v *verb) width() int {
	width, _, terminal := v.env.Terminal()
	if !terminal || width <= 0 || v.output == "wide" {
		return unlimited
	}
	return width
}

func text(frame rolloutview.Frame, colors bool) string {
	if colors {
		return frame.Colored()
	}
	return frame.Text()
}

// drawInterval is the least time between two frames or two sets of changes: changes in between are shown
// together.
const drawInterval = 100 * time.Millisecond
