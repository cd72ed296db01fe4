package podoperation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/test/builders"
)

func resizeOf(cpu string) *appsv1alpha1.ResizeAction {
	return &appsv1alpha1.ResizeAction{Containers: []appsv1alpha1.ContainerResources{
		{Name: "main", Requests: &appsv1alpha1.ResizableResources{CPU: new(resource.MustParse(cpu))}},
	}}
}

func TestImages(t *testing.T) {
	const registry = "registry.example.com:5000/team/web"
	for sentence, tc := range map[string]struct {
		image, imageID string
		want           string // empty: it fails
	}{
		"a tag gets the digest that runs":     {registry + ":v1", registry + "@" + digest, registry + ":v1@" + digest},
		"no tag gets the digest, too":         {registry, registry + "@" + digest, registry + "@" + digest},
		"a short name stays short":            {"nginx:1", "docker.io/library/nginx@" + digest, "nginx:1@" + digest},
		"a tag with a digest loses the tag":   {registry + ":v1@" + digest, "other", registry + "@" + digest},
		"a digest alone gets a tag":           {registry + "@" + digest, "other", registry + ":restarted@" + digest},
		"an image that was never pulled":      {registry + ":v1", digest, ""},
		"an imageID of cri-dockerd":           {registry + ":v1", "docker-pullable://" + registry + "@" + digest, registry + ":v1@" + digest},
		"an image that was built on the node": {registry + ":v1", "docker://" + digest, ""},
		"no imageID":                          {registry + ":v1", "", ""},
		"an image that cannot be parsed":      {"UPPER:v1", registry + "@" + digest, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := runningPod("web-0")
			pod.Spec.Containers[0].Image, pod.Status.ContainerStatuses[0].ImageID = tc.image, tc.imageID
			images, record, err := podoperation.Images(appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart}, pod)
			if tc.want == "" {
				if err == nil {
					t.Fatalf("got %v", images)
				}
				return
			}
			if err != nil || images["main"] != tc.want || record.Containers["main"] != "id-0" {
				t.Fatalf("got %v, %+v, %v; want %s", images, record, err, tc.want)
			}
			if again := runningPod("web-0"); tc.want != "" {
				again.Spec.Containers[0].Image, again.Status.ContainerStatuses[0].ImageID = tc.want, tc.imageID
				next, _, err := podoperation.Images(appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart}, again)
				if err != nil || next["main"] == tc.want || !strings.HasSuffix(next["main"], "@"+digest) {
					t.Errorf("the next restart: %v, %v; want another reference of the digest", next, err)
				}
			}
		})
	}
}

func TestImagesLeavesOutContainersThatRunThem(t *testing.T) {
	action := appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionUpdateImages, UpdateImages: &appsv1alpha1.UpdateImagesAction{
		Containers: []appsv1alpha1.ContainerImage{{Name: "main", Image: "registry.example.com/web:v1"}},
	}}
	images, record, err := podoperation.Images(action, runningPod("web-0"))
	if err != nil || len(images) > 0 || len(record.Containers) > 0 {
		t.Errorf("got %v, %+v, %v", images, record, err)
	}
}

func TestImagesKeepsTheRepository(t *testing.T) {
	for image, want := range map[string]string{
		"registry.example.com/web:v2":        "",
		"registry.example.com/web@" + digest: "",
		"registry.example.com/other:v1":      "registry.example.com/other",
		"registry.example.com:5000/web:v1":   "registry.example.com:5000/web",
		"web:v1":                             "web",
		"other.example.com/web:v1@" + digest: "other.example.com/web",
		"registry.example.com/web/sub:v1":    "registry.example.com/web/sub",
	} {
		t.Run(image, func(t *testing.T) {
			action := appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionUpdateImages, UpdateImages: &appsv1alpha1.UpdateImagesAction{
				Containers: []appsv1alpha1.ContainerImage{{Name: "main", Image: image}},
			}}
			images, _, err := podoperation.Images(action, runningPod("web-0"))
			if want == "" {
				if err != nil || images["main"] != image {
					t.Fatalf("got %v, %v", images, err)
				}
				return
			}
			message := "container main has an image of the repository registry.example.com/web, and not of " + want +
				": change the template of the owner instead"
			if err == nil || err.Error() != message {
				t.Fatalf("got %v, %v; want the error %q", images, err, message)
			}
		})
	}
}

