package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/apis/kvstore/v1"
	"github.com/podops-dev/podops/pkg/kvstore/plan"
)

// withheldWindow is how long the leader must stay.
const withheldWindow = 3 * time.Second

var errLeader = errors.New("the rule leader-last does not hold")

// leaderLast deletes the pod that leads, as a user. The rule leader-last withholds the delete, and the status of
// the rule reports why. Once leadership has moved, the delete is carried out.
func (s *show) leaderLast(ctx context.Context) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.print("kubectl delete pod %s, which leads", leader.Name)
	if err := s.admin.Delete(ctx, leader, client.Preconditions{UID: &leader.UID}); !apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("%w: deleting the leader: %w", errLeader, err)
	}
	var blocked appsv1alpha1.BlockedPod
	withheld := func(ctx context.Context) (bool, error) {
		var rule appsv1alpha1.PodTransitionRule
		if err := s.admin.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, &rule); err != nil {
			return false, err
		}
		i := slices.IndexFunc(rule.Status.Blocked, func(b appsv1alpha1.BlockedPod) bool { return b.Name == leader.Name })
		if i >= 0 {
			blocked = rule.Status.Blocked[i]
		}
		return i >= 0 && blocked.Rule == name+"/leader-last", nil
	}
	if err := wait.PollUntilContextTimeout(ctx, polling, patience, true, withheld); err != nil {
		return fmt.Errorf("%w: the status of the rule: %w: %+v", errLeader, err, blocked)
	}
	s.print("  the status of the rule: %s: %s", blocked.Rule, blocked.Message)
	gone := func(ctx context.Context) (bool, error) { return s.isGone(ctx, leader) }
	switch err := wait.PollUntilContextTimeout(ctx, polling, withheldWindow, true, gone); {
	case err == nil:
		return fmt.Errorf("%w: pod %s was deleted while it led", errLeader, leader.Name)
	case !wait.Interrupted(err):
		return fmt.Errorf("reading the leader: %w", err)
	}
	if err := moveLeadership(ctx, leader); err != nil {
		return err
	}
	s.print("leadership moves away from pod %s", leader.Name)
	if err := wait.PollUntilContextTimeout(ctx, polling, patience, true, gone); err != nil {
		return fmt.Errorf("%w: pod %s was not deleted after leadership moved: %w", errLeader, leader.Name, err)
	}
	return s.await(ctx, "pod "+leader.Name+" was replaced", func(c *kvstorev1.KVStoreCluster) bool {
		return isPhase(kvstorev1.PhaseReady, c.Spec.Version, c.Spec.Replicas)(c)
	})
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

// isGone reports whether a pod was deleted, or is terminating.
func (s *show) isGone(ctx context.Context, pod *corev1.Pod) (bool, error) {
	var now corev1.Pod
	err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), &now)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return now.UID != pod.UID || now.DeletionTimestamp != nil, err
}

// moveLeadership moves leadership away from a pod, to the member that the store chooses.
func moveLeadership(ctx context.Context, leader *corev1.Pod) error {
	target := "http://" + net.JoinHostPort(leader.Status.PodIP, strconv.Itoa(plan.ClientPort)) + "/leader/transfer"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return fmt.Errorf("moving leadership: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("moving leadership: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: moving leadership: %s", errLeader, response.Status)
	}
	return nil
}
