package rolloutview_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/golden"
)

// at is a moment of a test, in seconds after the Epoch of the builders.
func at(seconds int) time.Time { return builders.Epoch.Add(time.Duration(seconds) * time.Second) }

const lbFinalizer = appsv1alpha1.ProtectionFinalizerPrefix + "/lb"

// rollout builds the objects of a Deployment in a rollout.
type rollout struct {
	target metav1.Object
	in     clusterstate.Snapshot
	sets   map[string]*appsv1.ReplicaSet
}

func controller(kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: &yes}}
}

// rolling returns the Deployment web with two ReplicaSets and no pod.
func rolling(desired int32) *rollout {
	r := &rollout{sets: map[string]*appsv1.ReplicaSet{}}
	r.target = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "web", Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "2"},
		},
		Spec: appsv1.DeploymentSpec{Replicas: &desired},
	}
	for name, revision := range map[string]string{"web-6d4f5c7b9d": "1", "web-7b9d8e6f5c": "2"} {
		r.sets[revision] = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), OwnerReferences: controller("Deployment", "web"),
			Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: revision},
		}}
		r.in.ReplicaSets = append(r.in.ReplicaSets, r.sets[revision])
	}
	return r
}

// pods adds so many pods of a revision, as built.
func (r *rollout) pods(revision string, count int, build func(*builders.PodBuilder) *builders.PodBuilder) *rollout {
	for range count {
		name := fmt.Sprintf("%s-%05d", r.sets[revision].Name, len(r.in.Pods))
		pod := build(builders.MakePod(name).OwnedBy(controller("ReplicaSet", r.sets[revision].Name)[0]).Label("app", "web").
			Expect("Service/default/web", lbFinalizer)).Obj()
		pod.CreationTimestamp = metav1.NewTime(at(0))
		r.in.Pods = append(r.in.Pods, pod)
	}
	return r
}

func serving(b *builders.PodBuilder) *builders.PodBuilder {
	return b.Available().Finalizer(lbFinalizer)
}

func waiting(b *builders.PodBuilder) *builders.PodBuilder {
	return b.Available().Finalizer(lbFinalizer).Waiting(appsv1alpha1.PodDeleteID, "delete", at(10))
}

func preparing(b *builders.PodBuilder) *builders.PodBuilder {
	return b.Finalizer(lbFinalizer).Preparing(appsv1alpha1.PodDeleteID, "delete")
}

func operating(b *builders.PodBuilder) *builders.PodBuilder {
	return b.Unready(at(15)).Allowed(appsv1alpha1.PodDeleteID, "delete")
}

func starting(b *builders.PodBuilder) *builders.PodBuilder { return b }

// rules adds the rules of the demo, which withhold the pods that wait.
func (r *rollout) rules(code, rule, message string) *rollout {
	quarter, one := intstr.FromString("25%"), intstr.FromInt32(1)
	web := &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Rules: []appsv1alpha1.TransitionRule{
				{Name: "availability", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &quarter}},
				{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{}},
				{Name: "trial", Enforcement: appsv1alpha1.EnforcementWarn, Rego: &appsv1alpha1.RegoRule{}},
				{Name: "off", Disabled: true, Rego: &appsv1alpha1.RegoRule{}},
			},
		},
	}
	web.Status.Desired = 12
	other := web.DeepCopy()
	other.Name, other.Spec.Selector.MatchLabels["app"] = "other", "db"
	for _, pod := range r.in.Pods {
		if _, waits := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+appsv1alpha1.PodDeleteID]; !waits {
			continue
		}
		if len(web.Status.Blocked) < appsv1alpha1.MaxStatusBlocked {
			web.Status.Blocked = append(web.Status.Blocked, appsv1alpha1.BlockedPod{Name: pod.Name, Rule: rule, Reason: code, Message: message})
			continue
		}
		_, name, _ := strings.Cut(rule, "/")
		detail, _ := json.Marshal(appsv1alpha1.Detail{RejectInfo: []appsv1alpha1.RejectInfo{{RuleName: name, Reason: code + ": " + message}}})
		pod.Annotations[appsv1alpha1.DetailAnnotationKey("web")] = string(detail)
	}
	r.in.Rules = append(r.in.Rules, web, other)
	r.in.Budgets = append(r.in.Budgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: web.Spec.Selector, MaxUnavailable: &one},
		Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 12, CurrentHealthy: 11, DesiredHealthy: 10},
	})
	return r
}

const noRoom = "9 of 12 pods are available; at least 9 must be (maxUnavailable 25%, at most 3 of 12 desired pods)"