// TestCheck shows the checks of an action before the lifecycle of a pod begins.
func TestCheck(t *testing.T) {
	restart := appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart}
	update := func(container, image string) appsv1alpha1.PodOperationAction {
		return appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionUpdateImages, UpdateImages: &appsv1alpha1.UpdateImagesAction{
			Containers: []appsv1alpha1.ContainerImage{{Name: container, Image: image}},
		}}
	}
	waiting := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
		}
	}
	reports := func(image string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Image = image }
	}
	for sentence, tc := range map[string]struct {
		action appsv1alpha1.PodOperationAction
		edit   func(*corev1.Pod)
		waits  string // a part of it
		fails  string // a part of it
	}{
		"a running container restarts":    {action: restart},
		"one in CrashLoopBackOff, too":    {action: restart, edit: waiting("CrashLoopBackOff")},
		"not while it is created":         {action: restart, edit: waiting("ContainerCreating"), waits: "runs registry.example.com/web:v1 (ContainerCreating)"},
		"nor when its image is not found": {action: restart, edit: waiting("ImagePullBackOff"), waits: "(ImagePullBackOff)"},
		"nor without a status":            {action: restart, edit: func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }, waits: "has a status"},
		"nor while the status is older than the spec": {
			action: restart, edit: func(pod *corev1.Pod) { pod.Generation, pod.Status.ObservedGeneration = 3, 2 }, waits: "of its newest spec",
		},
		"nor while another tag runs": {action: restart, edit: reports("registry.example.com/web:v0"), waits: "its kubelet reports registry.example.com/web:v0"},
		"names of images are compared as they are meant": {action: restart, edit: func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Image, pod.Status.ContainerStatuses[0].Image = "nginx", "docker.io/library/nginx:latest"
		}},
		"an ID of an image is not compared": {action: restart, edit: reports(digest)},
		"a digest in the spec needs no status": {action: restart, edit: func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Image += "@" + digest
			pod.Generation, pod.Status.ObservedGeneration = 3, 2
		}},
		"an image that was never pulled":               {action: restart, edit: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].ImageID = digest }, fails: "delete the pod instead"},
		"an update of a container that does not exist": {action: update("wbe", "registry.example.com/web:v2"), fails: "no container wbe"},
		"an update of a sidecar": {action: update("proxy", "registry.example.com/proxy:v2"), edit: func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		}, fails: "proxy is an init container or a sidecar"},
		"a restart of a debugger": {action: appsv1alpha1.PodOperationAction{
			Type: appsv1alpha1.ActionRestart, Restart: &appsv1alpha1.RestartAction{Containers: []string{"debug"}},
		}, edit: func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		}, fails: "debug is an ephemeral container"},
		"an update to another repository":        {action: update("main", "registry.example.com/other:v2"), fails: "not of registry.example.com/other"},
		"an update while the image is not found": {action: update("main", "registry.example.com/web:v2"), edit: waiting("ImagePullBackOff")},
		"a delete":                               {action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionDelete}},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := runningPod("web-0")
			if tc.edit != nil {
				tc.edit(pod)
			}
			waits, err := podoperation.Check(tc.action, pod, builders.Epoch)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if (waits == "") != (tc.waits == "") || (err == nil) != (tc.fails == "") || !strings.Contains(waits, tc.waits) || !strings.Contains(message, tc.fails) {
				t.Errorf("waits %q, fails with %q; want %q and %q", waits, message, tc.waits, tc.fails)
			}
		})
	}
}

