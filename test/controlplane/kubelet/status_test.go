package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const gate = "example.com/gate"

var (
	noon  = metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	later = metav1.NewTime(noon.Add(time.Minute))
)

// outcome holds the fields that a test checks after a step.
type outcome struct {
	Phase           corev1.PodPhase
	Ready           string // "True", or "False" and the reason
	ContainersReady string
	Initialized     string
	Containers      []string // name, image, state, restarts; init containers first
}

func TestSteps(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		step func(*corev1.Pod) corev1.PodStatus
		want outcome
	}{
		"a created pod waits for its containers": {
			newPod(),
			created,
			outcome{corev1.PodPending, "False ContainersNotReady", "False ContainersNotReady", "True", []string{"main app:1 waiting 0"}},
		},
		"a created pod with init containers is not initialized": {
			newPod(withInit),
			created,
			outcome{corev1.PodPending, "False ContainersNotReady", "False ContainersNotReady", "False ContainersNotInitialized",
				[]string{"setup app:1 waiting 0", "proxy app:1 waiting 0", "main app:1 waiting 0"}},
		},
		"a started pod is ready": {
			newPod(created),
			started,
			outcome{corev1.PodRunning, "True", "True", "True", []string{"main app:1 running 0"}},
		},
		"init containers have completed and sidecars run when a pod has started": {
			newPod(withInit, created),
			started,
			outcome{corev1.PodRunning, "True", "True", "True",
				[]string{"setup app:1 terminated 0", "proxy app:1 running 0", "main app:1 running 0"}},
		},
		"a gate without a condition keeps a started pod from being ready": {
			newPod(withGate(""), created),
			started,
			outcome{corev1.PodRunning, "False ReadinessGatesNotReady", "True", "True", []string{"main app:1 running 0"}},
		},
		"a pod gets ready when its gate opens": {
			newPod(withGate(""), created, started, withGate(corev1.ConditionTrue)),
			synced,
			outcome{corev1.PodRunning, "True", "True", "True", []string{"main app:1 running 0"}},
		},
		"a ready pod is not when its gate closes": {
			newPod(withGate(corev1.ConditionTrue), created, started, withGate(corev1.ConditionFalse)),
			synced,
			outcome{corev1.PodRunning, "False ReadinessGatesNotReady", "True", "True", []string{"main app:1 running 0"}},
		},
		"a probe that fails comes before a gate that is closed": {
			newPod(withGate(corev1.ConditionFalse), created, started, withAnnotation("true")),
			synced,
			outcome{corev1.PodRunning, "False ContainersNotReady", "False ContainersNotReady", "True", []string{"main app:1 running 0"}},
		},
		"a probe that succeeds again makes a pod ready": {
			newPod(withAnnotation("true"), created, started, withAnnotation("false")),
			synced,
			outcome{corev1.PodRunning, "True", "True", "True", []string{"main app:1 running 0"}},
		},
		"a new image stops the container": {
			newPod(created, started, withImage("app:2")),
			restarting,
			outcome{corev1.PodRunning, "False ContainersNotReady", "False ContainersNotReady", "True", []string{"main app:1 waiting 0"}},
		},
		"a container that was stopped for a new image restarts with it": {
			newPod(created, started, withImage("app:2"), restarting),
			started,
			outcome{corev1.PodRunning, "True", "True", "True", []string{"main app:2 running 1"}},
		},
		"restarts add up": {
			newPod(created, started, withImage("app:2"), restarting, started, withImage("app:3"), restarting),
			started,
			outcome{corev1.PodRunning, "True", "True", "True", []string{"main app:3 running 2"}},
		},
		"containers with an unchanged image are not restarted": {
			newPod(created, started),
			restarting,
			outcome{corev1.PodRunning, "True", "True", "True", []string{"main app:1 running 0"}},
		},
		"a stopped pod has succeeded and is not ready": {
			newPod(withGate(corev1.ConditionTrue), created, started),
			stopped,
			outcome{corev1.PodSucceeded, "False PodCompleted", "False PodCompleted", "True PodCompleted", []string{"main app:1 terminated 0"}},
		},
		"a pod that is stopped before it started is not ready either": {
			newPod(created),
			stopped,
			outcome{corev1.PodSucceeded, "False PodCompleted", "False PodCompleted", "True PodCompleted", []string{"main app:1 terminated 0"}},
		},
		"a failed pod stays failed": {
			newPod(created, started, func(p *corev1.Pod) corev1.PodStatus { p.Status.Phase = corev1.PodFailed; return p.Status }),
			stopped,
			outcome{corev1.PodFailed, "False PodFailed", "False PodFailed", "True", []string{"main app:1 terminated 0"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			status := tc.step(tc.pod)
			if diff := cmp.Diff(tc.want, see(status)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the step changed its argument:\n%s", diff)
			}
			if own := conditionOf(status, "example.com/own"); own != "True Mine" {
				t.Errorf("a foreign condition became %q", own)
			}
			if of := status.ObservedGeneration; of != tc.pod.Generation {
				t.Errorf("observed generation %d of %d", of, tc.pod.Generation)
			}
		})
	}
}

