package replicasetscale

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// runs returns a Ready pod on a node, an hour old.
func runs(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(epoch)}}
	pod.Spec.NodeName = "node-" + name
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch),
	}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func unready(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func cost(value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: value} }
}

func onNode(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = name } }

func phaseOf(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func readySince(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(epoch.Add(time.Hour - age))
	}
}

func created(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(epoch.Add(time.Hour - age)) }
}

func restarted(times int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{}, {RestartCount: times}}
	}
}

func TestVictims(t *testing.T) {
	for name, pods := range map[string][]*corev1.Pod{ // in the order in which they go
		"unassigned before all others": {runs("b", onNode(""), cost("9")), runs("a", phaseOf(corev1.PodPending), unready)},
		"pending before unknown before running": {
			runs("c", phaseOf(corev1.PodPending)), runs("b", phaseOf(corev1.PodUnknown)), runs("a", unready),
		},
		"unready before a lower cost":          {runs("b", unready, cost("100")), runs("a", cost("-100"))},
		"a lower cost first":                   {runs("b", cost("-1")), runs("a"), runs("c", cost("1"))},
		"a cost that is not valid counts as 0": {runs("b", cost("-1")), runs("a", cost("+5")), runs("c", cost("007")), runs("d", cost("x"))},
		"more pods on the node first":          {runs("b", onNode("n")), runs("c", onNode("n")), runs("a")},
		"the pod that became ready later":      {runs("b", readySince(time.Minute)), runs("a", readySince(time.Hour))},
		"ready times of one power of two, by UID": {
			runs("a", readySince(40*time.Minute)), runs("b", readySince(39*time.Minute)),
		},
		"more restarts first": {runs("b", unready, restarted(3)), runs("a", unready, restarted(1)), runs("c", unready)},
		"the younger first":   {runs("b", unready, created(time.Minute)), runs("a", unready, created(time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			reversed := slices.Clone(pods)
			slices.Reverse(reversed)
			got := Victims(reversed, pods, epoch.Add(time.Hour))
			if diff := cmp.Diff(names(pods), names(got)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVictimsAreActive(t *testing.T) {
	ended := runs("a", phaseOf(corev1.PodFailed))
	terminating := runs("b", func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(epoch)) })
	pods := []*corev1.Pod{ended, terminating, runs("c")}
	if diff := cmp.Diff([]string{"c"}, names(Victims(pods, pods, epoch))); diff != "" {
		t.Errorf("victims (-want +got):\n%s", diff)
	}
}

func names(pods []*corev1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}