// TestPodsThatCannotBeginYet shows that they serve, that no pod of the partition begins in their place, and that the operation goes on.
func TestPodsThatCannotBeginYet(t *testing.T) {
	pending, first, last := runningPod("web-0"), runningPod("web-1"), runningPod("web-2")
	pending.UID, first.UID, last.UID = "a", "b", "c"
	operation := &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "operation", UID: "op", CreationTimestamp: metav1.NewTime(builders.Epoch), Finalizers: []string{appsv1alpha1.PodOperationFinalizer},
	}}
	operation.Spec.Action.Type = appsv1alpha1.ActionRestart
	operation.Spec.Target.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	operation.Spec.Partition = new(intstr.FromInt32(1))
	operation.Status.StartTime = new(metav1.NewTime(builders.Epoch))
	checked := builders.Epoch.Add(time.Minute)
	snapshot := podoperation.Snapshot{Operation: operation, Pods: []*corev1.Pod{pending, first, last},
		Blocked: map[types.UID]podoperation.Blocked{"a": {Message: "waits", At: checked}}}
	for now, want := range map[time.Time]string{checked: "Begin web-1", checked.Add(podoperation.BlockedDelay): "Begin web-0"} {
		snapshot.Now = now
		decision := podoperation.Decide(snapshot)
		var begun []string
		for _, step := range decision.Steps {
			begun = append(begun, string(step.Kind)+" "+step.Pod.Name)
		}
		if begun[0] != want || decision.Status.Waiting != 3 || decision.Status.Pods[0].Message != "waits" {
			t.Errorf("status %+v; steps %v, want first %q", decision.Status, begun, want)
		}
		if now.Equal(checked) && (len(begun) != 1 || decision.Wake == 0 || decision.Wake > time.Minute) {
			t.Errorf("again after %v; steps %v, want one and a check of the other", decision.Wake, begun)
		}
	}
}

