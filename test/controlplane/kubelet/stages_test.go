package kubelet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"

	"github.com/podops-dev/podops/test/controlplane/stages"
)

var (
	podKind  = internalversion.StageResourceRef{APIGroup: "v1", Kind: "Pod"}
	nodeKind = internalversion.StageResourceRef{APIGroup: "v1", Kind: "Node"}
)

func TestStageOfAPod(t *testing.T) {
	tests := map[string]struct {
		pod   *corev1.Pod
		stage string        // "" when no stage matches
		least time.Duration // of the delay
		most  time.Duration
	}{
		"new":                                  {newPod(), "pod-create", 0, 0},
		"created":                              {newPod(created), "pod-start", 100 * time.Millisecond, 300 * time.Millisecond},
		"created, slow to start":               {annotated(newPod(created), "test.podops.dev/start-delay", "7s"), "pod-start", 7 * time.Second, 7 * time.Second},
		"running":                              {newPod(created, started), "pod-sync", 0, 0},
		"running, with a sidecar":              {newPod(withInit, created, started), "pod-sync", 0, 0},
		"running, image changed":               {newPod(created, started, withImage("app:2")), "pod-restart", 0, 0},
		"stopped for a new image":              {newPod(created, started, withImage("app:2"), restarting), "pod-start", 100 * time.Millisecond, 300 * time.Millisecond},
		"restarted with the new image":         {newPod(created, started, withImage("app:2"), restarting, started), "pod-sync", 0, 0},
		"running, to end by itself":            {annotated(newPod(created, started), "test.podops.dev/complete-after", "2s"), "pod-complete", 2 * time.Second, 2 * time.Second},
		"ended by itself":                      {annotated(newPod(created, started, stopped), "test.podops.dev/complete-after", "2s"), "", 0, 0},
		"new, deleted":                         {deleted(newPod(), 30), "pod-stop", 300 * time.Millisecond, 300 * time.Millisecond},
		"created, deleted":                     {deleted(newPod(created), 30), "pod-stop", 300 * time.Millisecond, 300 * time.Millisecond},
		"running, deleted":                     {deleted(newPod(created, started), 30), "pod-stop", 300 * time.Millisecond, 300 * time.Millisecond},
		"running, deleted, slow to stop":       {annotated(deleted(newPod(created, started), 30), "test.podops.dev/stop-delay", "5s"), "pod-stop", 5 * time.Second, 5 * time.Second},
		"running, deleted by force, finalizer": {deleted(newPod(created, started), 0), "pod-stop", 300 * time.Millisecond, 300 * time.Millisecond},
		"stopped, not deleted yet":             {deleted(newPod(created, started, stopped), 30), "pod-stop", 300 * time.Millisecond, 300 * time.Millisecond},
		"deleted, finalizer":                   {deleted(newPod(created, started, stopped), 0), "", 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			matching := matchingStages(t, podKind, &lifecycle.Event{Labels: tc.pod.Labels, Annotations: tc.pod.Annotations, Data: tc.pod})
			var got, want []string
			for _, stage := range matching {
				got = append(got, stage.Name())
			}
			if tc.stage != "" {
				want = []string{tc.stage}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("stages (-want +got):\n%s", diff)
			}
			for _, stage := range matching {
				delay, _, err := stage.Delay(t.Context(), &lifecycle.Event{Data: tc.pod}, noon.Time)
				if err != nil {
					t.Fatal(err)
				}
				if delay < tc.least || delay > tc.most {
					t.Errorf("delay: want %s to %s, got %s", tc.least, tc.most, delay)
				}
			}
		})
	}
}

func TestStageOfANode(t *testing.T) {
	healthy := Node{Name: "node-1", IP: "127.64.1.254"}.object(noon)
	lost := healthy.DeepCopy()
	for i := range lost.Status.Conditions {
		lost.Status.Conditions[i].Status = corev1.ConditionUnknown
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"healthy":         {healthy, "node-heartbeat"},
		"considered dead": {lost, "node-recover"},
	} {
		t.Run(name, func(t *testing.T) {
			got := matchingStages(t, nodeKind, &lifecycle.Event{Data: tc.node})
			if len(got) != 1 || got[0].Name() != tc.want {
				t.Errorf("want %s, got %v", tc.want, got)
			}
		})
	}
}

func TestHeartbeat(t *testing.T) {
	node := Node{Name: "node-1", IP: "127.64.1.254"}.object(noon)
	lost := node.DeepCopy()
	lost.Status.Conditions[3].Status = corev1.ConditionUnknown
	for name, tc := range map[string]struct {
		node       *corev1.Node
		transition metav1.Time // of Ready
	}{
		"a healthy node stays as it is":           {node, noon},
		"a node that was considered dead is back": {lost, later},
		"conditions of others are kept":           {withNodeCondition(node), noon},
		"a node without conditions is new":        {&corev1.Node{}, later},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(tc.node.Status.Conditions)
			status := Heartbeat(tc.node, later)
			if want := max(before, len(nodeConditions)); len(status.Conditions) != want {
				t.Errorf("want %d conditions, got %d", want, len(status.Conditions))
			}
			for _, c := range status.Conditions {
				if c.Type != corev1.NodeReady {
					continue
				}
				if c.Status != corev1.ConditionTrue || c.LastHeartbeatTime != later || c.LastTransitionTime != tc.transition {
					t.Errorf("Ready: %+v", c)
				}
			}
		})
	}
}

func withNodeCondition(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "example.com/disk", Status: corev1.ConditionTrue})
	return node
}

func matchingStages(t *testing.T, kind internalversion.StageResourceRef, event *lifecycle.Event) []*lifecycle.Stage {
	t.Helper()
	all, err := readStages(stages.Files)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := lifecycle.NewLifecycle(all[kind])
	if err != nil {
		t.Fatal(err)
	}
	matching, err := steps.ListAllPossible(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	return matching
}

func deleted(pod *corev1.Pod, graceSeconds int64) *corev1.Pod {
	pod.DeletionTimestamp = &later
	pod.DeletionGracePeriodSeconds = &graceSeconds
	return pod
}

func annotated(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Annotations[key] = value
	return pod
}