func TestCreatedGivesAddresses(t *testing.T) {
	status := Created(newPod(), "127.64.1.254", "127.64.1.1", noon)
	want := corev1.PodStatus{
		HostIP: "127.64.1.254", HostIPs: []corev1.HostIP{{IP: "127.64.1.254"}},
		PodIP: "127.64.1.1", PodIPs: []corev1.PodIP{{IP: "127.64.1.1"}}, StartTime: &noon,
	}
	got := corev1.PodStatus{HostIP: status.HostIP, HostIPs: status.HostIPs, PodIP: status.PodIP, PodIPs: status.PodIPs, StartTime: status.StartTime}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestTransitionTimeChangesOnlyWhenAConditionFlips(t *testing.T) {
	pod := newPod(withGate(corev1.ConditionTrue), created, started, withGate(corev1.ConditionFalse))
	status := Synced(pod, later)
	for of, want := range map[corev1.PodConditionType]metav1.Time{
		corev1.PodReady:        later, // True until now
		corev1.ContainersReady: noon,
		corev1.PodInitialized:  noon,
	} {
		for _, c := range status.Conditions {
			if c.Type == of && !c.LastTransitionTime.Equal(&want) {
				t.Errorf("%s: want %s, got %s", of, want, c.LastTransitionTime)
			}
		}
	}
}

// TestSyncedIsAFixedPoint checks that the patch for an unchanged pod is empty; otherwise
// kwok would send patches forever.
func TestSyncedIsAFixedPoint(t *testing.T) {
	for name, pod := range map[string]*corev1.Pod{
		"ready":         newPod(created, started),
		"gate closed":   newPod(withGate(corev1.ConditionFalse), created, started),
		"probe failing": newPod(withAnnotation("true"), created, started),
		"sidecars":      newPod(withInit, created, started),
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := podPatch(pod, Synced(pod, later))
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"metadata":{"uid":"uid-1"}}`; patch != want {
				t.Errorf("want %s, got %s", want, patch)
			}
		})
	}
}

func TestRestartedContainersHaveTheirLastState(t *testing.T) {
	pod := newPod(created, started)
	before := pod.Status.ContainerStatuses[0]
	for _, change := range []func(*corev1.Pod) corev1.PodStatus{withImage("app:2"), restarting, started} {
		pod.Status = change(pod)
	}
	after := pod.Status.ContainerStatuses[0]
	if last := after.LastTerminationState.Terminated; last == nil || last.ContainerID != before.ContainerID {
		t.Errorf("last state: %+v", after.LastTerminationState)
	}
	if after.ContainerID == before.ContainerID || after.ImageID == before.ImageID {
		t.Errorf("container %s, image %s did not change", after.ContainerID, after.ImageID)
	}
}

func TestHasStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod before its kubelet": {newPod(), false},
		"a created pod":            {newPod(created), false},
		"a running pod":            {newPod(created, started), false},
		"a stopped pod":            {newPod(created, started, stopped), true},
	} {
		if got := HasStopped(tc.pod); got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}

// newPod returns a pod after changes, each by the status it returns.
func newPod(changes ...func(*corev1.Pod) corev1.PodStatus) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "default", UID: "uid-1", Generation: 3, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main", Image: "app:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: noon},
			{Type: "example.com/own", Status: corev1.ConditionTrue, Reason: "Mine"},
		}},
	}
	for _, change := range changes {
		pod.Status = change(pod)
	}
	return pod
}

func created(p *corev1.Pod) corev1.PodStatus    { return Created(p, "127.64.1.254", "127.64.1.1", noon) }
func started(p *corev1.Pod) corev1.PodStatus    { return Started(p, noon) }
func synced(p *corev1.Pod) corev1.PodStatus     { return Synced(p, noon) }
func restarting(p *corev1.Pod) corev1.PodStatus { return Restarting(p, noon) }
func stopped(p *corev1.Pod) corev1.PodStatus    { return Stopped(p, noon) }

// withInit adds an init container and a sidecar.
func withInit(p *corev1.Pod) corev1.PodStatus {
	p.Spec.InitContainers = []corev1.Container{
		{Name: "setup", Image: "app:1"},
		{Name: "proxy", Image: "app:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	return p.Status
}

// withGate adds a readiness gate and its condition; "" is none.
func withGate(status corev1.ConditionStatus) func(*corev1.Pod) corev1.PodStatus {
	return func(p *corev1.Pod) corev1.PodStatus {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
		changed := *p.Status.DeepCopy()
		changed.Conditions = nil
		for _, c := range p.Status.Conditions {
			if c.Type != gate {
				changed.Conditions = append(changed.Conditions, c)
			}
		}
		if status != "" {
			changed.Conditions = append(changed.Conditions, corev1.PodCondition{Type: gate, Status: status})
		}
		return changed
	}
}

func withAnnotation(value string) func(*corev1.Pod) corev1.PodStatus {
	return func(p *corev1.Pod) corev1.PodStatus {
		p.Annotations[NotReadyAnnotationKey] = value
		return p.Status
	}
}

func withImage(image string) func(*corev1.Pod) corev1.PodStatus {
	return func(p *corev1.Pod) corev1.PodStatus {
		p.Spec.Containers[0].Image = image
		return p.Status
	}
}

func see(status corev1.PodStatus) outcome {
	o := outcome{
		Phase:           status.Phase,
		Ready:           conditionOf(status, corev1.PodReady),
		ContainersReady: conditionOf(status, corev1.ContainersReady),
		Initialized:     conditionOf(status, corev1.PodInitialized),
	}
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, s := range statuses {
			state := "waiting"
			if s.State.Running != nil {
				state = "running"
			} else if s.State.Terminated != nil {
				state = "terminated"
			}
			o.Containers = append(o.Containers, strings.Join([]string{s.Name, s.Image, state, string('0' + s.RestartCount)}, " "))
		}
	}
	return o
}

func conditionOf(status corev1.PodStatus, of corev1.PodConditionType) string {
	for _, c := range status.Conditions {
		if c.Type == of {
			return strings.TrimSpace(string(c.Status) + " " + c.Reason)
		}
	}
	return ""
}