func TestOrder(t *testing.T) {
	pods := func(names ...string) []*corev1.Pod {
		var all []*corev1.Pod
		for i, name := range names {
			pod := runningPod(name)
			pod.CreationTimestamp = metav1.NewTime(builders.Epoch.Add(-time.Duration(i) * time.Minute))
			all = append(all, pod)
		}
		return all
	}
	for sentence, tc := range map[string]struct {
		order appsv1alpha1.PodOperationOrder
		names []string
		want  string
	}{
		"by name, numbers by value": {want: "web web-2 web-10 web-a"},
		"by name, on request":       {order: appsv1alpha1.OrderName, names: []string{"web-a", "web-2"}, want: "web-2 web-a"},
		"by name, reversed":         {order: appsv1alpha1.OrderReverseName, want: "web-a web-10 web-2 web"},
		"the oldest first":          {order: appsv1alpha1.OrderOldestFirst, want: "web web-a web-2 web-10"},
		"the newest first":          {order: appsv1alpha1.OrderNewestFirst, want: "web-10 web-2 web-a web"},
		"names in their order":      {names: []string{"web-a", "web-2", "web-10"}, want: "web-a web-2 web-10"},
	} {
		t.Run(sentence, func(t *testing.T) {
			operation := operationOf(appsv1alpha1.ActionRestart)
			operation.Spec.Order = tc.order
			if len(tc.names) > 0 {
				operation.Spec.Target = appsv1alpha1.PodOperationTarget{Names: tc.names}
			}
			decision := decide(t, operation, nil, pods("web-10", "web-2", "web-a", "web"))
			var got []string
			for _, step := range decision.Steps {
				got = append(got, step.Pod.Name)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}

// decide decides about pods that the selector includes, a minute after the operation was created.
func decide(t *testing.T, operation *appsv1alpha1.PodOperation, replicaSets sets.Set[types.UID], pods []*corev1.Pod) podoperation.Decision {
	t.Helper()
	selector, err := podoperation.NewSelector(operation, replicaSets)
	if err != nil {
		t.Fatal(err)
	}
	included := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !selector.Includes(pod) })
	return podoperation.Decide(podoperation.Snapshot{Operation: operation, Pods: included, Now: builders.Epoch.Add(time.Minute)})
}

func TestTargets(t *testing.T) {
	controlledBy := func(kind, name string) *corev1.Pod {
		pod := builders.MakePod("web").Label("app", "web").OwnedBy(metav1.OwnerReference{Kind: kind, Name: name, UID: types.UID(name + "-uid")}).Obj()
		return pod
	}
	change := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := runningPod("web")
		change(pod)
		return pod
	}
	owner := func(kind, name string) appsv1alpha1.PodOperationTarget {
		return appsv1alpha1.PodOperationTarget{Owner: &appsv1alpha1.PodOperationOwner{Kind: kind, Name: name}}
	}
	web := operationOf(appsv1alpha1.ActionRestart).Spec.Target
	for sentence, tc := range map[string]struct {
		target appsv1alpha1.PodOperationTarget
		pod    *corev1.Pod
		want   bool
	}{
		"a pod of the selector":            {web, runningPod("web"), true},
		"a pod of another label":           {web, change(func(pod *corev1.Pod) { pod.Labels["app"] = "other" }), false},
		"a pod that is newer":              {web, change(func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(builders.Epoch.Add(time.Second)) }), false},
		"a pod of the same second":         {web, change(func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(builders.Epoch) }), true},
		"a pod that has ended":             {web, change(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), false},
		"a pod that terminates":            {web, change(func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(builders.Epoch)) }), false},
		"a pod by its name":                {appsv1alpha1.PodOperationTarget{Names: []string{"web"}}, runningPod("web"), true},
		"a pod of another name":            {appsv1alpha1.PodOperationTarget{Names: []string{"web-0"}}, runningPod("web"), false},
		"a pod of a StatefulSet":           {owner("StatefulSet", "db"), controlledBy("StatefulSet", "db"), true},
		"a pod of another StatefulSet":     {owner("StatefulSet", "db"), controlledBy("StatefulSet", "web"), false},
		"a pod of another kind":            {owner("StatefulSet", "db"), controlledBy("DaemonSet", "db"), false},
		"a pod without a controller":       {owner("StatefulSet", "db"), runningPod("web"), false},
		"a pod of a Deployment":            {owner("Deployment", "web"), controlledBy("ReplicaSet", "web-1"), true},
		"a pod of a ReplicaSet of another": {owner("Deployment", "web"), controlledBy("ReplicaSet", "other-1"), false},
		"a pod that another label has, but the lifecycle": {web, change(func(pod *corev1.Pod) {
			pod.Labels["app"] = "other"
			pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+podoperation.ID("op")] = "1"
		}), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			operation := operationOf(appsv1alpha1.ActionRestart)
			operation.Spec.Target = tc.target
			decision := decide(t, operation, sets.New[types.UID]("web-1-uid"), []*corev1.Pod{tc.pod})
			if got := decision.Status.Total-decision.Status.Gone == 1; got != tc.want {
				t.Errorf("target: %t, status %+v", got, decision.Status)
			}
		})
	}
}

