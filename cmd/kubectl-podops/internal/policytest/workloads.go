package policytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
)

// workload is a pod owner in a test: "Deployment/web", "ReplicaSet/web", "StatefulSet/db" or
// "DaemonSet/agent".
type workload struct{ kind, name string }

// parseWorkload parses the owner of a pod.
func parseWorkload(owner string) (workload, error) {
	kind, name, _ := strings.Cut(owner, "/")
	if name == "" || !slices.Contains([]string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}, kind) {
		return workload{}, fmt.Errorf("owner %q: write Deployment/NAME, ReplicaSet/NAME, StatefulSet/NAME or DaemonSet/NAME", owner)
	}
	return workload{kind, name}, nil
}

// revisionAges are the revisions that a pod of a test may have, and the annotation of their ReplicaSets. The newest
// ReplicaSet was created no later than the ReplicaSet before it, as in a rollback: otherwise no revision between
// them is abandoned.
func revisionAges() map[rule.RevisionState]int {
	return map[rule.RevisionState]int{rule.RevisionOutdated: 1, rule.RevisionAbandoned: 2, rule.RevisionNewest: 3}
}

// own gives a pod its owner, and the labels that the controller of the owner sets.
func (w workload) own(pod *corev1.Pod, revision rule.RevisionState) error {
	revision = cmp.Or(revision, rule.RevisionNewest)
	if _, known := revisionAges()[revision]; !known {
		return fmt.Errorf("revision %q is not one of Newest, Outdated, Abandoned", revision)
	}
	hash, kind, name := strings.ToLower(string(revision)), w.kind, w.name
	switch w.kind {
	case "Deployment":
		kind, name = "ReplicaSet", w.replicaSet(revision)
		setLabel(pod, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	case "ReplicaSet", "DaemonSet":
		if revision != rule.RevisionNewest {
			return fmt.Errorf("revision: PodOps does not know the revisions of a %s", w.kind)
		}
	case "StatefulSet":
		setLabel(pod, appsv1.ControllerRevisionHashLabelKey, hash)
	}
	controller := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: uid(kind, name), Controller: &controller}}
	return nil
}

func (w workload) replicaSet(revision rule.RevisionState) string {
	return w.name + "-" + strings.ToLower(string(revision))
}

func uid(kind, name string) types.UID { return types.UID(strings.ToLower(kind) + "/" + name) }

func setLabel(pod *corev1.Pod, key, value string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[key] = value
}

// wish is what a workload wants.
type wish struct {
	replicas int
	paused   bool
}

// add adds the workload. pods has the replicas by revision, and template is one of its pods.
func (w workload) add(objects *offline.Objects, template *corev1.Pod, pods map[rule.RevisionState]int, wants wish, now time.Time) {
	labels := map[string]string{}
	for key, value := range template.Labels {
		if key == appsv1alpha1.ControlLabelKey || !strings.Contains(key, appsv1alpha1.LifecycleDomain) && key != appsv1.DefaultDeploymentUniqueLabelKey {
			labels[key] = value
		}
	}
	made := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	meta := metav1.ObjectMeta{Name: w.name, Namespace: template.Namespace, UID: uid(w.kind, w.name), Generation: 1}
	number := int32(wants.replicas)
	switch w.kind {
	case "Deployment":
		objects.Add(&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &number, Template: made, Paused: wants.paused}}, meta.Namespace)
		for revision := range revisionAges() {
			objects.Add(w.newReplicaSet(revision, made, meta, int32(pods[revision]), now), meta.Namespace)
		}
	case "ReplicaSet":
		objects.Add(&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &number, Template: made}}, meta.Namespace)
	case "StatefulSet":
		objects.Add(&appsv1.StatefulSet{
			ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &number, Template: made},
			Status: appsv1.StatefulSetStatus{UpdateRevision: "newest", CurrentRevision: "outdated"},
		}, meta.Namespace)
	case "DaemonSet":
		objects.Add(&appsv1.DaemonSet{
			ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: made},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: number, ObservedGeneration: 1},
		}, meta.Namespace)
	}
}

// newReplicaSet returns the ReplicaSet for one revision of a Deployment.
func (w workload) newReplicaSet(
	revision rule.RevisionState, template corev1.PodTemplateSpec, meta metav1.ObjectMeta, replicas int32, now time.Time,
) *appsv1.ReplicaSet {
	controller := true
	created := now.Add(-48 * time.Hour)
	if revision == rule.RevisionAbandoned {
		created = created.Add(time.Hour)
	}
	name := w.replicaSet(revision)
	template.Labels = maps.Clone(template.Labels)
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = strings.ToLower(string(revision))
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: meta.Namespace, UID: uid("ReplicaSet", name), CreationTimestamp: metav1.NewTime(created),
			Annotations:     map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: fmt.Sprint(revisionAges()[revision])},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: w.name, UID: meta.UID, Controller: &controller}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: template},
	}
}