// situations are views of a workload.
func situations() map[string]rolloutview.View {
	view := func(r *rollout) rolloutview.View { return rolloutview.Of(&r.in, r.target, at(20)) }
	mid := rolling(12).pods("1", 1, serving).pods("1", 4, waiting).pods("1", 2, preparing).pods("1", 1, operating).
		pods("2", 4, serving).pods("2", 4, starting).rules("NoRoom", "web/availability", noRoom)
	highest := 3
	demo := view(mid)
	demo.Highest, demo.Requests = &highest, &rolloutview.Requests{Sent: 1934}
	lost := view(rolling(12).pods("2", 12, serving))
	lost.Requests = &rolloutview.Requests{Sent: 1234567, Failed: 1234}
	script := rolling(2).pods("1", 2, waiting).rules("Denied", "web/approved", "部署を承認する人がまだいない: 部署を承認する人がまだいない, 部署を承認する人がまだいない")
	script.in.Unreadable = []clusterstate.Unreadable{{Resource: "endpointslices", Reason: "you may not read them"}}
	return map[string]rolloutview.View{
		"rolling": view(mid),
		"demo":    demo,
		"held":    view(rolling(12).pods("1", 12, waiting).pods("2", 3, starting).rules("LabelMismatch", "web/approved", `label demo.podops.dev/approved is missing, "true" is required`)),
		"done":    view(rolling(12).pods("2", 12, serving)),
		"lost":    lost,
		"many": view(rolling(480).pods("1", 300, serving).pods("1", 60, waiting).pods("1", 3, operating).
			pods("2", 120, serving).pods("2", 17, starting).rules("NoRoom", "web/availability", noRoom)),
		"wide characters": view(script),
		"nothing":         view(rolling(3)),
	}
}

func TestFrame(t *testing.T) {
	views := situations()
	for _, tc := range []struct {
		view          string
		width, height int
	}{
		{"rolling", 80, 24}, {"rolling", 40, 24}, {"rolling", 200, 60}, {"rolling", 80, 0}, {"rolling", 80, 10}, {"rolling", 20, 6},
		{"demo", 80, 24}, {"held", 80, 24}, {"done", 80, 24}, {"lost", 80, 24}, {"many", 80, 24}, {"many", 120, 50},
		{"wide characters", 60, 24}, {"nothing", 80, 24},
	} {
		t.Run(fmt.Sprintf("%s %dx%d", tc.view, tc.width, tc.height), func(t *testing.T) {
			frame := views[tc.view].Frame(tc.width, tc.height)
			file := fmt.Sprintf("%s-%dx%d.txt", strings.ReplaceAll(tc.view, " ", "-"), tc.width, tc.height)
			golden.Check(t, filepath.Join("testdata", file), frame.Text())
			fits(t, frame, tc.width, tc.height)
		})
	}
}

// fits checks that a frame has its size, and no line that ends in a space.
func fits(t *testing.T, frame rolloutview.Frame, width, height int) {
	t.Helper()
	if height > 0 && len(frame) > height {
		t.Errorf("frame has %d lines, more than %d", len(frame), height)
	}
	for _, line := range frame {
		if columns := rolloutview.Width(line.Text()); columns > width {
			t.Errorf("line has %d columns, more than %d: %s", columns, width, line.Text())
		}
		if strings.HasSuffix(line.Text(), " ") {
			t.Errorf("line ends in a space: %q", line.Text())
		}
	}
}

func TestFrameFitsIntoEverySize(t *testing.T) {
	for name, view := range situations() {
		for width := 1; width <= 130; width += 3 {
			for _, height := range []int{1, 2, 5, 9, 24, 50} {
				t.Run(fmt.Sprintf("%s %dx%d", name, width, height), func(t *testing.T) { fits(t, view.Frame(width, height), width, height) })
			}
		}
	}
}

// TestColorsAddNothing shows that the colored frame is the plain one with escape sequences around it.
func TestColorsAddNothing(t *testing.T) {
	frame := situations()["demo"].Frame(80, 24)
	if strings.Contains(frame.Text(), "\x1b") {
		t.Error("the plain frame has escape sequences")
	}
	colored := frame.Colored()
	for _, sequence := range []string{"\x1b[0m", "\x1b[1m", "\x1b[90m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"} {
		colored = strings.ReplaceAll(colored, sequence, "")
	}
	if diff := cmp.Diff(frame.Text(), colored); diff != "" {
		t.Errorf("without its escape sequences the colored frame differs (-plain +colored):\n%s", diff)
	}
}

// TestWithheldPodsComeFirst shows that of 500 pods the pods that a rule withholds are in the frame.
func TestWithheldPodsComeFirst(t *testing.T) {
	text := situations()["many"].Frame(80, 24).Text()
	if got := strings.Count(text, "PreCheck"); got < 8 {
		t.Errorf("%d pods in PreCheck are shown, want most of the lines:\n%s", got, text)
	}
	if !strings.Contains(text, "… and 137 more: 120 serving, 17 starting") {
		t.Errorf("the other pods are not counted:\n%s", text)
	}
}

