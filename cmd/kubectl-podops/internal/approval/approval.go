// Package approval implements kubectl podops approve, deny and approvals: user decisions about workload revisions, which
// rules of kind approval count.
package approval

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/view/clusterstate"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

const (
	// maxReason bounds a reason, as in the CRD, and maxTitle a line of output.
	maxReason, maxTitle = 256, 1024

	// shown is the format of times, in UTC.
	shown = "2006-01-02 15:04 MST"
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
	if !strings.HasPrefix(found.facts.Revision, flags.revision) {
		return fmt.Errorf("%s has revision %s now, not %s: see kubectl podops approvals %s", target, approval.Short(found.facts.Revision), flags.revision, target)
	}
	user, err := env.User(ctx, c)
	if err != nil {
		return err
	}
	made := newDecision(found, decision, user, flags, env.Now())
	made.OwnerReferences = []metav1.OwnerReference{found.owner(ctx, c)}
	if err := c.Create(ctx, made); err != nil {
		return fmt.Errorf("recording the decision: %w", err)
	}
	if _, err := fmt.Fprintf(env.Out, "%s: %s by %s\n%s", found.title(), decision, user, indented(found.changes)); err != nil {
		return err
	}
	if decision == appsv1alpha1.ApprovalApprove && user == found.facts.Author {
		_, err = fmt.Fprintln(env.ErrOut, "note: you wrote this revision, so your approval counts for rules with allowAuthor only")
	}
	return err
}

// newDecision returns the decision of a user about a revision.
func newDecision(
	about revision, decision appsv1alpha1.ApprovalDecision, user string, flags *options, now time.Time,
) *appsv1alpha1.PodOperationApproval {
	made := &appsv1alpha1.PodOperationApproval{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: about.object.GetNamespace(), GenerateName: about.object.GetName() + "-",
		},
		Spec: appsv1alpha1.PodOperationApprovalSpec{
			Workload: appsv1alpha1.ApprovalWorkload{Kind: string(about.kind), Name: about.object.GetName()},
			Revision: about.facts.Revision, Decision: decision, Approver: user, Reason: strings.TrimSpace(flags.reason),
		},
	}
	if flags.during > 0 {
		expires := metav1.NewTime(now.Add(flags.during))
		made.Spec.ExpiresAt = &expires
	}
	return made
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
		return found.write(env.Out, env.Now())
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
			if !one.isOfInterest() {
				continue
			}
			shownAny = true
			if flags.AllNamespaces {
				if _, err := fmt.Fprintf(env.Out, "%s ", s.Namespace); err != nil {
					return err
				}
			}
			if err := one.write(env.Out, env.Now()); err != nil {
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
func read(ctx context.Context, env *command.Environment, target cluster.Target) (client.Client, revision, error) {
	c, err := env.Client(ctx)
	if err != nil {
		return nil, revision{}, err
	}
	namespace, err := env.Namespace()
	if err != nil {
		return nil, revision{}, err
	}
	s, revisions, err := readNamespace(ctx, c, namespace, env.Now())
	if err != nil {
		return nil, revision{}, err
	}
	for _, one := range revisions {
		if one.kind == target.Kind && one.object.GetName() == target.Name {
			return c, one, nil
		}
	}
	if cluster.Find(s, target) != nil {
		return nil, revision{}, fmt.Errorf("%s has no label %s: %s in its pod template, so no rule applies to its pods",
			target, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
	}
	return nil, revision{}, cluster.NotFound(s, target)
}

// readNamespace returns all workload revisions in a namespace, by kind and name.
func readNamespace(ctx context.Context, reader client.Reader, namespace string, now time.Time) (*clusterstate.Snapshot, []revision, error) {
	s, err := cluster.Reader{Reader: reader, ManagerNamespace: cluster.DefaultManagerNamespace}.Snapshot(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	decisions, err := cluster.ListAll[*appsv1alpha1.PodOperationApproval](
		ctx, reader, &appsv1alpha1.PodOperationApprovalList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, nil, fmt.Errorf("listing the PodOperationApprovals of namespace %s: %w", namespace, err)
	}
	var revisions []revision
	for _, kind := range workloadKinds() {
		all, err := cluster.ParseTarget([]string{kind.Short()}, "")
		if err != nil {
			return nil, nil, err
		}
		for _, object := range cluster.Objects(s, all) {
			if appsv1alpha1.IsControlled(approval.Template(object).Labels) {
				revisions = append(revisions, newRevision(s, kind, object, decisions, now))
			}
		}
	}
	return s, revisions, nil
}
