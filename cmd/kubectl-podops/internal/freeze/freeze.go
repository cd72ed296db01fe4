// Package freeze implements kubectl podops freeze and kubectl podops thaw. A freeze of a namespace is a PodTransitionRule that withholds
// every permit there until it ends, and counts like any other rule; a freeze of the cluster is an annotation of the manager's namespace.
package freeze

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// ruleName names the PodTransitionRule of a freeze and its only rule.
	ruleName = "freeze"

	// managedByLabel and manager mark the PodTransitionRules of this verb: it changes no other.
	managedByLabel, manager = "app.kubernetes.io/managed-by", "kubectl-podops"

	// maxReason bounds the reason in the message.
	maxReason = 256

	// atOnce is the number of namespaces that are written at a time.
	atOnce = 16

	// takenOverWithin bounds how long freeze waits for the manager, and rulesPerLook the PodTransitionRules that it reads at a time.
	takenOverWithin, rulesPerLook = 10 * time.Second, 500

	// shown is the format of times in messages, in UTC.
	shown = "2006-01-02 15:04 MST"
)

// module withholds every pod until the time in its parameters; until is 0 for a freeze without an end.
const module = `package rule

deny contains {"message": input.parameters.message, "retry_after_seconds": _left} if not _ended

_ended if {
	input.parameters.until > 0
	input.now >= input.parameters.until
}

_left := 60 if input.parameters.until == 0

_left := min([60, ceil((input.parameters.until - input.now) / 1000000000)]) if input.parameters.until != 0
`

// parameters of the module.
type parameters struct {
	Message string `json:"message"`
	Until   int64  `json:"until"`
}

// options are the flags of the verbs.
type options struct {
	cluster.Flags

	reason string
	during time.Duration
}

