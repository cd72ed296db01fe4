// Package doctor implements kubectl podops doctor.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/installation"
	"github.com/podops-dev/podops/pkg/view/doctor"
)

// options are the flags of the verb.
type options struct {
	all              bool
	managerNamespace string
	components       []string
	output           string
	failOn           string
	long             time.Duration
}

// Command returns the verb doctor.
func Command(env *command.Environment) *cobra.Command {
	var flags options
	verb := &cobra.Command{
		Use:   "doctor",
		Short: "Find misconfigurations of PodOps, of rules and of pods",
		Long: `Find misconfigurations of the installation, and of the rules, budgets, adapters and pods
of a namespace (-n) or of all namespaces (-A).

Each finding has a command that helps, and its section in docs/doctor.md. A check that may
not read its objects is listed as not checked. The webhooks are called with a dry run that
creates nothing.

Exit codes: 0 no finding; 2 a finding of the level of --fail-on, or above; 1 it could not check.`,
		Example: `  # The installation, and everything in the namespace of the context
  kubectl podops doctor

  # All namespaces, for a program; warnings fail, too
  kubectl podops doctor -A -o json --fail-on=warning`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, env, flags) },
	}
	set := verb.Flags()
	set.BoolVarP(&flags.all, "all-namespaces", "A", false, "check rules and pods of all namespaces")
	set.StringVar(&flags.managerNamespace, "podops-namespace", cluster.DefaultManagerNamespace, "namespace of the manager")
	set.StringSliceVar(&flags.components, "components", nil, "components of config/components that the installation has")
	set.StringVarP(&flags.output, "output", "o", "text", "output format: text, json or yaml")
	set.StringVar(&flags.failOn, "fail-on", string(doctor.LevelError), "lowest level that ends with exit code 2: error, warning, or never")
	set.DurationVar(&flags.long, "long", doctor.DefaultLong, "time that a pod may stay in a phase before it is a finding")
	return env.Cluster(verb)
}

func run(cmd *cobra.Command, env *command.Environment, flags options) error {
	if err := flags.validate(); err != nil {
		return err
	}
	namespace := ""
	if !flags.all {
		var err error
		if namespace, err = env.Namespace(); err != nil {
			return err
		}
	}
	objects, err := installation.Build(installation.Options{Namespace: flags.managerNamespace, Components: flags.components})
	if err != nil {
		return err
	}
	expected, err := installation.Compared(objects)
	if err != nil {
		return err
	}
	c, err := connect(cmd.Context(), env)
	if err != nil {
		return err
	}
	r := reader{client: c, namespace: namespace, version: env.Kubernetes, progress: func(source doctor.Source) {
		if _, _, terminal := env.Terminal(); terminal && flags.output == "text" {
			_, _ = fmt.Fprintf(env.ErrOut, "reading %s\n", source)
		}
	}}
	snapshot, err := read(cmd.Context(), r, expected, flags.managerNamespace)
	if err != nil {
		return err
	}
	report := doctor.Inspect(snapshot, doctor.Options{Long: flags.long}, env.Now())
	if err := write(env.Out, report, flags.output, env.Columns()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	// Every user may read the version of Kubernetes: that alone is no result, unless it is a finding.
	if report.Checks <= 1 && len(report.NotChecked) > 0 && len(report.Findings) == 0 {
		return errors.New("no check could read its objects")
	}
	if flags.fails(report) {
		return &command.Findings{Summary: "doctor: " + report.Summary()}
	}
	return nil
}

func (o options) validate() error {
	switch o.output {
	case "text", "json", "yaml":
	default:
		return fmt.Errorf("--output %q: want text, json or yaml", o.output)
	}
	switch o.failOn {
	case string(doctor.LevelError), string(doctor.LevelWarning), "never":
	default:
		return fmt.Errorf("--fail-on %q: want error, warning or never", o.failOn)
	}
	if o.long <= 0 {
		return fmt.Errorf("--long %s: want a positive duration", o.long)
	}
	return nil
}

// fails reports whether a report ends with the exit code of findings.
func (o options) fails(report doctor.Report) bool {
	switch o.failOn {
	case string(doctor.LevelError):
		return report.Count(doctor.LevelError) > 0
	case string(doctor.LevelWarning):
		return report.Count(doctor.LevelError)+report.Count(doctor.LevelWarning) > 0
	default:
		return false
	}
}

// connect returns a client that also knows CustomResourceDefinitions, if the API server answers.
func connect(ctx context.Context, env *command.Environment) (client.Client, error) {
	if err := env.Reach(ctx); err != nil {
		return nil, err
	}
	config, err := env.REST()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return c, nil
}

// Scheme returns the types of the plugin and CustomResourceDefinitions.
func Scheme() *runtime.Scheme {
	scheme := command.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}

// write writes a report in a format, and text in lines of at most width characters.
func write(out io.Writer, report doctor.Report, format string, width int) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	case "yaml":
		encoded, err := yaml.Marshal(report)
		if err != nil {
			return err
		}
		_, err = out.Write(encoded)
		return err
	default:
		_, err := io.WriteString(out, doctor.Text(report, width))
		return err
	}
}
