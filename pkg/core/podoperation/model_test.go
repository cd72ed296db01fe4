package podoperation_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/test/builders"
)

// model is an operation and its pods, with everything that acts on them: PodOps, kubelets, a controller
// that replaces removed pods, and a manager that may stop between any two writes.
type model struct {
	t         *rapid.T
	operation *appsv1alpha1.PodOperation
	pods      map[string]*corev1.Pod
	now       time.Time

	operated map[string]int // how often the action was carried out, by name
	allowed  int32          // the most pods that may be operated on, by the lowest partition so far
	stopped  bool           // cancelled, deleted or past the deadline, and reported
	created  int

	// replacements are the pods that were created for removed ones.
	replacements map[string]bool
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, pods: map[string]*corev1.Pod{}, now: builders.Epoch.Add(time.Hour), operated: map[string]int{}, replacements: map[string]bool{}}
	action := rapid.SampledFrom([]appsv1alpha1.PodOperationActionType{
		appsv1alpha1.ActionRestart, appsv1alpha1.ActionUpdateImages, appsv1alpha1.ActionResize, appsv1alpha1.ActionDelete, appsv1alpha1.ActionEvict,
	}).Draw(t, "action")
	m.operation = operationOf(action)
	m.operation.CreationTimestamp = metav1.NewTime(m.now)
	m.operation.Spec.Order = rapid.SampledFrom([]appsv1alpha1.PodOperationOrder{
		"", appsv1alpha1.OrderReverseName, appsv1alpha1.OrderOldestFirst, appsv1alpha1.OrderNewestFirst,
	}).Draw(t, "order")
	for range rapid.IntRange(1, 8).Draw(t, "pods") {
		m.create(m.now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Second))
	}
	m.partition()
	return m
}

// operationOf returns an operation on the pods of the label app=web.
func operationOf(action appsv1alpha1.PodOperationActionType) *appsv1alpha1.PodOperation {
	spec := appsv1alpha1.PodOperationSpec{
		Target: appsv1alpha1.PodOperationTarget{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Action: appsv1alpha1.PodOperationAction{Type: action},
	}
	if action == appsv1alpha1.ActionUpdateImages {
		spec.Action.UpdateImages = &appsv1alpha1.UpdateImagesAction{Containers: []appsv1alpha1.ContainerImage{{Name: "main", Image: "registry.example.com/web:v2"}}}
	}
	if action == appsv1alpha1.ActionResize {
		spec.Action.Resize = resizeOf("20m")
	}
	return &appsv1alpha1.PodOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operation", UID: "op", Generation: 1, CreationTimestamp: metav1.NewTime(builders.Epoch)},
		Spec:       spec,
	}
}

func (m *model) create(at time.Time) {
	pod := runningPod(fmt.Sprintf("web-%d", m.created))
	pod.CreationTimestamp = metav1.NewTime(at.Truncate(time.Second))
	m.created++
	m.pods[pod.Name] = pod
}

