package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// end is everything that counts of the end of a story: without times, UIDs, addresses and which pod leads.
type end struct {
	Gone       bool
	Finalizers []string
	Spec       kvstorev1.KVStoreClusterSpec
	Status     kvstorev1.KVStoreClusterStatus
	Set        string
	Services   []string
	Pods       []string
	Leaders    int
	Members    []string // of the store
	Jobs       []string
	Claims     []string
}

// end reads the end of a story.
func (s *show) end(ctx context.Context) (end, error) {
	e := end{Gone: true}
	for _, read := range []func(context.Context, *end) error{s.endOfCluster, s.endOfSet, s.endOfPods, s.endOfOthers} {
		if err := read(ctx, &e); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (s *show) endOfCluster(ctx context.Context, e *end) error {
	cluster := &kvstorev1.KVStoreCluster{}
	if err := s.admin.Get(ctx, s.key(), cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	e.Gone, e.Finalizers, e.Spec, e.Status = false, cluster.Finalizers, cluster.Spec, cluster.Status
	for i := range e.Status.Conditions {
		e.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	slices.SortFunc(e.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	if e.Status.Upgrade != nil {
		e.Status.Upgrade.StepStartedAt = metav1.Time{}
	}
	return nil
}

func (s *show) endOfSet(ctx context.Context, e *end) error {
	set := &appsv1.StatefulSet{}
	if err := s.admin.Get(ctx, s.key(), set); err != nil {
		return client.IgnoreNotFound(err)
	}
	partition := int32(-1)
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		partition = ptr.Deref(rolling.Partition, -1)
	}
	if observed := set.Status.ObservedGeneration; observed != set.Generation {
		return fmt.Errorf("the StatefulSet controller has observed generation %d of %d", observed, set.Generation)
	}
	e.Set = fmt.Sprintf("%d of %s, %s from %d, one revision %t", *set.Spec.Replicas, set.Spec.Template.Spec.Containers[0].Image,
		set.Spec.UpdateStrategy.Type, partition, set.Status.CurrentRevision == set.Status.UpdateRevision)
	return nil
}

func (s *show) endOfPods(ctx context.Context, e *end) error {
	var pods corev1.PodList
	if err := s.admin.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels(plan.MemberLabels(name))); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		e.Pods = append(e.Pods, describe(pod))
		if pod.Labels[kvstorev1.RoleLabelKey] == "" {
			continue
		}
		e.Leaders++
		members, err := membersOf(ctx, pod)
		if err != nil {
			return err
		}
		e.Members = members
	}
	return nil
}

// describe returns the name, the image, and the lifecycle of a pod.
func describe(pod *corev1.Pod) string {
	words := []string{pod.Name, pod.Spec.Containers[0].Image}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			words = append(words, "ready", string(c.Status))
		}
	}
	if pod.DeletionTimestamp != nil {
		words = append(words, "terminating")
	}
	var labels []string
	for key := range pod.Labels {
		if strings.Contains(key, appsv1alpha1.ControlLabelKey[:strings.Index(appsv1alpha1.ControlLabelKey, "/")]) {
			labels = append(labels, key)
		}
	}
	slices.Sort(labels)
	return strings.Join(slices.Concat(words, labels, pod.Finalizers), " ")
}

var errMembers = errors.New("the members of the store are not known")

// membersOf returns the members that a pod reports.
func membersOf(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(plan.ClientPort))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status?brief", nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMembers, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMembers, err)
	}
	defer response.Body.Close()
	var status struct {
		State   string `json:"state"`
		Members []struct {
			ID string `json:"id"`
		} `json:"members"`
	}
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return nil, fmt.Errorf("%w: %w", errMembers, err)
	}
	members := []string{"led by a " + status.State}
	for _, member := range status.Members {
		members = append(members, member.ID)
	}
	slices.Sort(members)
	return members, nil
}

func (s *show) endOfOthers(ctx context.Context, e *end) error {
	var (
		services corev1.ServiceList
		jobs     batchv1.JobList
		claims   corev1.PersistentVolumeClaimList
	)
	for _, list := range []client.ObjectList{&services, &jobs, &claims} {
		if err := s.admin.List(ctx, list, client.InNamespace(s.namespace)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	for _, service := range services.Items {
		e.Services = append(e.Services, service.Name)
	}
	for _, job := range jobs.Items {
		e.Jobs = append(e.Jobs, fmt.Sprintf("%s succeeded %d, failed %d", job.Name, job.Status.Succeeded, job.Status.Failed))
	}
	for _, claim := range claims.Items {
		e.Claims = append(e.Claims, claim.Name)
	}
	return nil
}
