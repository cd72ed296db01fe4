package operator

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// snapshot reads everything that a decision about the cluster depends on.
func (r *Reconciler) snapshot(ctx context.Context, cluster *kvstorev1.KVStoreCluster) (s plan.Snapshot, err error) {
	key := client.ObjectKeyFromObject(cluster)
	s = plan.Snapshot{Cluster: cluster, Jobs: map[string]*batchv1.Job{}}
	if s.Service, err = get(ctx, r.client, key, &corev1.Service{}); err != nil {
		return s, err
	}
	if s.StatefulSet, err = get(ctx, r.client, key, &appsv1.StatefulSet{}); err != nil {
		return s, err
	}
	if s.Members, err = members(ctx, r.client, key); err != nil {
		return s, err
	}
	if err := r.claims(ctx, &s); err != nil {
		return s, err
	}
	if err := r.jobs(ctx, &s); err != nil {
		return s, err
	}
	s.Store = r.store.Observe(key, addresses(s.Members))
	return s, nil
}

// get reads an object; nil if it does not exist.
func get[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, object T) (none T, err error) {
	err = c.Get(ctx, key, object)
	if client.IgnoreNotFound(err) != nil {
		return none, fmt.Errorf("reading the %T: %w", object, err)
	}
	if err != nil {
		return none, nil //nolint:nilerr // an object that does not exist is no error
	}
	return object, nil
}

// members returns the pods of a cluster by ordinal.
func members(ctx context.Context, c client.Reader, cluster types.NamespacedName) (map[int32]plan.Member, error) {
	var pods corev1.PodList
	if err := list(ctx, c, cluster, &pods, plan.MemberLabels(cluster.Name)); err != nil {
		return nil, err
	}
	found := map[int32]plan.Member{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOfNoCopy(pod)
		ordinal, ok := plan.Ordinal(cluster.Name, pod.Name)
		if !ok || owner == nil || owner.Kind != "StatefulSet" || owner.Name != cluster.Name {
			continue
		}
		permissions := map[plan.Operation]plan.Permission{}
		for _, operation := range []plan.Operation{plan.Upgrade, plan.ScaleIn} {
			permissions[operation] = lifecycle{operation}.permission(pod)
		}
		found[ordinal] = plan.Member{Pod: pod, Permissions: permissions}
	}
	return found, nil
}

func (r *Reconciler) claims(ctx context.Context, s *plan.Snapshot) error {
	if s.Cluster.DeletionTimestamp == nil {
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := list(ctx, r.client, client.ObjectKeyFromObject(s.Cluster), &claims, plan.MemberLabels(s.Cluster.Name)); err != nil {
		return err
	}
	for i := range claims.Items {
		if plan.IsClaim(s.Cluster.Name, &claims.Items[i]) {
			s.Claims = append(s.Claims, &claims.Items[i])
		}
	}
	return nil
}

func (r *Reconciler) jobs(ctx context.Context, s *plan.Snapshot) error {
	var jobs batchv1.JobList
	if err := list(ctx, r.client, client.ObjectKeyFromObject(s.Cluster), &jobs, plan.Labels(s.Cluster.Name)); err != nil {
		return err
	}
	for i := range jobs.Items {
		if metav1.IsControlledBy(&jobs.Items[i], s.Cluster) {
			s.Jobs[jobs.Items[i].Name] = &jobs.Items[i]
		}
	}
	return nil
}

// list reads objects in the namespace of a cluster.
func list(ctx context.Context, c client.Reader, cluster types.NamespacedName, into client.ObjectList, labels map[string]string) error {
	if err := c.List(ctx, into, client.InNamespace(cluster.Namespace), client.MatchingLabels(labels)); err != nil {
		return fmt.Errorf("listing %T: %w", into, err)
	}
	return nil
}

// addresses returns the addresses of the pods that run, by name.
func addresses(members map[int32]plan.Member) map[string]string {
	addresses := map[string]string{}
	for _, m := range members {
		if m.Pod.Status.PodIP != "" && m.Pod.Status.Phase == corev1.PodRunning {
			addresses[m.Pod.Name] = m.Pod.Status.PodIP
		}
	}
	return addresses
}
