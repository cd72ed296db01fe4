package lifecycle_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/sim"
)

// FuzzAdmitUpdate sends any labels, finalizers and annotation through admission and the
// controller: nothing panics, the checks of every call hold (checkedAdmitUpdate,
// checkedAdvance), CheckUpdate accepts the result of AdmitUpdate at any later time,
// and denies any label of PodOps that is added to it.
func FuzzAdmitUpdate(f *testing.F) {
	f.Add("", "", "", "", "", uint8(0), false)
	f.Add("", "operating/a=1 operation-type/a=upgrade", "prot.podopslifecycle.kusionstack.io/lb", "", "operate/a", uint8(1), false)
	f.Add("operating/a=1 operation-type/a=upgrade pre-checked/a=2 operation-permission/upgrade=2 operate/a=3",
		"operation-type/a=upgrade operate/a=3", "", "{", "service-available", uint8(2), false)
	f.Add("operated/a=1 post-check/a=2 done-operation-type/a=x", "undo-operation-type/a= operating/b=", "", "{}", "complete/b", uint8(7), true)
	f.Add("control=off operate/=9223372036854775807 pre-check/a=-1", "pre-check/a=9223372036854775806 /= a/b/c=d", "x", "null", "pre-check/a", uint8(12), false)
	f.Fuzz(func(t *testing.T, oldLabels, newLabels, finalizers, annotation, forged string, status uint8, trusted bool) {
		old := fuzzedPod(oldLabels, "", "", status)
		requested := fuzzedPod(newLabels, finalizers, annotation, status)
		checkRequest(t, lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(requested), trusted, longKey(forged))
		lifecycle.AdmitCreate(lifecycle.NewPodFacts(requested))
	})
}

// TestAnyUpdate does the same with label sets that are usually meaningful.
func TestAnyUpdate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(rapid.Custom(drawOwnedKey), rapid.Custom(drawClientKey))
		value := rapid.SampledFrom([]string{"1767225600000000000", "1767225600000000001", "upgrade", ""})
		status := rapid.Uint8().Draw(t, "status")
		pods := [2]*corev1.Pod{}
		for i, name := range []string{"old", "requested"} {
			pods[i] = fuzzedPod("", "", "", status)
			pods[i].Labels = rapid.MapOfN(key, value, 0, 12).Draw(t, name)
			if rapid.IntRange(0, 7).Draw(t, "uncontrolled if 0") > 0 {
				pods[i].Labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
			}
			pods[i].Finalizers = rapid.SampledFrom([][]string{{}, {lbFinalizer}}).Draw(t, "finalizers")
			expect(pods[i], drawFinalizers(t))
		}
		if rapid.Bool().Draw(t, "a stale copy") {
			maps.Copy(pods[1].Labels, pods[0].Labels)
		}
		trusted := rapid.Bool().Draw(t, "trusted")
		checkRequest(t, lifecycle.NewPodFacts(pods[0]), lifecycle.NewPodFacts(pods[1]), trusted, drawOwnedKey(t))
	})
}

// fuzzedPod reads labels as a script does. The bits of status are conditions.
func fuzzedPod(labels, finalizers, annotation string, status uint8) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	for _, word := range strings.Fields(labels) {
		key, value, _ := strings.Cut(word, "=")
		pod.Labels[longKey(key)] = value
	}
	if labels == "" && status&64 != 0 {
		pod.Labels = nil
	}
	pod.Finalizers = strings.Fields(finalizers)
	pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: annotation}
	if status&1 != 0 {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}
	}
	if status&2 != 0 {
		sim.SetCondition(pod, appsv1alpha1.ServiceReadyGate, status&4 != 0, "", epoch)
	}
	if status&8 != 0 {
		sim.SetCondition(pod, corev1.PodReady, status&16 != 0, "ReadinessGatesNotReady", epoch)
	}
	if status&32 != 0 {
		pod.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
	return pod
}

func checkRequest(t failer, old, requested lifecycle.PodFacts, trusted bool, forgedKey string) {
	t.Helper()
	opts := lifecycle.Options{Settle: time.Second}
	admission := checkedAdmitUpdate(t, old, requested, trusted, opts, epoch)
	if len(admission.Denials) > 0 {
		if len(lifecycle.DenialText(admission.Denials)) == 0 {
			t.Fatalf("a denial without a reason")
		}
		return
	}
	stored := requested
	stored.Labels = admission.Change.Apply(requested.Labels)
	for _, later := range []time.Duration{-time.Hour, 0, time.Hour} {
		if denials := lifecycle.CheckUpdate(old, stored, trusted, opts, epoch.Add(later)); len(denials) > 0 {
			t.Fatalf("CheckUpdate denies what AdmitUpdate produced: %v", denials)
		}
	}
	permits := lifecycle.Permits{PreCheck: map[string]string{"a": stored.Labels[longKey("pre-check/a")]}}
	checkedAdvance(t, stored, permits, opts, epoch.Add(time.Hour))
	checkForgery(t, old, stored, trusted, opts, forgedKey)
}

// checkForgery checks that a label of PodOps that a later webhook adds is denied. (For an id
// that the request ended, CheckUpdate cannot know how: an undo leaves no trace. It accepts
// the labels that a finish would have set, too.)
func checkForgery(t failer, old, stored lifecycle.PodFacts, trusted bool, opts lifecycle.Options, key string) {
	t.Helper()
	_, had := old.Labels[key]
	_, set := stored.Labels[key]
	_, id, _ := strings.Cut(key, "/")
	ended := slices.Contains(idsIn(old.Labels), id) && !slices.Contains(idsIn(stored.Labels), id)
	watched := !trusted && !old.Terminating && stored.Controlled()
	if had || set || ended || !watched || !lifecycle.IsOwned(key) {
		return
	}
	forged := stored
	forged.Labels = maps.Clone(stored.Labels)
	forged.Labels[key] = "1"
	if len(lifecycle.CheckUpdate(old, forged, false, opts, epoch)) == 0 {
		t.Fatalf("CheckUpdate lets %s pass", key)
	}
}
