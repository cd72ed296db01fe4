package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// withheldWindow is how long the leader must stay.
const withheldWindow = 3 * time.Second

var errLeader = errors.New("the rules of the leader do not hold")

// byHand is an upgrade of another operation controller.
type byHand struct{}

// GetID implements podopslifecycle.LifecycleAdapter.
func (byHand) GetID() string { return "by-hand" }

// GetType implements podopslifecycle.LifecycleAdapter.
func (byHand) GetType() podopslifecycle.OperationType {
	return podopslifecycle.OperationType(plan.Upgrade)
}

// AllowMultiType implements podopslifecycle.LifecycleAdapter.
func (byHand) AllowMultiType() bool { return true }

// WhenBegin implements podopslifecycle.LifecycleAdapter.
func (byHand) WhenBegin(client.Object) (bool, error) { return false, nil }

// WhenFinish implements podopslifecycle.LifecycleAdapter.
func (byHand) WhenFinish(client.Object) (bool, error) { return false, nil }

// leaderTries is how often leaderLast begins again.
const leaderTries = 5

// leaderLast begins an upgrade of the pod that leads, although all other pods have its revision, as another controller. The
// rule leader-last withholds it, and the status of the rule reports why. It begins again with the next leader when the
// members elect another meanwhile: on a busy machine heartbeats may be late.
func (s *show) leaderLast(ctx context.Context) error {
	for try := 1; ; try++ {
		leader, err := s.leader(ctx)
		if err != nil {
			return err
		}
		err = errors.Join(s.withheld(ctx, leader), s.undo(ctx, leader))
		if err == nil {
			return nil
		}
		now, lost := s.leader(ctx)
		if lost != nil || now.UID == leader.UID || try == leaderTries {
			return errors.Join(err, lost)
		}
		s.print("pod %s leads by now", now.Name)
	}
}

// withheld begins an upgrade of the pod that leads, and returns an error unless it is withheld for as long as the pod leads.
func (s *show) withheld(ctx context.Context, leader *corev1.Pod) error {
	s.print("another controller begins to upgrade pod %s, which leads", leader.Name)
	if _, err := podopslifecycle.BeginContext(ctx, s.admin, byHand{}, leader); err != nil {
		return fmt.Errorf("beginning an upgrade: %w", err)
	}
	if err := s.awaitBlocked(ctx, leader.Name, "leader-last", "NotAllowed"); err != nil {
		return err
	}
	permitted := func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, leader)
		return pod == nil || pod.Labels[appsv1alpha1.PreCheckedLabelPrefix+"/"+byHand{}.GetID()] != "", err
	}
	return s.never(ctx, "pod "+leader.Name+" was permitted while it led", permitted)
}

// undo undoes the upgrade.
func (s *show) undo(ctx context.Context, leader *corev1.Pod) error {
	if _, err := podopslifecycle.UndoContext(ctx, s.admin, byHand{}, leader); err != nil {
		return fmt.Errorf("undoing the upgrade: %w", err)
	}
	undone := func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, leader)
		return pod != nil && !podopslifecycle.IsDuringOps(byHand{}, pod), err
	}
	if err := wait.PollUntilContextTimeout(ctx, polling, patience, true, undone); err != nil {
		return fmt.Errorf("undoing the upgrade: %w", err)
	}
	s.print("the upgrade is withdrawn")
	return nil
}

// hookAway deletes the pod that leads, as a user, while the operator is away and so its hook. The pod waits, and the status
// of the rule reports why. Once the operator is back, the hook moves leadership, and the delete is carried out.
func (s *show) hookAway(ctx context.Context) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	permits, err := s.recordPermits(ctx)
	if err != nil {
		return err
	}
	err = s.deleteWithoutHook(ctx, leader)
	seen := permits.end()
	if err != nil {
		return err
	}
	lines, err := s.hookLines()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(seen, func(p permit) bool { return p.uid == leader.UID })
	if i < 0 {
		return fmt.Errorf("%w: pod %s was deleted without a permit", errLeader, leader.Name)
	}
	moved, err := checkPermit(seen[i], lines)
	s.print("  the hook has approved the pod before its permit; it moved leadership: %t", moved)
	return err
}

