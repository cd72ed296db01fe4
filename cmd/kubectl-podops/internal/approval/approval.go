// Package approval implements kubectl podops approve, deny and approvals: user decisions about workload revisions, which
// rules of kind approval count.
package approval

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/view/approvals"
	"github.com/podops-dev/podops/pkg/view/clusterstate"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// options are the flags of approve and deny.
type options struct {
	reason   string
	during   time.Duration
	revision string
}

// Approve returns the verb approve.
func Approve(env *command.Environment) *cobra.Command {
	return decide(env, appsv1alpha1.ApprovalApprove, &cobra.Command{
		Use:   "approve KIND/NAME",
		Short: "Approve the revision of a workload",
		Long: `Approve the pod template that a Deployment, StatefulSet or DaemonSet has now.

Rules of kind approval let its rollout go on once enough users have approved it. The approval is
a PodOperationApproval with your name, which admission checks. It counts for this pod template and
no other: after a change of the template the new revision waits for approvals of its own. To
withdraw it, deny the revision; of your decisions the newest counts.`,
		Example: `  # See what waits, and approve it
  kubectl podops approvals
  kubectl podops approve deploy/web --reason "load test passed"

  # Approve what was reviewed, for two hours, and nothing else
  kubectl podops approve deploy/web --revision 3fa9c1d2e4b5 --for 2h`,
	})
}

// Deny returns the verb deny.
func Deny(env *command.Environment) *cobra.Command {
	return decide(env, appsv1alpha1.ApprovalDeny, &cobra.Command{
		Use:   "deny KIND/NAME",
		Short: "Deny the revision of a workload",
		Long: `Deny the pod template that a Deployment, StatefulSet or DaemonSet has now.

Rules of kind approval withhold its rollout, however many users approve it, until you approve it.
Pods that are permitted already go on; kubectl rollout undo goes back to the revision before.`,
		Example: `  # Stop a rollout
  kubectl podops deny deploy/web --reason "errors in the canary"

  # Hold it until the time is right
  kubectl podops deny sts/db --reason "after the backup" --for 1h`,
	})
}

func decide(env *command.Environment, decision appsv1alpha1.ApprovalDecision, verb *cobra.Command) *cobra.Command {
	var flags options
	verb.Args = cobra.RangeArgs(1, 2)
	verb.RunE = func(cmd *cobra.Command, arguments []string) error {
		return run(cmd.Context(), env, &flags, decision, arguments)
	}
	verb.ValidArgsFunction = cluster.Complete(env, workloadKinds()...)
	verb.Flags().StringVar(&flags.reason, "reason", "", "why; kubectl podops approvals shows it")
	verb.Flags().DurationVar(&flags.during, "for", 0, "time after which the decision does not count any more; without it, it does not expire")
	verb.Flags().StringVar(&flags.revision, "revision", "", "beginning of the revision that you have reviewed; another revision is an error")
	return env.Cluster(verb)
}

func workloadKinds() []cluster.Kind {
	return []cluster.Kind{cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet}
}

// run creates the decision of the user about a workload.
func run(ctx context.Context, env *command.Environment, flags *options, decision appsv1alpha1.ApprovalDecision, arguments []string) error {
	if flags.during < 0 {
		return fmt.Errorf("--for %s: want a positive duration", flags.during)
	}
	target, err := workloadTarget(arguments)
	if err != nil {
		return err
	}
	c, found, err := read(ctx, env, target)
	if err != nil {
		return err
	}
	if now := found.Facts.Revision; !strings.HasPrefix(now, flags.revision) {
		return fmt.Errorf("%s has revision %s now, not %s: see kubectl podops approvals %s", target, approval.Short(now), flags.revision, target)
	}
	user, err := env.User(ctx, c)
	if err != nil {
		return err
	}
	made := found.NewDecision(decision, user, flags.reason)
	if flags.during > 0 {
		made.Spec.ExpiresAt = new(metav1.NewTime(env.Now().Add(flags.during)))
	}
	if err := ownedByHistory(ctx, c, found.Object, made); err != nil {
		return err
	}
	if err := c.Create(ctx, made); err != nil {
		return fmt.Errorf("recording the decision: %w", err)
	}
	if _, err := fmt.Fprintf(env.Out, "%s: %s by %s\n%s", found.Title(), decision, user, indented(found.Changes)); err != nil {
		return err
	}
	if decision == appsv1alpha1.ApprovalApprove && user == found.Facts.Author {
		_, err = fmt.Fprintln(env.ErrOut, "note: you wrote this revision, so your approval counts for rules with allowAuthor only")
	}
	return err
}

// ownedByHistory has a decision about a StatefulSet deleted with the ControllerRevision that Kubernetes keeps of the revision, if its
// controller has made that.
func ownedByHistory(ctx context.Context, reader client.Reader, object metav1.Object, decision *appsv1alpha1.PodOperationApproval) error {
	set, ok := object.(*appsv1.StatefulSet)
	if !ok || set.Status.ObservedGeneration != set.Generation {
		return nil
	}
	stored := &appsv1.ControllerRevision{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: set.Status.UpdateRevision}, stored)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the ControllerRevision of %s: %w", set.Name, err)
	}
	owner := &decision.OwnerReferences[0]
	owner.Kind, owner.Name, owner.UID = "ControllerRevision", stored.Name, stored.UID
	return nil
}

