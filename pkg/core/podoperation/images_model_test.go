package podoperation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/test/builders"
)

const repository = "registry.example.com/web"

// imageModel is a pod with two operations that may be cancelled, a person who sets its image, PodOps, and a kubelet that is behind. Clients read a cache that is behind,
// too, and write under the resourceVersion that they have read.
type imageModel struct {
	t          *rapid.T
	now        time.Time
	operations map[types.UID]*appsv1alpha1.PodOperation
	pod        *corev1.Pod
	cached     *corev1.Pod

	// seen is the pod that the kubelet has seen last, and late the time since when a container does not run its image.
	seen *corev1.Pod
	late time.Time

	// started counts the containers, and restarts is that number when a restart was written.
	started, restarts int

	// wanted is the image of the last update, by an operation or the person.
	wanted string

	// byPerson is whether the person has written the image of the spec, and failed whether an operation has ended for that.
	byPerson, failed bool
}

func newImageModel(t *rapid.T) *imageModel {
	m := &imageModel{
		t: t, now: builders.Epoch.Add(time.Hour), operations: map[types.UID]*appsv1alpha1.PodOperation{}, wanted: repository + ":v0", restarts: -1,
		pod: builders.MakePod("web-0").Label("app", "web").Obj(),
	}
	m.pod.Generation, m.pod.ResourceVersion, m.pod.Spec.TerminationGracePeriodSeconds = 1, "1", new(int64(5))
	m.pod.Spec.Containers[0].Image, m.pod.Status.Phase = m.wanted, corev1.PodRunning
	m.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
	m.late = m.now
	m.see()
	m.replace()
	m.cached = m.pod.DeepCopy()
	for i, uid := range []types.UID{"a", "b"} {
		operation := operationOf(rapid.SampledFrom([]appsv1alpha1.PodOperationActionType{
			appsv1alpha1.ActionRestart, appsv1alpha1.ActionUpdateImages,
		}).Draw(t, "action"))
		operation.UID, operation.Name = uid, string(uid)
		if update := operation.Spec.Action.UpdateImages; update != nil {
			update.Containers[0].Image = fmt.Sprintf("%s:v%d", repository, i+1)
		}
		m.operations[uid] = operation
	}
	return m
}

// stored counts a write of the pod.
func (m *imageModel) stored() { m.pod.ResourceVersion += "1" }

// see lets the kubelet see the pod, which it reports before it replaces a container.
func (m *imageModel) see() {
	m.seen = m.pod.DeepCopy()
	m.pod.Status.ObservedGeneration = m.seen.Generation
	m.stored()
}

// replace lets the kubelet run the image that it has seen. Its status has the tag, as from a runtime that pulled the image by its tag.
func (m *imageModel) replace() {
	image := m.seen.Spec.Containers[0].Image
	if m.running() != image || m.pod.Status.ContainerStatuses[0].State.Running == nil {
		m.start(image)
	}
}

func (m *imageModel) start(image string) {
	m.started++
	m.pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "main", ContainerID: fmt.Sprintf("%s#%d", image, m.started),
		Image: strings.Split(image, "@")[0], ImageID: repository + "@" + imageDigest(image),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.now)}},
	}
	m.stored()
}

// crash ends the container and starts it again, with the image of the spec. A kubelet that has not seen the spec could start the earlier one:
// its status is that of the successor.
func (m *imageModel) crash() {
	if m.running() == m.pod.Spec.Containers[0].Image && m.seen.Generation == m.pod.Generation {
		m.start(m.running())
	}
}

// stop ends a container that the kubelet is about to replace, and whose image it cannot pull yet.
func (m *imageModel) stop() {
	if m.running() != m.seen.Spec.Containers[0].Image {
		m.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
		m.stored()
	}
}

// running returns the image that the container was created with.
func (m *imageModel) running() string {
	return strings.Split(m.pod.Status.ContainerStatuses[0].ContainerID, "#")[0]
}