func (s *show) deleteWithoutHook(ctx context.Context, leader *corev1.Pod) error {
	s.operator.Kill()
	s.print("kill -9 of the operator; kubectl delete pod %s, which leads", leader.Name)
	request := func(ctx context.Context) error {
		return s.admin.Delete(ctx, leader, client.Preconditions{UID: &leader.UID})
	}
	if err := request(ctx); !apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("%w: deleting the leader: %w", errLeader, err)
	}
	if err := s.awaitBlocked(ctx, leader.Name, "leader-moves-first", "WebhookFailed"); err != nil {
		return err
	}
	gone := func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, leader)
		return pod == nil || pod.DeletionTimestamp != nil, err
	}
	if err := s.never(ctx, "pod "+leader.Name+" was deleted without the hook", gone); err != nil {
		return err
	}
	if err := s.startOperator(ctx); err != nil {
		return err
	}
	s.print("the operator is back, and the delete is repeated")
	repeated := func(ctx context.Context) (bool, error) {
		err := request(ctx)
		if apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return true, client.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, repeated); err != nil {
		return fmt.Errorf("%w: pod %s was not deleted: %w", errLeader, leader.Name, err)
	}
	return s.await(ctx, "pod "+leader.Name+" was replaced", func(c *kvstorev1.KVStoreCluster) bool {
		return isPhase(kvstorev1.PhaseReady, c.Spec.Version, c.Spec.Replicas)(c)
	})
}

// awaitBlocked waits until the status of the rules reports why a pod waits.
func (s *show) awaitBlocked(ctx context.Context, pod, rule, reason string) error {
	var blocked appsv1alpha1.BlockedPod
	reported := func(ctx context.Context) (bool, error) {
		var rules appsv1alpha1.PodTransitionRule
		if err := s.admin.Get(ctx, s.key(), &rules); err != nil {
			return false, err
		}
		i := slices.IndexFunc(rules.Status.Blocked, func(b appsv1alpha1.BlockedPod) bool { return b.Name == pod })
		if i >= 0 {
			blocked = rules.Status.Blocked[i]
		}
		return i >= 0 && blocked.Rule == name+"/"+rule && blocked.Reason == reason, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, polling, patience, true, reported); err != nil {
		return fmt.Errorf("%w: the status of the rule: %w: %+v", errLeader, err, blocked)
	}
	s.print("  the status of the rule: %s: %s", blocked.Rule, blocked.Message)
	return nil
}

// never returns an error if a condition holds within withheldWindow.
func (s *show) never(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	switch err := wait.PollUntilContextTimeout(ctx, polling, withheldWindow, true, condition); {
	case err == nil:
		return fmt.Errorf("%w: %s", errLeader, what)
	case !wait.Interrupted(err):
		return fmt.Errorf("reading the leader: %w", err)
	default:
		return nil
	}
}

// leader returns the pod that leads.
func (s *show) leader(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	leads := client.MatchingLabels{kvstorev1.RoleLabelKey: kvstorev1.RoleLeader}
	found := func(ctx context.Context) (bool, error) {
		err := s.admin.List(ctx, &pods, client.InNamespace(s.namespace), leads)
		return len(pods.Items) == 1, err
	}
	if err := wait.PollUntilContextTimeout(ctx, polling, patience, true, found); err != nil {
		return nil, fmt.Errorf("%w: %d pods have the label of the leader: %w", errLeader, len(pods.Items), err)
	}
	return &pods.Items[0], nil
}

// pod returns a pod as it is now; nil if it is gone.
func (s *show) pod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	var now corev1.Pod
	switch err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), &now); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", pod.Name, err)
	case now.UID != pod.UID:
		return nil, nil
	default:
		return &now, nil
	}
}