// TestANameWithoutAPodIsNotCountedAsOperatedOn has a delete of two names, of which one has no pod at the start.
func TestANameWithoutAPodIsNotCountedAsOperatedOn(t *testing.T) {
	operation := operationOf(appsv1alpha1.ActionDelete)
	operation.Spec.Target = appsv1alpha1.PodOperationTarget{Names: []string{"web-0", "typo"}}
	type counts struct{ Total, Preparing, Succeeded, Gone int32 }
	preparing := runningPod("web-0")
	preparing.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+podoperation.ID("op")] = "1"
	for _, tc := range []struct {
		sentence string
		pods     []*corev1.Pod
		want     counts
	}{
		{"at the start", []*corev1.Pod{runningPod("web-0")}, counts{Total: 2, Gone: 1}},
		{"while the pod waits", []*corev1.Pod{preparing}, counts{Total: 2, Preparing: 1, Gone: 1}},
		{"at the end", nil, counts{Total: 2, Succeeded: 1, Gone: 1}},
	} {
		s := decide(t, operation, nil, tc.pods).Status
		if diff := cmp.Diff(tc.want, counts{s.Total, s.Preparing, s.Succeeded, s.Gone}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.sentence, diff)
		}
		operation.Status = s
	}
	ready := meta.FindStatusCondition(operation.Status.Conditions, appsv1alpha1.ConditionReady)
	if ready.Message != "1 of 2 pods have been operated on; 1 are gone" {
		t.Errorf("%+v", ready)
	}
}

func TestConditions(t *testing.T) {
	for sentence, tc := range map[string]struct {
		change                     func(*appsv1alpha1.PodOperation)
		pods                       []*corev1.Pod
		reason                     string
		ready, reconciling, stalls bool
		message                    string
	}{
		"it begins":                    {pods: []*corev1.Pod{runningPod("a")}, reason: appsv1alpha1.ReasonInProgress, reconciling: true, message: "0 of 1 pods have been operated on"},
		"it names no pod":              {reason: appsv1alpha1.ReasonNoTargets, stalls: true, message: "names no running pod"},
		"its pods have it behind them": {pods: []*corev1.Pod{recorded("a", podoperation.Record{Done: true})}, reason: appsv1alpha1.ReasonSucceeded, ready: true, message: "1 of 1"},
		"a pod failed": {
			pods:   []*corev1.Pod{recorded("a", podoperation.Record{Failed: "no container"}), runningPod("b")},
			reason: appsv1alpha1.ReasonPodsFailed, stalls: true, message: "1 failed",
		},
		"it is suspended": {
			change: func(o *appsv1alpha1.PodOperation) { o.Spec.Suspend = true }, pods: []*corev1.Pod{runningPod("a")},
			reason: appsv1alpha1.ReasonSuspended, reconciling: true, message: "spec.suspend",
		},
		"it is cancelled": {
			change: func(o *appsv1alpha1.PodOperation) { o.Spec.Cancel = true }, pods: []*corev1.Pod{runningPod("a")},
			reason: appsv1alpha1.ReasonCancelled, stalls: true, message: "has not started",
		},
		"it is late": {
			change: func(o *appsv1alpha1.PodOperation) {
				o.Spec.DeadlineSeconds, o.Status.StartTime = new(int32(5)), new(metav1.NewTime(builders.Epoch))
			},
			pods: []*corev1.Pod{runningPod("a")}, reason: appsv1alpha1.ReasonDeadlineExceeded, stalls: true, message: "deadlineSeconds",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			operation := operationOf(appsv1alpha1.ActionRestart)
			if tc.change != nil {
				tc.change(operation)
			}
			status := decide(t, operation, nil, tc.pods).Status
			ready := meta.FindStatusCondition(status.Conditions, appsv1alpha1.ConditionReady)
			if ready == nil || ready.Reason != tc.reason || !strings.Contains(ready.Message, tc.message) || ready.ObservedGeneration != 1 {
				t.Errorf("got %+v, want reason %s, message %q", ready, tc.reason, tc.message)
			}
			got := fmt.Sprint(meta.IsStatusConditionTrue(status.Conditions, appsv1alpha1.ConditionReady),
				meta.IsStatusConditionTrue(status.Conditions, appsv1alpha1.ConditionReconciling), meta.IsStatusConditionTrue(status.Conditions, appsv1alpha1.ConditionStalled))
			if want := fmt.Sprint(tc.ready, tc.reconciling, tc.stalls); got != want {
				t.Errorf("Ready, Reconciling, Stalled: got %s, want %s", got, want)
			}
		})
	}
}