func indented(lines []string) string {
	var all strings.Builder
	for _, line := range lines {
		all.WriteString("  " + line + "\n")
	}
	return all.String()
}

// write writes a revision and what users have decided about it.
func write(out io.Writer, found approvals.Revision, now time.Time) error {
	_, err := fmt.Fprintf(out, "%s\n%s", found.Title(), indented(found.Lines(now)))
	return err
}

// workloadTarget returns the workload that arguments name.
func workloadTarget(arguments []string) (cluster.Target, error) {
	target, err := cluster.ParseTarget(arguments, "")
	if err != nil {
		return target, err
	}
	for _, kind := range workloadKinds() {
		if kind == target.Kind && target.Name != "" {
			return target, nil
		}
	}
	return target, fmt.Errorf("%s: want a workload, such as deploy/web, sts/db or ds/agent", strings.Join(arguments, " "))
}

// List returns the verb approvals.
func List(env *command.Environment) *cobra.Command {
	var flags cluster.Flags
	verb := &cobra.Command{
		Use:   "approvals [KIND/NAME]",
		Short: "Show the revisions of workloads that users approve, and their decisions",
		Long: `Show the revision of each workload whose pods a rule of kind approval selects: who wrote it, the
images that it changes, what the rules require, and the decisions of users.

Decisions about earlier revisions are not shown; kubectl get podoperationapprovals has all.`,
		Example: `  kubectl podops approvals
  kubectl podops approvals deploy/web
  kubectl podops approvals -A`,
		Args: cobra.MaximumNArgs(2),
	}
	env.Cluster(verb)
	verb.Flags().BoolVarP(&flags.AllNamespaces, "all-namespaces", "A", false, "read all namespaces")
	verb.ValidArgsFunction = cluster.Complete(env, workloadKinds()...)
	verb.RunE = func(cmd *cobra.Command, arguments []string) error { return list(cmd.Context(), env, &flags, arguments) }
	return verb
}

func list(ctx context.Context, env *command.Environment, flags *cluster.Flags, arguments []string) error {
	if len(arguments) > 0 {
		target, err := workloadTarget(arguments)
		if err != nil {
			return err
		}
		_, found, err := read(ctx, env, target)
		if err != nil {
			return err
		}
		return write(env.Out, found, env.Now())
	}
	c, err := env.Client(ctx)
	if err != nil {
		return err
	}
	namespaces, err := flags.Namespaces(ctx, env, c)
	if err != nil {
		return err
	}
	shownAny := false
	for _, namespace := range namespaces {
		s, revisions, err := readNamespace(ctx, c, namespace, env.Now())
		if err != nil {
			return err
		}
		for _, one := range revisions {
			if !one.IsOfInterest() {
				continue
			}
			shownAny = true
			if flags.AllNamespaces {
				if _, err := fmt.Fprintf(env.Out, "%s ", s.Namespace); err != nil {
					return err
				}
			}
			if err := write(env.Out, one, env.Now()); err != nil {
				return err
			}
		}
	}
	if !shownAny {
		_, err = fmt.Fprintln(env.Out, "no rule of kind approval selects the pods of a workload, and no user has decided about one")
	}
	return err
}

// read returns the revision of one workload, and the client that read it.
func read(ctx context.Context, env *command.Environment, target cluster.Target) (client.Client, approvals.Revision, error) {
	c, err := env.Client(ctx)
	if err != nil {
		return nil, approvals.Revision{}, err
	}
	namespace, err := env.Namespace()
	if err != nil {
		return nil, approvals.Revision{}, err
	}
	s, revisions, err := readNamespace(ctx, c, namespace, env.Now())
	if err != nil {
		return nil, approvals.Revision{}, err
	}
	for _, one := range revisions {
		if one.Kind == string(target.Kind) && one.Object.GetName() == target.Name {
			return c, one, nil
		}
	}
	if cluster.Find(s, target) != nil {
		return nil, approvals.Revision{}, fmt.Errorf("%s has no label %s: %s in its pod template, so no rule applies to its pods",
			target, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
	}
	return nil, approvals.Revision{}, cluster.NotFound(s, target)
}

// readNamespace returns all workload revisions in a namespace, by kind and name.
func readNamespace(ctx context.Context, reader client.Reader, namespace string, now time.Time) (*clusterstate.Snapshot, []approvals.Revision, error) {
	s, err := cluster.Reader{Reader: reader, ManagerNamespace: cluster.DefaultManagerNamespace}.Snapshot(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	decisions, err := cluster.ListAll[*appsv1alpha1.PodOperationApproval](
		ctx, reader, &appsv1alpha1.PodOperationApprovalList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, nil, fmt.Errorf("listing the PodOperationApprovals of namespace %s: %w", namespace, err)
	}
	var revisions []approvals.Revision
	for _, kind := range workloadKinds() {
		all, err := cluster.ParseTarget([]string{kind.Short()}, "")
		if err != nil {
			return nil, nil, err
		}
		for _, object := range cluster.Objects(s, all) {
			if appsv1alpha1.IsControlled(approval.Template(object).Labels) {
				revisions = append(revisions, approvals.New(s, string(kind), object, decisions, now))
			}
		}
	}
	return s, revisions, nil
}
