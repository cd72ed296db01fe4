package operator

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podfields"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// fill sets every field of a value, two levels of lists deep.
func fill(value reflect.Value, depth int) {
	switch value.Kind() {
	case reflect.String:
		value.SetString("text")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(7)
	case reflect.Pointer:
		if depth > 0 {
			value.Set(reflect.New(value.Type().Elem()))
			fill(value.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			fill(value.Index(0), depth-1)
		}
	case reflect.Map:
		key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fill(key, depth)
		fill(element, depth-1)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, element)
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[metav1.Time]() {
			value.Set(reflect.ValueOf(metav1.NewTime(builders.Epoch)))
			return
		}
		for i := range value.NumField() {
			if value.Field(i).CanSet() {
				fill(value.Field(i), depth)
			}
		}
	default:
	}
}

// paths are the dotted names of all fields below a type, with an entry of each map, and with the items that are named "text".
func paths(of reflect.Type, prefix string, depth int) []string {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	found := []string{prefix, prefix + "['text']"}
	if of.Kind() == reflect.Slice && depth > 0 {
		for _, name := range []string{"kind", "name", "type"} {
			found = append(found, paths(of.Elem(), prefix+"["+name+"=text]", depth-1)...)
		}
	}
	if of.Kind() != reflect.Struct || depth == 0 {
		return found
	}
	for _, field := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			found = append(found, paths(field.Type, prefix+"."+name, depth-1)...)
		}
	}
	return found
}

