// Package explain implements kubectl podops explain.
package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/explain"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// Command returns the verb explain.
func Command(env *command.Environment) *cobra.Command {
	var flags cluster.Flags
	output := "text"
	verb := &cobra.Command{
		Use:   "explain [pod/NAME | deploy/NAME | sts/NAME | ds/NAME | rs/NAME | ptr/NAME]",
		Short: "Explain why a pod, a workload or a rule waits, with remedies",
		Long: `Explain why a pod, a workload or a rule waits, with remedies.

The answer lists the reasons, the weightiest first: the rule with its numbers, the pods that take the
slots, finalizers that are left or missing with their owners, times, the next check, and commands
that help. Reasons have the text of events and status. Each names its section of docs/explain.md.

Without a name, all waiting pods are explained; with -A, the waiting pods of all namespaces with
pods under PodOps. Objects that may not be read are named, and are no error.`,
		Example: `  # Why does this pod wait?
  kubectl podops explain pod/web-5d9c-x7k2p

  # What does the rollout of a Deployment wait for? Its pods are counted by their first reason.
  kubectl podops explain deploy/web -n shop

  # Is this rule in order, and which pods does it hold?
  kubectl podops explain ptr/web

  # All pods of an application that wait, as JSON.
  kubectl podops explain -l app=web -o json`,
		Args: cobra.ArbitraryArgs, // cluster.ParseTarget checks them
	}
	flags.Add(env, verb, cluster.KindPod, cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet,
		cluster.KindReplicaSet, cluster.KindRule)
	verb.Flags().StringVarP(&output, "output", "o", output, "text, json or yaml")
	verb.RunE = func(verb *cobra.Command, arguments []string) error {
		if !slices.Contains([]string{"text", "json", "yaml"}, output) {
			return fmt.Errorf("--output is %q, want text, json or yaml", output)
		}
		target, err := cluster.ParseTarget(arguments, flags.Selector)
		if err != nil {
			return err
		}
		explanations, err := run(verb.Context(), env, flags, target)
		if err != nil {
			return err
		}
		return write(env, explanations, output, target.Name != "")
	}
	_ = verb.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return verb
}

// run explains a target in each namespace.
func run(ctx context.Context, env *command.Environment, flags cluster.Flags, target cluster.Target) ([]explain.Explanation, error) {
	if flags.AllNamespaces && target.Name != "" {
		return nil, fmt.Errorf("a name and --all-namespaces: %s", target)
	}
	client, err := env.Client(ctx)
	if err != nil {
		return nil, err
	}
	namespaces, err := flags.Namespaces(ctx, env, client)
	if err != nil {
		return nil, err
	}
	reader := cluster.Reader{Reader: client, ManagerNamespace: flags.ManagerNamespace}
	var explanations []explain.Explanation
	for _, namespace := range namespaces {
		snapshot, err := reader.Snapshot(ctx, namespace)
		if err != nil {
			return nil, err
		}
		found := explained(snapshot, target, env.Now())
		if target.Name != "" && len(found) == 0 {
			return nil, cluster.NotFound(snapshot, target)
		}
		explain.AddFindings(snapshot, found, env.Now())
		explanations = append(explanations, found...)
	}
	return explanations, nil
}

// explained returns the explanations of a target's objects. Of several pods, pods that wait for
// nothing are left out.
func explained(s *clusterstate.Snapshot, target cluster.Target, now time.Time) []explain.Explanation {
	var all []explain.Explanation
	fits := func(object metav1.Object) bool {
		if target.Name != "" {
			return object.GetName() == target.Name
		}
		return target.Selector.Matches(labels.Set(object.GetLabels()))
	}
	workload := func(object explain.Workload) {
		if fits(object) {
			all = append(all, explain.OfWorkload(s, object, now))
		}
	}
	switch target.Kind {
	case cluster.KindDeployment:
		forEach(s.Deployments, workload)
	case cluster.KindReplicaSet:
		forEach(s.ReplicaSets, workload)
	case cluster.KindStatefulSet:
		forEach(s.StatefulSets, workload)
	case cluster.KindDaemonSet:
		forEach(s.DaemonSets, workload)
	case cluster.KindRule:
		for _, object := range s.Rules {
			if fits(object) {
				all = append(all, explain.OfRule(s, object, now))
			}
		}
	default:
		for _, pod := range s.Pods {
			if fits(pod) && (target.Name != "" || waits(pod, s)) {
				all = append(all, explain.Pod(s, pod, now))
			}
		}
	}
	return all
}

func forEach[T explain.Workload](objects []T, do func(explain.Workload)) {
	for _, object := range objects {
		do(object)
	}
}

// waits reports whether a pod under PodOps waits for a rule, its traffic or an operation.
func waits(pod *corev1.Pod, s *clusterstate.Snapshot) bool {
	switch s.State(pod).Phase {
	case podstate.PhaseAvailable, podstate.PhaseNotControlled, podstate.PhaseFinished:
		return false
	default:
		return true
	}
}

// write prints explanations. One object that was named is an object of JSON, several are an array.
func write(env *command.Environment, explanations []explain.Explanation, output string, one bool) error {
	if output == "text" {
		if len(explanations) == 0 {
			_, err := fmt.Fprintln(env.Out, "No pod waits.")
			return err
		}
		return explain.Write(env.Out, explanations, env.Now(), env.Columns())
	}
	var value any = append([]explain.Explanation{}, explanations...)
	if one {
		value = explanations[0]
	}
	encode := func(value any) ([]byte, error) { return json.MarshalIndent(value, "", "  ") }
	if output == "yaml" {
		encode = yaml.Marshal
	}
	text, err := encode(value)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	_, err = fmt.Fprintln(env.Out, strings.TrimRight(string(text), "\n"))
	return err
}