// runningPod returns a pod of the label app=web whose container runs.
func runningPod(name string) *corev1.Pod {
	pod := builders.MakePod(name).Label("app", "web").Obj()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", ContainerID: "id-0", ImageID: "registry.example.com/web@" + digest,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return pod
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// partition draws a partition. Raising it does not revert pods that were operated on.
func (m *model) partition() {
	m.operation.Spec.Partition = rapid.SampledFrom([]*intstr.IntOrString{nil, new(intstr.FromInt32(2)), new(intstr.FromString("50%")), new(intstr.FromInt32(99))}).Draw(m.t, "partition")
	total := max(m.operation.Status.Total, int32(len(m.targets())))
	left := int32(0)
	if p := m.operation.Spec.Partition; p != nil {
		count, err := intstr.GetScaledValueFromIntOrPercent(p, int(total), true)
		if err != nil {
			m.t.Fatal(err)
		}
		left = int32(count)
	}
	m.allowed = max(m.allowed, total-left)
}

// targets returns the included pods, in the order of a map.
func (m *model) targets() []*corev1.Pod {
	selector, err := podoperation.NewSelector(m.operation, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Collect(maps.Values(m.pods)), func(pod *corev1.Pod) bool { return !selector.Includes(pod) })
}

// round decides, checks the decision, and writes as much of it as the manager lives to write.
func (m *model) round(survives bool) podoperation.Decision {
	snapshot := podoperation.Snapshot{Operation: m.operation, Pods: m.targets(), Now: m.now}
	before := snapshotCopy(snapshot)
	decision := podoperation.Decide(snapshot)
	if diff := cmp.Diff(before, snapshot); diff != "" {
		m.t.Fatalf("Decide modified its argument:\n%s", diff)
	}
	reversed := snapshot
	reversed.Pods = slices.Clone(snapshot.Pods)
	slices.Reverse(reversed.Pods)
	if diff := cmp.Diff(decision, podoperation.Decide(reversed)); diff != "" {
		m.t.Fatalf("the decision depends on the order of the pods:\n%s", diff)
	}
	m.check(decision)
	if m.lives(survives) && decision.Protect {
		m.operation.Finalizers = []string{appsv1alpha1.PodOperationFinalizer}
	} else if decision.Protect {
		return decision
	}
	if !m.lives(survives) {
		return decision
	}
	m.operation.Status = *decision.Status.DeepCopy()
	m.stopped = m.stopped || m.operation.Spec.Cancel || decision.Status.CompletionTime != nil
	for _, step := range decision.Steps {
		if !m.lives(survives) {
			return decision
		}
		m.write(step)
	}
	if decision.Release {
		m.operation.Finalizers = nil
	}
	return decision
}

func (m *model) lives(survives bool) bool {
	return survives || rapid.IntRange(0, 5).Draw(m.t, "writes") > 0
}

// check checks the properties of every decision.
func (m *model) check(d podoperation.Decision) {
	s := d.Status
	if sum := s.Waiting + s.Preparing + s.Operating + s.Completing + s.Succeeded + s.Failed + s.Gone; sum != s.Total && m.operation.Status.CompletionTime == nil {
		m.t.Fatalf("the counts add up to %d, not to total: %+v", sum, s)
	}
	if len(s.Pods) > appsv1alpha1.MaxStatusPods || len(d.Steps) > podoperation.MaxSteps {
		m.t.Fatalf("%d pods are listed, and there are %d steps", len(s.Pods), len(d.Steps))
	}
	if len(d.Steps) > 0 && !d.Protect && len(m.operation.Finalizers) == 0 && m.operation.DeletionTimestamp == nil {
		m.t.Fatal("lifecycles begin without the finalizer")
	}
	if d.Release && slices.ContainsFunc(m.targets(), m.isDuring) {
		m.t.Fatal("the finalizer is removed while a lifecycle is left")
	}
	for _, step := range d.Steps {
		if step.Kind == podoperation.Begin && (m.stopped || s.CompletionTime != nil) {
			m.t.Fatal("a lifecycle begins after the end")
		}
	}
}

func (m *model) isDuring(pod *corev1.Pod) bool {
	_, during := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+podoperation.ID("op")]
	return during && pod.DeletionTimestamp == nil
}

// write applies a step as the API server and admission do.
func (m *model) write(step podoperation.Step) {
	pod, id := m.pods[step.Pod.Name], podoperation.ID("op")
	switch step.Kind {
	case podoperation.Begin:
		pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id] = "1"
		pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+id] = "1"
	case podoperation.Operate:
		if _, granted := pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id]; !granted {
			m.t.Fatalf("%s is operated on without operate", pod.Name)
		}
		m.operate(pod)
	case podoperation.Finish:
		m.endLifecycle(pod)
		annotate(pod, step.Record)
		pod.Labels[appsv1alpha1.OperatedLabelPrefix+"/"+id] = "1"
	case podoperation.Undo:
		if podoperation.IsOperated("op", pod) && m.operation.Status.CompletionTime == nil {
			m.t.Fatalf("%s is undone after it was operated on", pod.Name)
		}
		m.endLifecycle(pod)
	}
}

func annotate(pod *corev1.Pod, record podoperation.Record) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[podoperation.RecordKey("op")] = record.String()
}

func (m *model) endLifecycle(pod *corev1.Pod) {
	for _, prefix := range []string{appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.PreCheckLabelPrefix, appsv1alpha1.OperateLabelPrefix} {
		delete(pod.Labels, prefix+"/"+podoperation.ID("op"))
	}
}