// imageDigest returns the digest in an image reference, or else the digest that its tag has.
func imageDigest(image string) string {
	if _, digest, found := strings.Cut(image, "@"); found {
		return digest
	}
	return "sha256:" + strings.Repeat(image[len(image)-1:], 64)
}

// setImage is kubectl set image.
func (m *imageModel) setImage(image string, byPerson bool) {
	if m.pod.Spec.Containers[0].Image != image {
		m.pod.Generation++
	}
	m.pod.Spec.Containers[0].Image, m.byPerson = image, byPerson
	m.stored()
}

// pass lets a second pass. A kubelet acts within 20 seconds.
func (m *imageModel) pass() {
	m.now = m.now.Add(time.Second)
	if m.running() == m.pod.Spec.Containers[0].Image && m.pod.Status.ContainerStatuses[0].State.Running != nil {
		m.late = m.now
	}
	if m.now.Sub(m.late) > 20*time.Second {
		m.see()
		m.replace()
	}
}

// round decides and writes for one operation.
func (m *imageModel) round(uid types.UID) {
	operation := m.operations[uid]
	decision := podoperation.Decide(podoperation.Snapshot{Operation: operation, Pods: []*corev1.Pod{m.cached}, Now: m.now})
	operation.Status = *decision.Status.DeepCopy()
	for _, step := range decision.Steps {
		m.write(operation, step)
	}
}

// write applies a step to the pod unless it has changed since it was read.
func (m *imageModel) write(operation *appsv1alpha1.PodOperation, step podoperation.Step) {
	if step.Pod.ResourceVersion != m.pod.ResourceVersion {
		return
	}
	id, action := podoperation.ID(operation.UID), operation.Spec.Action
	switch step.Kind {
	case podoperation.Begin:
		if waits, err := podoperation.Check(action, m.pod, m.now); waits != "" || err != nil {
			return
		}
		if podoperation.IsDone(action, m.pod) {
			m.record(operation.UID, podoperation.Record{Done: true})
			break
		}
		m.pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id] = "1"
	case podoperation.Operate:
		images, record, err := podoperation.Images(action, m.pod)
		if err != nil {
			m.t.Fatal(err)
		}
		m.record(operation.UID, record)
		if image, found := images["main"]; found {
			m.operate(action, image)
		}
	case podoperation.Finish, podoperation.Undo:
		if step.Kind == podoperation.Undo && !operation.Spec.Cancel || step.Record.Failed != "" && !m.byPerson {
			m.t.Fatalf("the operation %s has failed: %+v", operation.Name, step.Record)
		}
		m.failed = m.failed || step.Record.Failed != ""
		if step.Kind == podoperation.Finish || step.Record.Failed != "" {
			m.record(operation.UID, step.Record)
		}
		delete(m.pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/"+id)
		delete(m.pod.Labels, appsv1alpha1.OperateLabelPrefix+"/"+id)
		m.checkEnd()
	}
	m.stored()
}

// operate writes an image. A restart writes another name for the image of the last update.
func (m *imageModel) operate(action appsv1alpha1.PodOperationAction, image string) {
	m.setImage(image, false)
	if action.Type == appsv1alpha1.ActionUpdateImages {
		m.wanted = image
		return
	}
	m.restarts = m.started
	if imageDigest(image) != imageDigest(m.wanted) {
		m.t.Fatalf("a restart puts %s in the place of %s", image, m.wanted)
	}
}

func (m *imageModel) record(uid types.UID, record podoperation.Record) {
	m.pod.Annotations = maps.Clone(m.pod.Annotations)
	if m.pod.Annotations == nil {
		m.pod.Annotations = map[string]string{}
	}
	m.pod.Annotations[podoperation.RecordKey(uid)] = record.String()
}

// checkEnd checks that no running container is replaced after the last lifecycle has ended, unless the person wants that.
func (m *imageModel) checkEnd() {
	image, runs := m.pod.Spec.Containers[0].Image, m.pod.Status.ContainerStatuses[0].State.Running != nil
	if !m.isDuring() && !m.byPerson && runs && m.running() != image {
		m.t.Fatalf("the pod serves again with a container that runs %s, and its kubelet is about to run %s", m.running(), image)
	}
}

