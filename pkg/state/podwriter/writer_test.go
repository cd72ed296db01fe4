package podwriter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/golden"
)

func permitted(pod *corev1.Pod, id string) lifecycle.Change {
	generation := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+id]
	permits := lifecycle.Permits{PreCheck: map[string]string{id: generation}}
	return lifecycle.Advance(lifecycle.NewPodFacts(pod), permits, lifecycle.Options{}, builders.Epoch.Add(time.Minute))
}

// TestPatches compares the requests with files that can be reviewed.
func TestPatches(t *testing.T) {
	waiting := builders.MakePod("web-0").Available().Waiting("a", "upgrade", builders.Epoch).Condition("example.com/other", true, "", builders.Epoch).Obj()
	waiting.ResourceVersion = "7"
	for key, value := range map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: "", corev1.PodDeletionCost: "-2147483647"} {
		metav1.SetMetaDataAnnotation(&waiting.ObjectMeta, key, value)
	}
	open := true
	for name, change := range map[string]lifecycle.Change{
		"permit":      permitted(waiting, "a"),
		"labels-only": {Set: map[string]string{"b": "2", "a": "1"}, Remove: []string{"c"}},
		"gate-only":   {Gate: &open},
		"annotations": {Annotations: map[string]*string{"example.com/why": new("<held>"), "example.com/old": nil}},
		"grant-of-a-delete": {
			Set:         map[string]string{appsv1alpha1.OperateLabelPrefix + "/" + appsv1alpha1.PodDeleteID: "1"},
			Annotations: map[string]*string{"example.com/old": nil},
		},
		"a-label-to-quote": {Set: map[string]string{`example.com/<"&>`: "ä\u2028"}},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := statusPatch(waiting, change, builders.Epoch.Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, patch, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			golden.Check(t, filepath.Join("testdata", name+".json"), got.String())
		})
	}
}

// fixture is a Writer over a server with one pod.
type fixture struct {
	writer *Writer
	client client.Client
	clock  *testingclock.FakePassiveClock
	events *events.FakeRecorder
	calls  int
	fail   error

	// stored is called once a patch is stored, and before its response; nil for nothing.
	stored func()
}

func newFixture(t *testing.T, pod *corev1.Pod) *fixture {
	t.Helper()
	f := &fixture{clock: testingclock.NewFakePassiveClock(builders.Epoch.Add(time.Minute)), events: events.NewFakeRecorder(100)}
	f.client = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pod).WithStatusSubresource(pod).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: f.patch}).Build()
	f.writer = New(f.client, f.events, f.clock)
	return f
}

// patch acts as the API server: it applies the labels of a patch of pods/status, and checks a UID as a
// precondition. The fake one does neither.
func (f *fixture) patch(
	ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	f.calls++
	if f.fail != nil {
		return f.fail
	}
	if subresource != "status" {
		return fmt.Errorf("patched subresource %q", subresource)
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	var sent struct {
		Metadata struct {
			UID    types.UID          `json:"uid"`
			Labels map[string]*string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	stored := &corev1.Pod{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), stored); err != nil {
		return err
	}
	if sent.Metadata.UID != stored.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, stored.Name, errors.New("the UID in the precondition differs"))
	}
	if err := c.SubResource(subresource).Patch(ctx, obj, patch, options...); err != nil {
		return err
	}
	labels, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": sent.Metadata.Labels}})
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, labels)); err != nil || f.stored == nil {
		return err
	}
	f.stored()
	return nil
}

func (f *fixture) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := f.client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "web-0"}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func (f *fixture) recorded() []string {
	recorded := []string{}
	for len(f.events.Events) > 0 {
		recorded = append(recorded, <-f.events.Events)
	}
	return recorded
}

func waitingPod() *corev1.Pod {
	return builders.MakePod("web-0").Available().Waiting("a", "upgrade", builders.Epoch).
		Condition("example.com/other", true, "Mine", builders.Epoch).Obj()
}

