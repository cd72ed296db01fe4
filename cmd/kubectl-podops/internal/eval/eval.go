// Package eval implements kubectl podops eval.
package eval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
	"github.com/podops-dev/podops/pkg/engine/opa"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/observation"
)

// verb is the verb with its flags.
type verb struct {
	*command.Environment
	files, pods           []string
	fromCluster           bool
	pod, selector         string
	operation, stage, now string
	answers               string
	trace, showInput      bool
	output                string
}

// Command returns the verb eval.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{Environment: env}
	made := &cobra.Command{
		Use:   "eval [-f FILE] [--pods FILE | --from-cluster]",
		Short: "Evaluate rules for pods, offline or of a cluster",
		Long: `Evaluate rules for pods, offline or of a cluster, with the policy engine of the manager, and print
for each pod whether it gets its permit, and the verdict of each rule. It changes nothing.

Rules come from -f, or else from the namespace in the cluster. Pods come from --pods, or else from
the namespace in the cluster. Files may also have the workloads, Nodes, Namespaces, PodDisruptionBudgets
and PodTransitionPolicies of the pods. Rules count the pods of the input that are under PodOps, as
the manager does. A pod of a file without a status counts as a pod that serves under PodOps.

Pods that wait for rules are evaluated as they wait. If none waits, or with --operation, every pod
is evaluated as though you requested the operation now, in the order of names; with --as and
--as-group, as though that user did. With --pod only this pod is evaluated, and the others count
for its rules.

The services of webhook rules are not called: --answers has their answers, a YAML file with the
list "answers" of {rule, pods, result, message}; result is Approved, Rejected, Processing or
Failed, and an answer without rule or pods is for all rules or pods.

The exit code is 0 for all verdicts.`,
		Example: `  # Would these pods be permitted to be deleted?
  kubectl podops eval -f rule.yaml --pods pods.yaml

  # A new rule for the live pods of a namespace
  kubectl podops eval -f rule.yaml --from-cluster -n shop

  # May another user begin a restart?
  kubectl podops eval -f rule.yaml --pods pods.yaml --operation restart --as joe --as-group sre

  # The input document of a live pod
  kubectl podops eval -n shop --pod cart-x --show-input

  # The steps of OPA for one pod
  kubectl podops eval -f rule.yaml --pods pods.yaml --pod cart-0 --trace`,
		Args: cobra.NoArgs,
		RunE: func(cobraCommand *cobra.Command, _ []string) error { return v.run(cobraCommand.Context()) },
	}
	flags := made.Flags()
	flags.StringArrayVarP(&v.files, "filename", "f", nil, "file or folder with PodTransitionRules and PodTransitionPolicies; - is standard input")
	flags.StringArrayVar(&v.pods, "pods", nil, "file or folder with pods, and the objects that they belong to; - is standard input")
	flags.BoolVar(&v.fromCluster, "from-cluster", false, "read the pods of the namespace from the cluster; the default without --pods")
	flags.StringVar(&v.pod, "pod", "", "name of the only pod to evaluate")
	flags.StringVarP(&v.selector, "selector", "l", "", "label selector of the pods to evaluate")
	flags.StringVar(&v.operation, "operation", "", "operation type that the pods wait for; default delete, unless they wait already")
	flags.StringVar(&v.stage, "stage", "", "stage in which they wait: PreCheck or PostCheck; default PreCheck")
	flags.StringVar(&v.now, "now", "", "time of the decision, such as 2026-03-01T12:00:00Z; default the present")
	flags.StringVar(&v.answers, "answers", "", "file with answers of the services of webhook rules")
	flags.BoolVar(&v.trace, "trace", false, "print the steps of OPA in the modules of users")
	flags.BoolVar(&v.showInput, "show-input", false, "print the input document of modules, and no verdicts")
	flags.StringVarP(&v.output, "output", "o", "", "format of the verdicts: json or yaml; default text")
	made.MarkFlagsMutuallyExclusive("pods", "from-cluster")
	return env.Cluster(made)
}

func (v *verb) run(ctx context.Context) error {
	objects, now, err := v.read(ctx)
	if err != nil {
		return err
	}
	if err := v.begin(ctx, &objects, now); err != nil {
		return err
	}
	if v.showInput {
		probe(&objects)
	}
	answers, err := v.readAnswers()
	if err != nil {
		return err
	}
	observed := observation.New()
	settings := opa.Options{}
	if v.trace || v.showInput {
		settings.Observe, settings.WholeInput = observed.Observe, v.showInput
	}
	engine, err := v.Engine(settings)
	if err != nil {
		return err
	}
	verdicts, err := offline.Evaluate(ctx, objects, offline.Options{Engine: engine, Now: now, Answers: answers, Prepared: observed.Prepared})
	if err != nil {
		return err
	}
	selected, err := v.selected(objects)
	if err != nil {
		return err
	}
	verdicts = slices.DeleteFunc(verdicts, func(verdict offline.Verdict) bool { return !selected(verdict.Namespace, verdict.Pod) })
	switch {
	case v.pod != "" && len(verdicts) == 0:
		return fmt.Errorf("there is no pod %q", v.pod)
	case v.showInput:
		return v.printInputs(observed, selected)
	}
	if err := v.print(verdicts); err != nil {
		return err
	}
	if v.trace {
		return v.printTraces(ctx, engine, observed, selected)
	}
	return nil
}