// TestSlimPodKeepsWhatWebhookRulesMaySend shows that each path that a rule may name has the same value.
func TestSlimPodKeepsWhatWebhookRulesMaySend(t *testing.T) {
	full := &corev1.Pod{}
	fill(reflect.ValueOf(full).Elem(), 4)
	slim := slimmed(t, full)
	checked := 0
	for _, root := range []string{"metadata", "spec", "status"} {
		field, _ := reflect.TypeFor[corev1.Pod]().FieldByNameFunc(func(name string) bool {
			return strings.EqualFold(name, root) || root == "metadata" && name == "ObjectMeta"
		})
		for _, path := range paths(field.Type, root, 5) {
			if podfields.Validate(path) != nil {
				continue
			}
			checked++
			want, _ := podfields.Value(full, path)
			if got, _ := podfields.Value(slim, path); got != want || want == "" {
				t.Errorf("%s is %q, want %q", path, got, want)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d paths were checked, there are more", checked)
	}
}

// slimmed returns a copy with the fields that slimPod keeps.
func slimmed(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	slim := pod.DeepCopy()
	slimPod(slim)
	again := slim.DeepCopy()
	slimPod(again)
	if !reflect.DeepEqual(slim, again) {
		t.Errorf("a second pass changes the pod: %+v, then %+v", slim, again)
	}
	return slim
}

// production is a pod as clusters have them, in the middle of a lifecycle.
func production() *corev1.Pod {
	pod := builders.MakePod("web-7d4b9c6f5d-x2x9z").Node("node-1").
		Label("app", "web").Available().Waiting("a", "upgrade", builders.Epoch).
		OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "rs"}).Obj()
	pod.Annotations = map[string]string{
		"team": "payments", appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["a"]}`,
		corev1.LastAppliedConfigAnnotation: `{"metadata":{},"spec":{}}`,
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	pod.CreationTimestamp = metav1.NewTime(builders.Epoch)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready"}}
	pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "example.com/other"})
	pod.Spec.Containers = []corev1.Container{
		{Name: "web", Image: "web:v1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, Ports: []corev1.ContainerPort{{ContainerPort: 1}, {Name: "http", ContainerPort: 8080}}},
		{Name: "sidecar", Image: "sidecar:v1", Ports: []corev1.ContainerPort{{ContainerPort: 9090}}},
	}
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "setup", Image: "setup:v1"},
		{Name: "mesh", Image: "mesh:v1", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "mesh", ContainerPort: 15006}}},
	}
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, RestartCount: 2, ContainerID: "containerd://1b2c"}}
	return pod
}

// TestComponentsReadTheSameOfASlimPod as of the pod that the API server has.
func TestComponentsReadTheSameOfASlimPod(t *testing.T) {
	disrupted, finished, terminating := production(), production(), production()
	disrupted.Status.Conditions = append(disrupted.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	finished.Status.Phase = corev1.PodFailed
	terminating.DeletionTimestamp = &metav1.Time{Time: builders.Epoch}
	applied := production()
	applied.Annotations[corev1.LastAppliedConfigAnnotation] = strings.Repeat("x", 300)
	for name, full := range map[string]*corev1.Pod{
		"waiting": production(), "disrupted": disrupted, "finished": finished, "terminating": terminating,
		"applied with kubectl": applied, "just created": builders.MakePod("new").Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			slim := slimmed(t, full)
			if diff := cmp.Diff(read(t, full), read(t, slim)); diff != "" {
				t.Errorf("components read something else (-full +slim):\n%s", diff)
			}
			if slim.Spec.Volumes != nil || slim.ManagedFields != nil || len(slim.Status.ContainerStatuses) > 0 && slim.Status.ContainerStatuses[0].ContainerID != "" {
				t.Error("the pod is not slim")
			}
		})
	}
}

// reading has the fields that components read of a pod.
type reading struct {
	Facts     lifecycle.PodFacts
	Fact      rule.PodFact
	Requests  []rule.Request
	Available bool
	Deletion  deferreddelete.Decision
	Unguarded deferreddelete.Reason
	Statuses  resourceconsist.PodEmployeeStatuses
	Ports     map[string]int32
}

func read(t *testing.T, pod *corev1.Pod) reading {
	t.Helper()
	pod = pod.DeepCopy()
	statuses, err := resourceconsist.GetCommonPodEmployeeStatus(pod)
	if err != nil {
		t.Fatal(err)
	}
	unguarded, _ := deferreddelete.Unguarded(pod, deferreddelete.OwnerPresent, false)
	r := reading{
		Facts: lifecycle.NewPodFacts(pod), Available: podstate.Available(pod), Unguarded: unguarded,
		Deletion: deferreddelete.Decide(deferreddelete.Review{Pod: pod, Actor: deferreddelete.ActorClient}),
		Statuses: statuses, Ports: map[string]int32{},
	}
	for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, port := range container.Ports {
			if port.Name != "" {
				r.Ports[port.Name] = port.ContainerPort
			}
		}
	}
	index := podindex.NewIndex(func(string) {})
	pod.ResourceVersion = "7"
	if err := index.PodStore().Replace([]any{pod}, "7"); err != nil {
		t.Fatal(err)
	}
	index.SetRule(&appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "all", UID: types.UID("all")},
		Spec: appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
			appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue,
		}}},
	})
	view := index.Snapshot(pod.Namespace, func(*appsv1alpha1.PodTransitionRule) bool { return true })
	for _, fact := range view.Rules[0].Pods {
		r.Fact = *fact
	}
	for _, request := range view.Waiting {
		request.Pod = nil
		r.Requests = append(r.Requests, request)
	}
	return r
}

func TestSlimPodKeepsStatusesWhileAPodOperationOperates(t *testing.T) {
	pod := production()
	pod.Labels[operatedLabel+"1"] = "1"
	slim := slimmed(t, pod)
	container, status := slim.Spec.Containers[0], slim.Status.ContainerStatuses[0]
	if container.Image != pod.Spec.Containers[0].Image || status.ContainerID != pod.Status.ContainerStatuses[0].ContainerID || container.Env != nil {
		t.Errorf("got %+v, %+v", container, status)
	}
	delete(pod.Labels, operatedLabel+"1")
	want := []corev1.ContainerStatus{{Name: "web", Ready: true, RestartCount: 2}}
	if diff := cmp.Diff(want, slimmed(t, pod).Status.ContainerStatuses); diff != "" {
		t.Errorf("statuses of another pod (-want +got):\n%s", diff)
	}
}

func TestSlimPodKeepsTheNameOfTheLastEphemeralContainer(t *testing.T) {
	pod := production()
	for _, name := range []string{"debugger-1", "debugger-2"} {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "busybox"},
		})
	}
	want := []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger-2"}}}
	if diff := cmp.Diff(want, slimmed(t, pod).Spec.EphemeralContainers); diff != "" {
		t.Errorf("ephemeral containers (-want +got):\n%s", diff)
	}
}