// TestAPermitIsOneRequest shows that it contains labels and gate, no condition of another owner, and
// has the events.
func TestAPermitIsOneRequest(t *testing.T) {
	f := newFixture(t, waitingPod())
	before := f.pod(t)
	change := permitted(before, "a")
	if err := f.writer.Write(t.Context(), before, change); err != nil {
		t.Fatal(err)
	}
	after := f.pod(t)
	if f.calls != 1 {
		t.Errorf("%d requests, want one", f.calls)
	}
	if diff := cmp.Diff(change.Apply(before.Labels), after.Labels); diff != "" {
		t.Errorf("labels differ (-want +got):\n%s", diff)
	}
	for _, condition := range before.Status.Conditions {
		if condition.Type == appsv1alpha1.ServiceReadyGate {
			continue
		}
		i := slices.IndexFunc(after.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
		if i < 0 || !cmp.Equal(condition, after.Status.Conditions[i]) {
			t.Errorf("condition %s has changed", condition.Type)
		}
	}
	if lifecycle.NewPodFacts(after).Gate != lifecycle.GateFalse {
		t.Error("the gate is not False")
	}
	want := []string{"Normal Permitted operation upgrade of id a passed its PreCheck rules after 60s: readiness gate False, traffic goes off"}
	if diff := cmp.Diff(want, f.recorded()); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
}

// TestAWriteIsConditional shows that it only succeeds on the very version of the decision.
func TestAWriteIsConditional(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   func(error) bool
	}{
		"an older pod":            {change: func(pod *corev1.Pod) { pod.ResourceVersion = "1" }, want: apierrors.IsConflict},
		"another pod of its name": {change: func(pod *corev1.Pod) { pod.UID = "another" }, want: apierrors.IsConflict},
		"a deleted pod":           {change: func(pod *corev1.Pod) { pod.Name = "web-1" }, want: apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, waitingPod())
			stored := f.pod(t)
			decided := stored.DeepCopy()
			change := permitted(decided, "a")
			tc.change(decided)
			if err := f.writer.Write(t.Context(), decided, change); !tc.want(err) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(stored, f.pod(t)); diff != "" {
				t.Errorf("the stored pod has changed (-want +got):\n%s", diff)
			}
			if recorded := f.recorded(); len(recorded) > 0 {
				t.Errorf("events of a failed write: %v", recorded)
			}
			if !f.writer.CaughtUp(decided) {
				t.Error("a failed write is recorded")
			}
		})
	}
}

// TestAConflictIsNotRepeated shows that no request is sent while the watch is behind and events of
// other pods lead to the same decision.
func TestAConflictIsNotRepeated(t *testing.T) {
	f := newFixture(t, waitingPod())
	behind := f.pod(t)
	behind.ResourceVersion = "1"
	write := func(pod *corev1.Pod) error { return f.writer.Write(t.Context(), pod, permitted(pod, "a")) }
	for range 3 {
		if err := write(behind); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
	}
	if f.calls != 1 {
		t.Errorf("%d requests for three conflicts with one pod, want 1", f.calls)
	}
	f.clock.SetTime(f.clock.Now().Add(StaleFor))
	if err := write(behind); !apierrors.IsConflict(err) || f.calls != 2 {
		t.Errorf("%d requests, %v: a pod without a watch event is not retried", f.calls, err)
	}
	if err := write(f.pod(t)); err != nil {
		t.Errorf("the current version: %v", err)
	}
}

func TestNothingToWrite(t *testing.T) {
	f := newFixture(t, waitingPod())
	if err := f.writer.Write(t.Context(), f.pod(t), lifecycle.Change{Wake: time.Minute}); err != nil || f.calls != 0 {
		t.Errorf("%d requests, %v", f.calls, err)
	}
}

func TestAnErrorIsReturned(t *testing.T) {
	f := newFixture(t, waitingPod())
	f.fail = errors.New("no route")
	if err := f.writer.Write(t.Context(), f.pod(t), permitted(f.pod(t), "a")); !errors.Is(err, f.fail) {
		t.Errorf("got %v, want %v", err, f.fail)
	}
}

// TestCaughtUp shows that a cache is behind until it shows the write, or a newer version.
func TestCaughtUp(t *testing.T) {
	f := newFixture(t, waitingPod())
	before := f.pod(t)
	if !f.writer.CaughtUp(before) {
		t.Error("the cache is behind on a pod that was never written")
	}
	write := func() {
		t.Helper()
		if err := f.writer.Write(t.Context(), f.pod(t), lifecycle.Change{Set: map[string]string{"n": fmt.Sprint(f.calls)}}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if f.writer.CaughtUp(before) {
		t.Error("the version before the write counts as caught up")
	}
	replaced := before.DeepCopy()
	replaced.UID = "another"
	if !f.writer.CaughtUp(replaced) {
		t.Error("a write to a pod affects another pod of its name")
	}
	if after := f.pod(t); !f.writer.CaughtUp(after) {
		t.Errorf("the written version %s does not count as caught up", after.ResourceVersion)
	}
	if f.writer.CaughtUp(before) {
		t.Error("the old version from another watch counts as caught up")
	}
	write()
	f.clock.SetTime(f.clock.Now().Add(sentTTL))
	if !f.writer.CaughtUp(before) {
		t.Error("a write never expires")
	}
}

// TestTheLastEmployerTakesTheAnnotationWithIt shows that an annotation without employers is removed.
func TestTheLastEmployerTakesTheAnnotationWithIt(t *testing.T) {
	pod := builders.MakePod("web-0").Available().Expect("Service/default/web", "prot.podopslifecycle.kusionstack.io/lb").Obj()
	patch, err := statusPatch(pod, lifecycle.Change{Forget: []string{"Service/default/web"}}, builders.Epoch)
	want := `{"metadata":{"annotations":{"pod.kusionstack.io/available-conditions":null},"resourceVersion":"` + pod.ResourceVersion + `","uid":"` + string(pod.UID) + `"}}`
	if string(patch) != want || err != nil {
		t.Errorf("patch %s, %v, want %s", patch, err, want)
	}
}
