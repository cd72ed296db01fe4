package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/world/apiserver"
)

// trace records who wrote what, and when. It is safe for concurrent use.
type trace struct {
	began time.Time

	mu      sync.Mutex
	entries []string
}

// kept bounds a trace: the oldest half goes when it is full.
const kept = 4000

func (t *trace) add(at time.Time, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) == kept {
		t.entries = append(t.entries[:kept/10:kept/10], t.entries[kept/2:]...)
	}
	t.entries = append(t.entries, fmt.Sprintf("%10.3fs %s", at.Sub(t.began).Seconds(), text))
}

// broken marks a law that did not hold.
const broken = "s !! "

// note records a text.
func (t *trace) note(text string) { t.add(time.Now(), "** "+text) }

// write records a write if it changed what a reader of a trace looks for.
func (t *trace) write(write apiserver.Write) {
	what := describe(write)
	if what == "" {
		return
	}
	name := write.Resource
	if write.Subresource != "" {
		name += "/" + write.Subresource
	}
	text := fmt.Sprintf("%s %s %s %s: %s", shortUser(write.User), write.Verb, name, write.Name, what)
	if write.Code >= 300 {
		text += fmt.Sprintf(" [%d %s]", write.Code, cut(write.Message, 120))
	}
	t.add(write.Time, text)
}

// lines returns at most n lines: all, or the first tenth and the lines up to the first law that did not hold, or up to the end.
func (t *trace) lines(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) <= n {
		return slices.Clone(t.entries)
	}
	const after = 5 // lines that show what followed
	end := len(t.entries)
	if broken := slices.IndexFunc(t.entries, func(entry string) bool { return strings.Contains(entry, broken) }); broken >= 0 {
		end = min(end, max(n, broken+1+after))
	}
	head := n / 10
	from := end - (n - head - 1)
	lines := append(slices.Clone(t.entries[:head]), fmt.Sprintf("... %d lines ...", from-head))
	return append(lines, t.entries[from:end]...)
}

// shortUser returns the last part of a user name.
func shortUser(user string) string { return user[strings.LastIndex(user, ":")+1:] }

func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n] + "..."
}

// describe returns what a write changed; empty if a reader of a trace does not look for it.
func describe(write apiserver.Write) string {
	switch write.Resource {
	case "leases", "events", "selfsubjectreviews", "subjectaccessreviews", "controllerrevisions":
		return ""
	}
	if write.Code >= 300 {
		if write.Code == 409 || write.Code == 404 {
			return ""
		}
		return "refused"
	}
	var changes []string
	before, after := metaObject(write.Before), metaObject(write.After)
	switch {
	case write.Before == nil && write.After == nil:
		if write.Subresource == "eviction" || write.Verb == "delete" {
			return "accepted"
		}
		return ""
	case write.Before == nil:
		changes = append(changes, "created"+owners(after))
	case write.After == nil:
		changes = append(changes, "gone")
	default:
		changes = append(changes, metaChanges(before, after)...)
		changes = append(changes, fieldChanges(write.Before, write.After)...)
	}
	return strings.Join(changes, ", ")
}

// metaObject returns an object as one with metadata, or nil.
func metaObject(object runtime.Object) metav1.Object {
	if found, ok := object.(metav1.Object); ok {
		return found
	}
	return nil
}

func owners(object metav1.Object) string {
	if object == nil {
		return ""
	}
	var names []string
	for _, reference := range object.GetOwnerReferences() {
		names = append(names, reference.Kind+" "+reference.Name)
	}
	if names == nil {
		return ""
	}
	return " for " + strings.Join(names, ", ")
}

// metaChanges returns the changes of labels, annotations, finalizers, owners and the time of deletion.
func metaChanges(before, after metav1.Object) []string {
	if before == nil || after == nil {
		return nil
	}
	changes := mapChanges(before.GetLabels(), after.GetLabels())
	changes = append(changes, mapChanges(before.GetAnnotations(), after.GetAnnotations())...)
	if !slices.Equal(before.GetFinalizers(), after.GetFinalizers()) {
		changes = append(changes, fmt.Sprintf("finalizers %v", after.GetFinalizers()))
	}
	if owners(before) != owners(after) {
		changes = append(changes, "owners"+owners(after))
	}
	if before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil {
		changes = append(changes, "terminating")
	}
	return changes
}

// mapChanges returns the changes of labels or annotations, without the domains of the lifecycle.
func mapChanges(before, after map[string]string) []string {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, after)
	var changes []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, had := before[key]
		value, has := after[key]
		if had == has && old == value || key == "deployment.kubernetes.io/revision" {
			continue
		}
		short := strings.NewReplacer("."+appsv1alpha1.LifecycleDomain, "", appsv1alpha1.LifecycleDomain+"/", "").Replace(key)
		switch {
		case !has:
			changes = append(changes, "-"+short)
		case len(value) > 12 && strings.Trim(value, "0123456789") == "":
			changes = append(changes, "+"+short)
		default:
			changes = append(changes, fmt.Sprintf("%s=%s", short, cut(value, 80)))
		}
	}
	return changes
}

// fieldChanges returns the changes of numbers, images and conditions.
func fieldChanges(before, after runtime.Object) []string {
	switch after := after.(type) {
	case *corev1.Pod:
		return podChanges(before.(*corev1.Pod), after)
	case *appsv1.ReplicaSet:
		return numbers(before.(*appsv1.ReplicaSet).Spec.Replicas, after.Spec.Replicas)
	case *appsv1.Deployment:
		old := before.(*appsv1.Deployment)
		changes := append(numbers(old.Spec.Replicas, after.Spec.Replicas), images(old.Spec.Template, after.Spec.Template)...)
		if old.Spec.Paused != after.Spec.Paused {
			changes = append(changes, fmt.Sprintf("paused %t", after.Spec.Paused))
		}
		return changes
	case *appsv1.StatefulSet:
		old := before.(*appsv1.StatefulSet)
		return append(numbers(old.Spec.Replicas, after.Spec.Replicas), images(old.Spec.Template, after.Spec.Template)...)
	case *appsv1.DaemonSet:
		return images(before.(*appsv1.DaemonSet).Spec.Template, after.Spec.Template)
	}
	return nil
}

func numbers(before, after *int32) []string {
	if before == nil || after == nil || *before == *after {
		return nil
	}
	return []string{fmt.Sprintf("replicas %d to %d", *before, *after)}
}

func images(before, after corev1.PodTemplateSpec) []string {
	if image(before.Spec) == image(after.Spec) {
		return nil
	}
	return []string{fmt.Sprintf("image %s to %s", image(before.Spec), image(after.Spec))}
}

// image returns the image of the first container.
func image(spec corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return ""
	}
	return spec.Containers[0].Image
}

func podChanges(before, after *corev1.Pod) []string {
	var changes []string
	for _, kind := range []corev1.PodConditionType{appsv1alpha1.ServiceReadyGate, corev1.ContainersReady, corev1.PodReady} {
		if old, now := isTrue(before, kind), isTrue(after, kind); old != now {
			changes = append(changes, fmt.Sprintf("%s %t", shortCondition(kind), now))
		}
	}
	if before.Status.Phase != after.Status.Phase && !isActive(after) {
		changes = append(changes, string(after.Status.Phase))
	}
	if before.Spec.NodeName != after.Spec.NodeName {
		changes = append(changes, "on "+after.Spec.NodeName)
	}
	return changes
}

func shortCondition(kind corev1.PodConditionType) string {
	if kind == appsv1alpha1.ServiceReadyGate {
		return "gate"
	}
	return string(kind)
}

// isTrue reports whether a condition of a pod is True.
func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}