// time returns the time of the decision.
func (v *verb) time() (time.Time, error) {
	if v.now == "" {
		return v.Now(), nil
	}
	at, err := time.Parse(time.RFC3339Nano, v.now)
	if err != nil {
		return time.Time{}, fmt.Errorf("--now: %w", err)
	}
	return at, nil
}

// selected returns which pods are evaluated.
func (v *verb) selected(objects offline.Objects) (func(namespace, name string) bool, error) {
	selector, err := labels.Parse(v.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	matching := map[string]bool{}
	for _, pod := range objects.Pods {
		if (v.pod == "" || pod.Name == v.pod) && selector.Matches(labels.Set(pod.Labels)) {
			matching[pod.Namespace+"/"+pod.Name] = true
		}
	}
	return func(namespace, name string) bool { return matching[namespace+"/"+name] }, nil
}

// begin has the selected pods wait for the operation, unless some pod waits already.
func (v *verb) begin(ctx context.Context, objects *offline.Objects, now time.Time) error {
	selected, err := v.selected(*objects)
	if err != nil {
		return err
	}
	operation, err := v.operationAt(now)
	if err != nil {
		return err
	}
	explicit := v.operation != "" || v.stage != ""
	for _, pod := range objects.Pods {
		if !explicit && selected(pod.Namespace, pod.Name) && offline.Waits(pod) {
			return nil
		}
	}
	operation.Requester = rule.Requester{Method: string(deferreddelete.MethodLabel), Actor: string(deferreddelete.ActorClient)}
	if operation.Type == appsv1alpha1.DeleteOperationType {
		operation.Requester.Method = string(deferreddelete.MethodDelete)
	}
	if err := v.identify(ctx, &operation.Requester); err != nil {
		return err
	}
	return beginEach(objects, operation, selected)
}

// beginEach has the selected pods wait for an operation that begins at its time or a moment before, in the order of
// names.
func beginEach(objects *offline.Objects, operation offline.Operation, selected func(namespace, name string) bool) error {
	slices.SortStableFunc(objects.Pods, byName)
	now := operation.At
	for i, pod := range objects.Pods {
		if !selected(pod.Namespace, pod.Name) || !offline.MayBegin(pod) {
			continue
		}
		// The first began first: permits are given in this order.
		operation.At = now.Add(time.Duration(i-len(objects.Pods)) * time.Microsecond)
		waiting, err := offline.Begin(pod, operation)
		if err != nil {
			return err
		}
		objects.Pods[i] = waiting
	}
	return nil
}

// operationAt returns the operation that pods wait for.
func (v *verb) operationAt(now time.Time) (offline.Operation, error) {
	operation := offline.Operation{
		Type:  cmp.Or(v.operation, appsv1alpha1.DeleteOperationType),
		Stage: cmp.Or(appsv1alpha1.TransitionStage(v.stage), appsv1alpha1.StagePreCheck), At: now,
	}
	if operation.Stage != appsv1alpha1.StagePreCheck && operation.Stage != appsv1alpha1.StagePostCheck {
		return operation, fmt.Errorf("--stage: %q is neither PreCheck nor PostCheck", v.stage)
	}
	return operation, nil
}

// errNoInput is returned when no PodTransitionRule selects a pod whose input is to be shown.
var errNoInput = errors.New("no PodTransitionRule selects the pod in this stage: the input depends on its pods; give a PodTransitionRule with -f")

// printInputs prints the input of each module for each selected pod.
func (v *verb) printInputs(observed *observation.Log, selected func(namespace, name string) bool) error {
	shown := observed.Take(selected)
	if len(shown) == 0 {
		return errNoInput
	}
	for i, one := range shown {
		if len(shown) > 1 {
			if i > 0 {
				_, _ = fmt.Fprintln(v.Out)
			}
			_, _ = fmt.Fprintf(v.Out, "# input of %s for pod %s\n", one.Module.ID, one.Pod)
		}
		indented, err := json.MarshalIndent(one.Document, "", "  ")
		if err != nil {
			return fmt.Errorf("printing the input: %w", err)
		}
		_, _ = fmt.Fprintf(v.Out, "%s\n", indented)
	}
	return nil
}

// printTraces prints the steps of OPA in each module for each selected pod.
func (v *verb) printTraces(ctx context.Context, engine *opa.Engine, observed *observation.Log, selected func(namespace, name string) bool) error {
	for _, one := range observed.Take(selected) {
		module := one.Module
		if module.Custom == nil {
			_, _ = fmt.Fprintf(v.Out, "\nno trace of %s for pod %s: the rule cannot be evaluated\n", module.ID, one.Pod)
			continue
		}
		_, _ = fmt.Fprintf(v.Out, "\ntrace of %s for pod %s:\n", one.Module.ID, one.Pod)
		source := opa.Source{Owner: module.Owner(), Module: module.Custom.Source, ParametersSchema: module.Custom.ParametersSchema}
		if err := engine.Trace(ctx, module.Owner(), source, one.Document, v.Out); err != nil {
			return fmt.Errorf("tracing %s: %w", one.Module.ID, err)
		}
	}
	return nil
}