func TestStateOfAWorkload(t *testing.T) {
	for name, want := range map[string]rolloutview.State{
		"held": rolloutview.StateWithheld, "done": rolloutview.StateComplete, "nothing": rolloutview.StateProgressing, "many": rolloutview.StateWithheld,
	} {
		if got := situations()[name].State; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	held := rolling(1).pods("2", 1, serving)
	held.target.(*appsv1.Deployment).Generation = 7
	if view := rolloutview.Of(&held.in, held.target, at(0)); view.Done() {
		t.Error("a Deployment whose controller has not observed its spec is complete")
	}
}

func TestEveryKindOfTarget(t *testing.T) {
	three := int32(3)
	pods := rolling(3).pods("1", 2, serving).pods("2", 1, serving).in.Pods
	for i, pod := range pods {
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = []string{"old", "new", "new"}[i]
		pod.Labels["pod-template-generation"] = []string{"1", "2", "2"}[i]
	}
	owned := func(kind string) []*corev1.Pod {
		var copies []*corev1.Pod
		for _, pod := range pods {
			other := pod.DeepCopy()
			other.OwnerReferences = controller(kind, "web")
			copies = append(copies, other)
		}
		return copies
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}
	generation := meta
	generation.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
	for name, tc := range map[string]struct {
		target metav1.Object
		pods   []*corev1.Pod
		want   string // kind, desired, available, updated, revisions
	}{
		"ReplicaSet": {
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}, owned("ReplicaSet"), "ReplicaSet 3 3 3 [web]",
		},
		"StatefulSet": {
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &three}, Status: appsv1.StatefulSetStatus{UpdateRevision: "new"}},
			owned("StatefulSet"), "StatefulSet 3 3 2 [old new]",
		},
		"DaemonSet": {
			&appsv1.DaemonSet{ObjectMeta: generation, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3}},
			owned("DaemonSet"), "DaemonSet 3 3 2 [old new]",
		},
		"PodTransitionRule": {
			&appsv1alpha1.PodTransitionRule{ObjectMeta: meta, Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}, Status: appsv1alpha1.PodTransitionRuleStatus{Desired: 3}},
			pods, "PodTransitionRule 3 3 3 [web-6d4f5c7b9d web-7b9d8e6f5c]",
		},
		"Pod": {pods[0], pods, "Pod 1 1 1 [web-6d4f5c7b9d]"},
	} {
		t.Run(name, func(t *testing.T) {
			view := rolloutview.Of(&clusterstate.Snapshot{Pods: tc.pods}, tc.target, at(0))
			var names []string
			for _, revision := range view.Revisions {
				names = append(names, revision.Name)
			}
			if got := fmt.Sprint(view.Kind, " ", view.Desired, " ", view.Available, " ", view.Updated, " ", names); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestTrafficOfServices shows that the finalizers of a traffic controller count, and EndpointSlices for
// Services without one.
func TestTrafficOfServices(t *testing.T) {
	r := rolling(3).pods("1", 2, serving).pods("1", 1, operating)
	ready, unready := true, false
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	}
	r.in.Services = []*corev1.Service{service("web"), service("plain"), {ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "external"}}}
	endpoint := func(pod int, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{UID: r.in.Pods[pod].UID}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	r.in.EndpointSlices = []*discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "plain"}},
		Endpoints:  []discoveryv1.Endpoint{endpoint(0, &ready), endpoint(1, &unready), endpoint(2, &unready)},
	}}
	view := rolloutview.Of(&r.in, r.target, at(0))
	want := []rolloutview.Traffic{{Name: "Service/web", Pods: 3, On: 2, By: "Finalizer"}, {Name: "Service/plain", Pods: 3, On: 1, By: "Endpoints"}}
	if diff := cmp.Diff(want, view.Traffic); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
	for _, pod := range view.AllPods() {
		if want := map[string]int{r.in.Pods[0].Name: 2, r.in.Pods[1].Name: 1, r.in.Pods[2].Name: 0}[pod.Name]; pod.Backends != 2 || pod.TrafficOn != want {
			t.Errorf("%s has traffic of %d of %d, want %d of 2", pod.Name, pod.TrafficOn, pod.Backends, want)
		}
	}
}

func TestTextFromObjectsIsOneLine(t *testing.T) {
	r := rolling(1).pods("1", 1, waiting).rules("Denied", "web/approved", "two\nlines \x1b[31mand an escape")
	text := rolloutview.Of(&r.in, r.target, at(20)).Frame(200, 0).Text()
	if strings.Contains(text, "\x1b") || !strings.Contains(text, `two lines \x1b[31mand an escape`) {
		t.Errorf("the message is not escaped:\n%s", text)
	}
}
