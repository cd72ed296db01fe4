// Package replay implements kubectl podops replay.
package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

// verb is the verb with its flags.
type verb struct {
	*command.Environment
	with      []string
	namespace string
	output    string
}

// Command returns the verb replay.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{Environment: env}
	made := &cobra.Command{
		Use:   "replay FILE",
		Short: "Repeat the decisions of a decision log, also with changed rules",
		Long: `Repeat the decisions of a decision log (manager --decision-log), and compare. The log has the rules
as they were compiled, and the input of each decision, so it needs no cluster.

With --with, the rules of a file take the place of the rules of the same name in the log, and each
verdict of the changed rules that differs is printed. A rule of another kind or stage reads another
input, and is skipped.

Exit codes: 0 all verdicts are the same; 1 the log cannot be read; 2 some verdicts differ.`,
		Example: `  # Does this version give the same verdicts?
  kubectl podops replay decisions.jsonl

  # What would a changed rule have decided?
  kubectl podops replay decisions.jsonl --with rule.yaml -n shop`,
	}
	command.TakeFiles(made, "decision log; - is standard input", func(ctx context.Context, paths []string) error {
		if len(paths) > 1 {
			return errors.New("more than one decision log is given: join them, or replay one at a time")
		}
		return v.run(ctx, paths[0])
	})
	made.Flags().StringArrayVar(&v.with, "with", nil, "file or folder with changed PodTransitionRules, and the PodTransitionPolicies that they refer to")
	made.Flags().StringVarP(&v.namespace, "namespace", "n", "default", "namespace of objects without a namespace")
	made.Flags().StringVarP(&v.output, "output", "o", "", "format of the differences with --with: json; default text")
	return made
}

func (v *verb) run(ctx context.Context, path string) error {
	log := v.In
	if path != manifests.Stdin {
		file, err := os.Open(path) //nolint:gosec // The user of the command names the file.
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // the file was only read
		log = file
	}
	engine, err := v.Engine(opa.Options{})
	if err != nil {
		return err
	}
	if len(v.with) > 0 {
		return v.compare(ctx, engine, path, log)
	}
	report, err := decisionlog.Replay(ctx, engine, log)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, different := range report.Different {
		_, _ = fmt.Fprintf(v.Out, "line %d: rule %s: was %s, is %s", different.Line, different.Rule, different.Then, different.Now)
		if different.Err != nil {
			_, _ = fmt.Fprintf(v.Out, " %v", different.Err)
		}
		_, _ = fmt.Fprintln(v.Out)
	}
	_, _ = fmt.Fprintf(v.Out, "decisions: %d equal, %d different, %d skipped (masked, or failed then)\n",
		report.Equal, report.Differ, report.Skipped)
	if report.Differ > len(report.Different) {
		_, _ = fmt.Fprintf(v.Out, "the first %d differences are listed\n", len(report.Different))
	}
	if report.Unknown > 0 {
		_, _ = fmt.Fprintf(v.Out, "%d decisions were not replayed: their modules are not in the log before them. "+
			"After a rotation, replay both files: cat older newer | kubectl podops replay -\n", report.Unknown)
	}
	if report.Differ > 0 {
		return &command.Findings{Summary: "some decisions are different now"}
	}
	return nil
}

// compare prints the decisions that changed rules would have made.
func (v *verb) compare(ctx context.Context, engine *opa.Engine, path string, log io.Reader) error {
	with, err := v.modules(ctx, engine)
	if err != nil {
		return err
	}
	changes, err := decisionlog.Compare(ctx, engine, log, with)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch v.output {
	case "json":
		text, err := json.MarshalIndent(changes, "", "  ")
		if err != nil {
			return fmt.Errorf("printing the differences: %w", err)
		}
		_, _ = fmt.Fprintf(v.Out, "%s\n", text)
	case "":
		for _, change := range changes.Verdicts {
			about := "rule " + change.Rule
			if change.Pod != "" {
				about += ", pod " + change.Pod
			}
			_, _ = fmt.Fprintf(v.Out, "line %d: %s\n  was %s\n  is  %s\n", change.Line, about, change.Then, change.Now)
		}
		_, _ = fmt.Fprintf(v.Out, "decisions: %d same, %d changed, %d of other rules, %d skipped\n",
			changes.Same, changes.Changed, changes.Unrelated, changes.Skipped)
	default:
		return fmt.Errorf("--output: %q is not json", v.output)
	}
	if changes.Changed > 0 {
		return &command.Findings{}
	}
	return nil
}

// modules returns the changed rules by their names in the log.
func (v *verb) modules(ctx context.Context, engine *opa.Engine) (map[string]spec.Module, error) {
	documents, err := manifests.Read(v.In, command.Scheme(), v.with...)
	if err != nil {
		return nil, err
	}
	shared := imports.Policies{}
	for _, document := range documents {
		if policy, ok := document.Object.(*appsv1alpha1.PodTransitionPolicy); ok {
			shared[policy.Name] = policy
		}
	}
	modules := map[string]spec.Module{}
	for _, document := range documents {
		object, ok := document.Object.(*appsv1alpha1.PodTransitionRule)
		if !ok {
			continue
		}
		id := types.NamespacedName{Namespace: cmp.Or(object.Namespace, v.namespace), Name: object.Name}
		for _, entry := range object.Spec.Rules {
			module, err := evaluation.NewModule(ctx, engine, id, entry, shared)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", document.Place(), err)
			}
			modules[id.String()+"/"+entry.Name] = module
		}
	}
	return modules, nil
}