// Command returns the verb freeze.
func Command(env *command.Environment) *cobra.Command {
	var flags options
	verb := &cobra.Command{
		Use:   "freeze --reason TEXT",
		Short: "Give no pod a permit until thaw, or for a time",
		Long: `Give no pod of a namespace a permit until kubectl podops thaw, or for a time.

A freeze is the PodTransitionRule ` + ruleName + `: kubectl get ptr, kubectl podops explain and events
show it, with your name, which admission checks, and the reason. Pods that are off traffic already
go on. Pods that skip the rule, and break-glass, are not held. The verb ends once the manager has
taken the freeze over, and with an error if none does within 10 seconds.

With --all-namespaces it is an annotation of the namespace of the manager, and holds in every
namespace, also in later ones. Each PodTransitionRule has the condition Frozen.`,
		Example: `  # Hold every operation on the pods of a namespace during an incident
  kubectl podops freeze -n shop --reason "INC-4711: checkout is slow"

  # The same in the whole cluster, for two hours
  kubectl podops freeze -A --reason "network maintenance" --for 2h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return freeze(cmd.Context(), env, &flags) },
	}
	verb.Flags().StringVar(&flags.reason, "reason", "", "why; it is in every message")
	verb.Flags().DurationVar(&flags.during, "for", 0, "time after which the freeze ends; without it, thaw ends it")
	verb.Flags().BoolVarP(&flags.AllNamespaces, "all-namespaces", "A", false, "freeze all namespaces")
	flags.AddManager(verb)
	return env.Cluster(verb)
}

// Thaw returns the verb thaw.
func Thaw(env *command.Environment) *cobra.Command {
	var flags options
	verb := &cobra.Command{
		Use:   "thaw",
		Short: "End a freeze",
		Long:  "End the freeze of a namespace; with --all-namespaces that of the cluster, and of each namespace.",
		Example: `  kubectl podops thaw -n shop
  kubectl podops thaw -A`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return thaw(cmd.Context(), env, &flags) },
	}
	verb.Flags().BoolVarP(&flags.AllNamespaces, "all-namespaces", "A", false, "thaw all namespaces")
	flags.AddManager(verb)
	return env.Cluster(verb)
}

func freeze(ctx context.Context, env *command.Environment, flags *options) error {
	switch {
	case strings.TrimSpace(flags.reason) == "":
		return errors.New("--reason is required: it is in the message of each pod that waits")
	case flags.during < 0:
		return fmt.Errorf("--for %s: want a positive duration", flags.during)
	}
	c, err := env.Client(ctx)
	if err != nil {
		return err
	}
	user, err := env.User(ctx, c)
	if err != nil {
		return err
	}
	message, end := describe(user, flags.reason, flags.during, env.Now())
	const goOn = "Pods that are off traffic go on; kubectl podops thaw ends it."
	if flags.AllNamespaces {
		if err := annotate(ctx, c, flags.ManagerNamespace, inAnnotation(message, end)); err != nil {
			return err
		}
		if err := await(ctx, env, takenOverWithin, func(ctx context.Context) (bool, error) { return holdsCluster(ctx, c, message) }); err != nil {
			return err
		}
		_, err := fmt.Fprintf(env.Out, "all namespaces %s. %s\n", message, goOn)
		return err
	}
	namespace, err := env.Namespace()
	if err != nil {
		return err
	}
	done, err := put(ctx, c, newRule(namespace, parameters{Message: message, Until: unixNano(end)}))
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	if !done {
		return fmt.Errorf("namespace %s is being deleted", namespace)
	}
	if err := await(ctx, env, takenOverWithin, func(ctx context.Context) (bool, error) { return holds(ctx, c, namespace) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "1 namespace %s. %s\n", message, goOn)
	return err
}

// errNoRule is returned when nothing would show a freeze of the cluster.
var errNoRule = errors.New("there is no PodTransitionRule, whose condition Frozen would show it")

// await waits until the manager has taken a freeze over, and returns an error if it has not within a time. Where that cannot be read,
// it prints a note instead.
func await(ctx context.Context, env *command.Environment, within time.Duration, taken func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, within/40, within, true, func(context.Context) (bool, error) {
		look, cancel := context.WithTimeout(ctx, within) // the end of the wait does not cut the last look
		defer cancel()
		return taken(look)
	})
	switch {
	case apierrors.IsForbidden(err), errors.Is(err, errNoRule):
		_, err = fmt.Fprintf(env.ErrOut, "note: whether the manager has taken the freeze over is not known: %v\n", err)
		return err
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("the freeze is set, and no manager has taken it over within %s: kubectl podops doctor reports whether one leads; "+
			"one of an earlier release than this plugin may not know the freeze", within)
	default:
		return err
	}
}

// holds reports whether the manager evaluates the freeze of a namespace.
func holds(ctx context.Context, c client.Client, namespace string) (bool, error) {
	rule, err := read(ctx, c, namespace)
	if err != nil || rule == nil {
		return false, err
	}
	ready := meta.FindStatusCondition(rule.Status.Conditions, appsv1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == rule.Generation, nil
}

// holdsCluster reports whether a PodTransitionRule shows that the manager has taken over a freeze with this message. It returns errNoRule
// without any PodTransitionRule.
func holdsCluster(ctx context.Context, c client.Client, message string) (bool, error) {
	var rules appsv1alpha1.PodTransitionRuleList
	if err := c.List(ctx, &rules, client.Limit(rulesPerLook)); err != nil {
		return false, err
	}
	if len(rules.Items) == 0 {
		return false, errNoRule
	}
	return slices.ContainsFunc(rules.Items, func(rule appsv1alpha1.PodTransitionRule) bool {
		frozen := meta.FindStatusCondition(rule.Status.Conditions, appsv1alpha1.ConditionFrozen)
		return frozen != nil && strings.Contains(frozen.Message, message)
	}), nil
}

func thaw(ctx context.Context, env *command.Environment, flags *options) error {
	c, err := env.Client(ctx)
	if err != nil {
		return err
	}
	namespaces, err := flags.frozen(ctx, env, c)
	if err != nil {
		return err
	}
	done, err := each(ctx, namespaces, func(ctx context.Context, namespace string) (bool, error) { return remove(ctx, c, namespace) })
	thawed := count(done, "namespace")
	if flags.AllNamespaces {
		err = errors.Join(err, annotate(ctx, c, flags.ManagerNamespace, nil))
		thawed = "all namespaces"
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s thawed\n", thawed)
	return err
}

// annotate sets the annotation with which the whole cluster is frozen on the namespace of the manager; nil removes it.
func annotate(ctx context.Context, c client.Client, namespace string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{appsv1alpha1.FreezeAnnotationKey: value}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("the namespace of the manager: %w", err)
	}
	return nil
}

// inAnnotation returns the annotation value of a freeze.
func inAnnotation(message string, end time.Time) string {
	if end.IsZero() {
		return "- " + message
	}
	return end.UTC().Format(time.RFC3339) + " " + message
}

// unixNano returns a time in Unix nanoseconds; 0 for the zero time.
func unixNano(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}

// frozen returns the namespaces to thaw.
func (o *options) frozen(ctx context.Context, env *command.Environment, c client.Client) ([]string, error) {
	if !o.AllNamespaces {
		return o.Namespaces(ctx, env, c)
	}
	var rules appsv1alpha1.PodTransitionRuleList
	if err := c.List(ctx, &rules, client.MatchingLabels{managedByLabel: manager}); err != nil {
		return nil, fmt.Errorf("listing the PodTransitionRules of all namespaces: %w", err)
	}
	var namespaces []string
	for i := range rules.Items {
		if rules.Items[i].Name == ruleName {
			namespaces = append(namespaces, rules.Items[i].Namespace)
		}
	}
	return namespaces, nil
}

// describe returns the message of a freeze, and its end; the zero time without an end.
func describe(user, reason string, during time.Duration, now time.Time) (message string, end time.Time) {
	until := ""
	if during > 0 {
		end = now.Add(during)
		until = " until " + end.UTC().Format(shown)
	}
	return fmt.Sprintf("frozen by %s%s: %s", user, until, text.Line(strings.TrimSpace(reason), maxReason)), end
}

// newRule returns the PodTransitionRule of a freeze.
func newRule(namespace string, given parameters) *appsv1alpha1.PodTransitionRule {
	raw, err := json.Marshal(given)
	if err != nil {
		panic(err) // a text and a number always have JSON
	}
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ruleName, Labels: map[string]string{managedByLabel: manager}},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}},
			Rules: []appsv1alpha1.TransitionRule{{
				Name: ruleName, Rego: &appsv1alpha1.RegoRule{Module: module, Parameters: &apiextensionsv1.JSON{Raw: raw}},
			}},
		},
	}
}

// put creates the PodTransitionRule of a freeze, or replaces an earlier one. It returns false for a namespace that is
// being deleted.
func put(ctx context.Context, c client.Client, rule *appsv1alpha1.PodTransitionRule) (bool, error) {
	before, err := read(ctx, c, rule.Namespace)
	if err != nil {
		return false, err
	}
	if before != nil {
		after := before.DeepCopy()
		after.Spec = rule.Spec
		return true, c.Patch(ctx, after, client.MergeFrom(before)) // the manager writes the status meanwhile
	}
	err = c.Create(ctx, rule)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, nil
	}
	return true, err
}

// remove disables the freeze of a namespace and deletes it, and reports whether there was one. A PodTransitionRule that is deleted while
// its rules are enabled holds pods for a while, since tools replace objects by a delete.
func remove(ctx context.Context, c client.Client, namespace string) (bool, error) {
	rule, err := read(ctx, c, namespace)
	if err != nil || rule == nil {
		return false, err
	}
	before := rule.DeepCopy()
	for i := range rule.Spec.Rules {
		rule.Spec.Rules[i].Disabled = true
	}
	if err := c.Patch(ctx, rule, client.MergeFrom(before)); err != nil {
		return false, err
	}
	return true, client.IgnoreNotFound(c.Delete(ctx, rule, client.Preconditions{UID: &rule.UID}))
}

// read returns the freeze of a namespace; nil without one.
func read(ctx context.Context, c client.Client, namespace string) (*appsv1alpha1.PodTransitionRule, error) {
	rule := &appsv1alpha1.PodTransitionRule{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ruleName}, rule)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case rule.Labels[managedByLabel] != manager:
		return nil, fmt.Errorf("the PodTransitionRule %s is not that of kubectl podops freeze: it has no label %s=%s", ruleName, managedByLabel, manager)
	default:
		return rule, nil
	}
}

// each does the same in several namespaces, some at a time, and returns in how many it was done. Its error names the namespaces
// in which it failed.
func each(ctx context.Context, namespaces []string, do func(ctx context.Context, namespace string) (bool, error)) (done int, err error) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	var mu sync.Mutex
	for _, namespace := range namespaces {
		group.Go(func() error {
			did, failure := do(ctx, namespace)
			mu.Lock()
			defer mu.Unlock()
			if failure != nil {
				err = errors.Join(err, fmt.Errorf("namespace %s: %w", namespace, failure))
			}
			if did && failure == nil {
				done++
			}
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	return done, err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