// operate carries out the action.
func (m *model) operate(pod *corev1.Pod) {
	m.operated[pod.Name]++
	if count := int32(len(m.operated)); m.operated[pod.Name] > 1 || count > m.allowed {
		m.t.Fatalf("%s was operated on %d times; %d pods were, and %d may be", pod.Name, m.operated[pod.Name], count, m.allowed)
	}
	if m.replacements[pod.Name] || pod.CreationTimestamp.After(m.operation.CreationTimestamp.Time) {
		m.t.Fatalf("%s is newer than the operation", pod.Name)
	}
	switch action := m.operation.Spec.Action; {
	case podoperation.Removes(action):
		pod.DeletionTimestamp = new(metav1.NewTime(m.now))
	case action.Resize != nil:
		resources, err := podoperation.Resources(action, pod)
		if err != nil {
			m.t.Fatal(err)
		}
		pod.Spec.Containers[0].Resources = *resources["main"]
	default:
		images, record, err := podoperation.Images(action, pod)
		if err != nil {
			m.t.Fatal(err)
		}
		pod.Spec.Containers[0].Image = images["main"]
		annotate(pod, record)
	}
}

// act is a step of another actor on one pod.
func (m *model) act(pod *corev1.Pod) {
	id := podoperation.ID("op")
	_, checking := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+id]
	_, granted := pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id]
	status := &pod.Status.ContainerStatuses[0]
	switch {
	case pod.DeletionTimestamp != nil:
		delete(m.pods, pod.Name)
		m.replacements[fmt.Sprintf("web-%d", m.created)] = true
		m.create(m.now)
	case checking:
		delete(pod.Labels, appsv1alpha1.PreCheckLabelPrefix+"/"+id)
	case m.isDuring(pod) && !granted:
		pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] = "1"
	case granted && podoperation.IsOperated("op", pod):
		status.ContainerID = "id-1"
	case granted:
		status.Resources = &pod.Spec.Containers[0].Resources
	default:
		delete(pod.Labels, appsv1alpha1.OperatedLabelPrefix+"/"+id)
	}
}

// settle lets everything go on until nothing changes, and returns the last decision.
func (m *model) settle() podoperation.Decision {
	for range 200 {
		m.now = m.now.Add(time.Second)
		decision := m.round(true)
		if len(decision.Steps) == 0 && decision.Status.CompletionTime != nil && !decision.Release {
			return decision
		}
		for _, name := range slices.Sorted(maps.Keys(m.pods)) {
			m.act(m.pods[name])
		}
	}
	m.t.Fatalf("the operation does not end: %+v", m.operation.Status)
	return podoperation.Decision{}
}

func snapshotCopy(s podoperation.Snapshot) podoperation.Snapshot {
	s.Operation = s.Operation.DeepCopy()
	pods := make([]*corev1.Pod, len(s.Pods))
	for i := range s.Pods {
		pods[i] = s.Pods[i].DeepCopy()
	}
	s.Pods = pods
	return s
}

// TestSchedules runs operations beside everything that may happen meanwhile. Each pod is operated on at
// most once and only when operate is granted, the partition holds, and the operation ends and leaves
// nothing behind.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		some := func(do func(*corev1.Pod)) func(*rapid.T) {
			return func(t *rapid.T) {
				do(m.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(m.pods))).Draw(t, "pod")])
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"a round":               func(*rapid.T) { m.round(true) },
			"a round that stops":    func(*rapid.T) { m.round(false) },
			"another actor":         some(m.act),
			"another actor, again":  some(m.act),
			"time passes":           func(*rapid.T) { m.now = m.now.Add(time.Second) },
			"the partition changes": func(*rapid.T) { m.partition() },
			"suspend changes":       func(*rapid.T) { m.operation.Spec.Suspend = !m.operation.Spec.Suspend },
			"the workload grows":    func(*rapid.T) { m.create(m.now.Add(time.Second)) },
			"a target is cancelled": func(t *rapid.T) {
				m.operation.Spec.Cancel = m.operation.Spec.Cancel || rapid.IntRange(0, 9).Draw(t, "cancel") == 0
			},
			"a manager starts again": func(*rapid.T) {},
		})
		m.operation.Spec.Suspend, m.operation.Spec.Partition, m.allowed = false, nil, 1000
		ended := m.settle()
		if slices.ContainsFunc(slices.Collect(maps.Values(m.pods)), m.isDuring) || len(m.operation.Finalizers) > 0 {
			t.Fatal("a lifecycle or the finalizer is left")
		}
		if s := ended.Status; !m.operation.Spec.Cancel && (s.Succeeded != s.Total || int32(len(m.operated)) != s.Total) {
			t.Fatalf("%d pods were operated on: %+v", len(m.operated), s)
		}
	})
}
