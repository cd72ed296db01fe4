// Package unstick implements kubectl podops unstick.
package unstick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/doctor"
)

const (
	// reporter is the controller of this verb's events.
	reporter = "kubectl-podops"

	// maxReason and maxNote bound texts in the annotation and the event; the API server accepts notes of
	// 1024 bytes.
	maxReason, maxNote = 256, 1000

	// maxInstance bounds the name of the user in the event.
	maxInstance = 128
)

// options are the flags of the verb.
type options struct {
	yes    bool
	reason string
	long   time.Duration
}

// Command returns the verb unstick.
func Command(env *command.Environment) *cobra.Command {
	var flags options
	verb := &cobra.Command{
		Use:   "unstick pod/NAME",
		Short: "Release a pod whose controller no longer exists",
		Long: `Release a pod whose controller no longer exists: operations that no controller finishes or
cancels, and protection finalizers that no controller removes.

Without --yes it prints the changes, the reasons, and the guarantees that end. With --yes and
--reason it makes the changes with the rights of your kubeconfig, and records your name and the
reason in an event and in the annotation ` + appsv1alpha1.UnstuckAnnotationKey + `.

A pod that waits for a rule is not stuck: see docs/letting-go.md.`,
		Example: `  # The changes, and the reasons
  kubectl podops unstick pod/web-6d4f

  # Make the changes
  kubectl podops unstick pod/web-6d4f --yes --reason "INC-4711: the adapter was removed"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), env, flags, args[0]) },
	}
	set := verb.Flags()
	set.BoolVarP(&flags.yes, "yes", "y", false, "make the changes, instead of printing them")
	set.StringVar(&flags.reason, "reason", "", "why; required with --yes")
	set.DurationVar(&flags.long, "long", doctor.DefaultLong, "time without progress after which a controller counts as stuck")
	return env.Cluster(verb)
}

func run(ctx context.Context, env *command.Environment, flags options, target string) error {
	name, err := flags.validate(target)
	if err != nil {
		return err
	}
	namespace, err := env.Namespace()
	if err != nil {
		return err
	}
	c, err := env.Client(ctx)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &pod); err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	snapshot, err := read(ctx, c, namespace)
	if err != nil {
		return err
	}
	plan := doctor.Unstick(snapshot, &pod, doctor.Options{Long: flags.long}, env.Now())
	if len(plan.Steps) == 0 {
		return refusal(&pod, plan)
	}
	if err := write(env.Out, &pod, plan, flags.yes); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	if !flags.yes {
		return nil
	}
	user, err := env.User(ctx, c)
	if err != nil {
		return err
	}
	if err := do(ctx, c, &pod, plan, appsv1alpha1.Unstuck{By: user, Reason: text.Line(flags.reason, maxReason), At: metav1.NewTime(env.Now())}); err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Out, "Done, and recorded with your name.")
	return err
}

// validate returns the name of the pod.
func (o options) validate(target string) (string, error) {
	kind, name, ok := strings.Cut(target, "/")
	if !ok {
		kind, name = "pod", target
	}
	switch {
	case !slices.Contains([]string{"pod", "pods", "po"}, kind) || name == "":
		return "", fmt.Errorf("%q is no pod: want pod/NAME", target)
	case o.yes && strings.TrimSpace(o.reason) == "":
		return "", errors.New("--yes needs --reason: it is recorded with your name")
	case o.long <= 0:
		return "", fmt.Errorf("--long %s: want a positive duration", o.long)
	default:
		return name, nil
	}
}

// read reads the objects that show whether a controller still exists. All of them are needed.
func read(ctx context.Context, c client.Client, namespace string) (doctor.Snapshot, error) {
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return doctor.Snapshot{}, fmt.Errorf("listing Services: %w", err)
	}
	var operations appsv1alpha1.PodOperationList
	if err := c.List(ctx, &operations, client.InNamespace(namespace)); err != nil {
		return doctor.Snapshot{}, fmt.Errorf("listing PodOperations: %w", err)
	}
	return doctor.Snapshot{Services: services.Items, Operations: operations.Items}, nil
}

func refusal(pod *corev1.Pod, plan doctor.Plan) error {
	if plan.Waits == "" {
		return fmt.Errorf("pod %s is not stuck: it waits for no controller", pod.Name)
	}
	return fmt.Errorf("pod %s is not stuck: %s; see `kubectl podops explain -n %s pod/%s` and docs/letting-go.md",
		pod.Name, plan.Waits, pod.Namespace, pod.Name)
}

// write prints a plan.
func write(out io.Writer, pod *corev1.Pod, plan doctor.Plan, yes bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s/%s\n", pod.Namespace, pod.Name)
	for _, step := range plan.Steps {
		fmt.Fprintf(&b, "- %s\n  why:  %s\n", step.Change, step.Why)
		lost := step.Lost
		if lost == "" {
			lost = "nothing"
		}
		fmt.Fprintf(&b, "  lost: %s\n", lost)
	}
	if !yes {
		b.WriteString("Nothing was changed. To do it: --yes --reason \"<why>\"\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// do records the change as an event, and makes it. The event comes first, because a pod that is terminating may
// not exist any more after the change.
func do(ctx context.Context, c client.Client, pod *corev1.Pod, plan doctor.Plan, unstuck appsv1alpha1.Unstuck) error {
	for _, step := range plan.Steps {
		unstuck.Changes = append(unstuck.Changes, step.Change)
	}
	patch, err := buildPatch(pod, plan, unstuck)
	if err != nil {
		return err
	}
	if err := c.Create(ctx, newEvent(pod, unstuck)); err != nil {
		return fmt.Errorf("recording the event, without which nothing is changed: %w", err)
	}
	if err := c.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("changing the pod: %w", err)
	}
	return nil
}

// buildPatch returns the change of a pod in the version that was read.
func buildPatch(pod *corev1.Pod, plan doctor.Plan, unstuck appsv1alpha1.Unstuck) ([]byte, error) {
	record, err := json.Marshal(unstuck)
	if err != nil {
		return nil, fmt.Errorf("encoding the annotation: %w", err)
	}
	annotations := map[string]*string{appsv1alpha1.UnstuckAnnotationKey: new(string(record))}
	maps.Copy(annotations, plan.Annotations)
	changed := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations}
	if len(plan.Labels) > 0 {
		changed["labels"] = plan.Labels
	}
	if len(plan.Finalizers) > 0 {
		changed["finalizers"] = slices.DeleteFunc(slices.Clone(pod.Finalizers), func(name string) bool { return slices.Contains(plan.Finalizers, name) })
	}
	patch, err := json.Marshal(map[string]any{"metadata": changed})
	if err != nil {
		return nil, fmt.Errorf("encoding the change: %w", err)
	}
	return patch, nil
}

func newEvent(pod *corev1.Pod, unstuck appsv1alpha1.Unstuck) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + ".unstick-"},
		EventTime:           metav1.NewMicroTime(unstuck.At.Time),
		ReportingController: reporter, ReportingInstance: text.Cut(unstuck.By, maxInstance),
		Action: "Unstick", Reason: "Unstuck", Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Note:      text.Line(fmt.Sprintf("%s (%s): %s", unstuck.Reason, unstuck.By, strings.Join(unstuck.Changes, "; ")), maxNote),
	}
}