func (m *imageModel) isDuring() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(m.pod.Labels)), func(key string) bool {
		return strings.HasPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/")
	})
}

// grant lets PodOps permit the operations that have begun.
func (m *imageModel) grant(uid types.UID) {
	id := podoperation.ID(uid)
	if _, began := m.pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id]; began {
		m.pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] = "1"
		m.stored()
	}
}

func (m *imageModel) settle() {
	for range 200 {
		m.see()
		m.replace()
		m.pass()
		for _, uid := range []types.UID{"a", "b"} {
			m.grant(uid)
			m.cached = m.pod.DeepCopy()
			m.round(uid)
		}
		if !m.isDuring() && m.operations["a"].Status.CompletionTime != nil && m.operations["b"].Status.CompletionTime != nil {
			return
		}
	}
	m.t.Fatalf("the operations do not end: %+v, %+v, %+v", m.operations["a"].Status, m.operations["b"].Status, m.pod)
}

// TestImagesOfSpecs runs two operations, each a restart or an update, and kubectl set image on one pod. It ends with the image of the last
// update, a restart has restarted it, and none serves while its container is about to be replaced.
func TestImagesOfSpecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newImageModel(t)
		sets := 0
		of := func(do func(types.UID)) func(*rapid.T) {
			return func(t *rapid.T) { do(rapid.SampledFrom([]types.UID{"a", "b"}).Draw(t, "operation")) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"a round": of(m.round),
			"a round with a new cache": of(func(uid types.UID) {
				m.cached = m.pod.DeepCopy()
				m.round(uid)
			}),
			"permits": func(*rapid.T) {
				m.grant("a")
				m.grant("b")
			},
			"the cache catches up": func(*rapid.T) { m.cached = m.pod.DeepCopy() },
			"the kubelet sees":     func(*rapid.T) { m.see() },
			"the kubelet replaces": func(*rapid.T) { m.replace() },
			"the kubelet stops":    func(*rapid.T) { m.stop() },
			"a container crashes":  func(*rapid.T) { m.crash() },
			"a second passes":      func(*rapid.T) { m.pass() },
			"a person cancels": of(func(uid types.UID) {
				m.operations[uid].Spec.Cancel = true
			}),
			"a person sets the image": func(t *rapid.T) {
				if sets++; sets <= 2 {
					m.wanted = fmt.Sprintf("%s:v%d", repository, rapid.IntRange(1, 2).Draw(t, "version"))
					m.setImage(m.wanted, true)
				}
			},
		})
		m.settle()
		m.see()
		m.replace()
		if image := m.pod.Spec.Containers[0].Image; imageDigest(image) != imageDigest(m.wanted) || m.running() != image {
			t.Fatalf("the spec has %s, and %s runs, want %s", image, m.running(), m.wanted)
		}
		if m.restarts == m.started && !m.failed {
			t.Fatal("a restart has restarted no container")
		}
	})
}

func TestAContainerThatCrashesBeforeItsImageIsSeenIsNotReplaced(t *testing.T) {
	operation := operationOf(appsv1alpha1.ActionRestart)
	operation.Status.StartTime = new(metav1.NewTime(builders.Epoch))
	id, pod := podoperation.ID("op"), runningPod("web-0")
	pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id], pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] = "1", "1"
	annotate(pod, podoperation.Record{Containers: map[string]string{"main": "id-before"}})
	pod.Generation = 2
	for observed, want := range map[int64]int{1: 0, 2: 1} {
		pod.Status.ObservedGeneration = observed
		if steps := podoperation.Decide(podoperation.Snapshot{Operation: operation, Pods: []*corev1.Pod{pod}, Now: builders.Epoch}).Steps; len(steps) != want {
			t.Errorf("generation %d was observed: got %v, want %d steps", observed, steps, want)
		}
	}
}