func recorded(name string, record podoperation.Record) *corev1.Pod {
	pod := runningPod(name)
	annotate(pod, record)
	return pod
}

func TestAMalformedRecordIsAFailure(t *testing.T) {
	for _, value := range []string{"{", "7", strings.Repeat("x", appsv1alpha1.MaxAnnotationBytes+1)} {
		pod := runningPod("a")
		pod.Annotations = map[string]string{podoperation.RecordKey("op"): value}
		if status := decide(t, operationOf(appsv1alpha1.ActionRestart), nil, []*corev1.Pod{pod}).Status; status.Failed != 1 {
			t.Errorf("%.10s: got %+v", value, status)
		}
	}
}

func TestTheStatusAndARoundAreBounded(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 300 {
		pods = append(pods, recorded(fmt.Sprint("web-", i), podoperation.Record{Failed: strings.Repeat("x", 5000)}))
		pods = append(pods, runningPod(fmt.Sprint("new-", i)))
	}
	status := decide(t, operationOf(appsv1alpha1.ActionRestart), nil, pods).Status
	if len(status.Pods) != appsv1alpha1.MaxStatusPods || len(status.Pods[0].Message) > appsv1alpha1.MaxPodMessageBytes {
		t.Errorf("%d pods are listed, with messages of %d bytes", len(status.Pods), len(status.Pods[0].Message))
	}
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return len(pod.Annotations) > 0 })
	if decision := decide(t, operationOf(appsv1alpha1.ActionRestart), nil, pods); len(decision.Steps) != podoperation.MaxSteps || !decision.More {
		t.Errorf("%d steps, more: %t", len(decision.Steps), decision.More)
	}
}

func TestAResizeThatIsInfeasibleFails(t *testing.T) {
	pod := runningPod("a")
	for _, prefix := range []string{appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.OperateLabelPrefix} {
		pod.Labels[prefix+"/"+podoperation.ID("op")] = "1"
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.02")}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "node too small",
	}}
	steps := decide(t, operationOf(appsv1alpha1.ActionResize), nil, []*corev1.Pod{pod}).Steps
	want := []podoperation.Step{{Kind: podoperation.Finish, Pod: pod, Record: podoperation.Record{Failed: "the kubelet cannot resize the pod: node too small"}}}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAResizeThatFollowsAnInfeasibleOne has the condition of an earlier generation, and a kubelet without generations that
// has applied the resize.
func TestAResizeThatFollowsAnInfeasibleOne(t *testing.T) {
	for name, observed := range map[string]int64{"of an earlier generation": 2, "without a generation": 0} {
		pod := runningPod("a")
		pod.Generation = 3
		for _, prefix := range []string{appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.OperateLabelPrefix} {
			pod.Labels[prefix+"/"+podoperation.ID("op")] = "1"
		}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.02")}
		pod.Status.ContainerStatuses[0].Resources = &pod.Spec.Containers[0].Resources
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "node too small", ObservedGeneration: observed,
		}}
		steps := decide(t, operationOf(appsv1alpha1.ActionResize), nil, []*corev1.Pod{pod}).Steps
		want := []podoperation.Step{{Kind: podoperation.Finish, Pod: pod, Record: podoperation.Record{Done: true}}}
		if diff := cmp.Diff(want, steps); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestACancelledOperation has a pod on which its change is written. It gets traffic again once its kubelet does not replace containers any more.
func TestACancelledOperation(t *testing.T) {
	for name, tc := range map[string]struct {
		action appsv1alpha1.PodOperationActionType
		change func(*corev1.PodStatus)
		ends   bool
	}{
		"the container from before runs":      {appsv1alpha1.ActionRestart, func(*corev1.PodStatus) {}, false},
		"the image of the new one is missing": {appsv1alpha1.ActionRestart, func(s *corev1.PodStatus) { s.ContainerStatuses[0].State = corev1.ContainerState{} }, true},
		"the new one runs":                    {appsv1alpha1.ActionRestart, func(s *corev1.PodStatus) { s.ContainerStatuses[0].ContainerID = "id-new" }, true},
		"the resize is not applied":           {appsv1alpha1.ActionResize, func(*corev1.PodStatus) {}, false},
		"the resize waits for room": {appsv1alpha1.ActionResize, func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred}}
		}, true},
	} {
		operation := operationOf(tc.action)
		operation.Spec.Cancel, operation.Finalizers, operation.Status.StartTime = true, []string{appsv1alpha1.PodOperationFinalizer}, new(metav1.NewTime(builders.Epoch))
		pod := recorded("a", podoperation.Record{})
		if tc.action == appsv1alpha1.ActionRestart {
			annotate(pod, podoperation.Record{Containers: map[string]string{"main": pod.Status.ContainerStatuses[0].ContainerID}})
		}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.02")}
		for _, prefix := range []string{appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.OperateLabelPrefix} {
			pod.Labels[prefix+"/"+podoperation.ID("op")] = "1"
		}
		tc.change(&pod.Status)
		for _, completed := range []*metav1.Time{nil, new(metav1.NewTime(builders.Epoch))} {
			operation.Status.CompletionTime = completed
			decision := decide(t, operation, nil, []*corev1.Pod{pod})
			if ends := len(decision.Steps) == 1 && decision.Steps[0].Kind == podoperation.Finish; ends != tc.ends || decision.Release {
				t.Errorf("%s: got %+v, release %t, want the end of the lifecycle %t", name, decision.Steps, decision.Release, tc.ends)
			}
		}
	}
}

func TestAnEndedOperationIsDeletedInTime(t *testing.T) {
	operation := operationOf(appsv1alpha1.ActionRestart)
	operation.Spec.TTLSecondsAfterFinished = new(int32(60))
	ended := metav1.NewTime(builders.Epoch.Add(30 * time.Second))
	operation.Status.CompletionTime = &ended
	if d := decide(t, operation, nil, nil); d.Delete || d.Wake != 30*time.Second {
		t.Errorf("got %+v", d)
	}
	ended = metav1.NewTime(builders.Epoch)
	if d := decide(t, operation, nil, nil); !d.Delete {
		t.Errorf("got %+v", d)
	}
}

func TestARemovalWaitsUntilReplacementsAreNewer(t *testing.T) {
	operation := operationOf(appsv1alpha1.ActionDelete)
	at := func(age time.Duration) podoperation.Decision {
		return podoperation.Decide(podoperation.Snapshot{Operation: operation, Pods: []*corev1.Pod{runningPod("a")}, Now: builders.Epoch.Add(age)})
	}
	if early := at(900 * time.Millisecond); len(early.Steps) > 0 || early.Status.StartTime != nil || early.Wake != 100*time.Millisecond {
		t.Errorf("got %+v", early)
	}
	if due := at(time.Second); len(due.Steps) != 1 || due.Status.StartTime == nil {
		t.Errorf("got %+v", due)
	}
}

func TestAnOperationWaitsForOthersOfItsNamespace(t *testing.T) {
	operation := operationOf(appsv1alpha1.ActionRestart)
	snapshot := podoperation.Snapshot{Operation: operation, Pods: []*corev1.Pod{runningPod("a")}, Full: true, Now: builders.Epoch.Add(time.Minute)}
	queued := podoperation.Decide(snapshot)
	ready := meta.FindStatusCondition(queued.Status.Conditions, appsv1alpha1.ConditionReady)
	if len(queued.Steps) > 0 || queued.Status.StartTime != nil || ready.Reason != appsv1alpha1.ReasonQueued {
		t.Errorf("got %+v", queued)
	}
	operation.Status.StartTime = new(metav1.NewTime(builders.Epoch))
	if started := podoperation.Decide(snapshot); len(started.Steps) != 1 {
		t.Errorf("an operation in progress stops: %+v", started)
	}
}
