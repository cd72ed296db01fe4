package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/prune"
	"github.com/podops-dev/podops/test/builders"
)

// large returns a pod of the size that pods have, with all that admission reads.
func large() *corev1.Pod {
	controller, pod := true, builders.MakePod("web-0").Available().Waiting("a", "upgrade", builders.Epoch).Obj()
	pod.ResourceVersion, pod.CreationTimestamp = "17", metav1.NewTime(builders.Epoch)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: &controller}}
	pod.Finalizers = []string{appsv1alpha1.ProtectionFinalizerPrefix + "/web"}
	pod.Annotations = map[string]string{
		appsv1alpha1.AvailableConditionsAnnotationKey: `{"expectedFinalizers":{"Service/default/web":"prot.podopslifecycle.kusionstack.io/web"}}`,
		appsv1alpha1.SettleTimeAnnotationKey:          "3s", appsv1alpha1.GateSyncPolicyAnnotationKey: appsv1alpha1.GateSyncHold, "team": `"a"\ü`,
	}
	pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "example.com/other"})
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(builders.Epoch)},
		corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "text"})
	fields := metav1.NewFieldsV1("{" + strings.TrimSuffix(strings.Repeat(`"k:{\"name\":\"WEB_SETTING\"}":{".":{},"f:name":{},"f:value":{}},`, 100), ",") + "}")
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: fields}}
	for i := range 3 {
		container := corev1.Container{Name: fmt.Sprintf("web-%d", i), Image: "registry.example.com/web:v1"}
		for variable := range 20 {
			container.Env = append(container.Env, corev1.EnvVar{
				Name: fmt.Sprintf("WEB_SETTING_%02d", variable), Value: "https://backend.payments.svc.cluster.local:8443/api/v1",
			})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

func encoded(t testing.TB, pod *corev1.Pod) []byte {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestDecodeFieldsChangesNoDecision compares a pod with few fields with the whole pod.
func TestDecodeFieldsChangesNoDecision(t *testing.T) {
	terminating := large()
	terminating.DeletionTimestamp = &metav1.Time{Time: builders.Epoch}
	for name, pod := range map[string]*corev1.Pod{
		"an empty pod":        {},
		"a large pod":         large(),
		"a terminating pod":   terminating,
		"a pod that prepares": builders.MakePod("web-0").Preparing("a", "upgrade").Obj(),
		"a pod that failed":   builders.MakePod("web-0").Phase(corev1.PodFailed).Obj(),
		"a pod of a node":     builders.MakePod("web-0").Annotation(corev1.MirrorPodAnnotationKey, "x").Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			raw := encoded(t, pod)
			whole := &corev1.Pod{}
			if err := json.Unmarshal(raw, whole); err != nil {
				t.Fatal(err)
			}
			got, err := decodeFields(raw, keptFields())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(lifecycle.NewPodFacts(whole), lifecycle.NewPodFacts(got), cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
				t.Errorf("facts (-whole pod +fields):\n%s", diff)
			}
			for _, review := range reviews() {
				ofWhole, ofFields := review, review
				ofWhole.Pod, ofFields.Pod = whole, got
				if want, got := deferreddelete.Decide(ofWhole), deferreddelete.Decide(ofFields); got != want {
					t.Errorf("the decision about %+v is %+v, want %+v", review, got, want)
				}
			}
			if want, got := deferreddelete.OwnerKind(whole), deferreddelete.OwnerKind(got); got != want {
				t.Errorf("OwnerKind is %q, want %q", got, want)
			}
			whole.TypeMeta, whole.ManagedFields, whole.CreationTimestamp = metav1.TypeMeta{}, nil, metav1.Time{}
			whole.Spec = corev1.PodSpec{
				ReadinessGates: whole.Spec.ReadinessGates, TerminationGracePeriodSeconds: whole.Spec.TerminationGracePeriodSeconds,
			}
			whole.Status = corev1.PodStatus{Phase: whole.Status.Phase, Conditions: whole.Status.Conditions}
			if diff := cmp.Diff(whole, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheRequestedStatusChangesNoDecision compares decisions about a requested pod without its status with those about
// the whole pod.
func TestTheRequestedStatusChangesNoDecision(t *testing.T) {
	options, now := lifecycle.Options{Settle: time.Second}, builders.Epoch.Add(time.Hour)
	begin := map[string]string{appsv1alpha1.OperatingLabelPrefix + "/b": "1", appsv1alpha1.OperationTypeLabelPrefix + "/b": "restart"}
	for name, labels := range map[string]map[string]string{
		"an id begins": begin, "nothing changes": {}, "another id begins without a type": {appsv1alpha1.OperatingLabelPrefix + "/c": "1"},
		"a forged label": {appsv1alpha1.OperateLabelPrefix + "/a": "1"}, "an id is undone": {appsv1alpha1.UndoOperationTypeLabelPrefix + "/a": "upgrade"},
		"the pod leaves PodOps": {appsv1alpha1.ControlLabelKey: "no"},
	} {
		for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed} {
			for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
				for before, old := range map[string]*corev1.Pod{"waits": large(), "prepares": builders.MakePod("web-0").Preparing("a", "upgrade").Obj()} {
					requested := old.DeepCopy()
					maps.Copy(requested.Labels, labels)
					requested.Status.Phase = phase
					for i := range requested.Status.Conditions {
						requested.Status.Conditions[i].Status = ready
					}
					fields, err := decodeFields(encoded(t, requested), requestedFields())
					if err != nil {
						t.Fatal(err)
					}
					decide := func(pod *corev1.Pod) (lifecycle.Admission, []lifecycle.Denial) {
						was, is := lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(pod)
						return lifecycle.AdmitUpdate(was, is, false, options, now), lifecycle.CheckUpdate(was, is, false, options, now)
					}
					wantAdmission, wantDenials := decide(requested)
					gotAdmission, gotDenials := decide(fields)
					if diff := cmp.Diff(wantAdmission, gotAdmission) + cmp.Diff(wantDenials, gotDenials); diff != "" {
						t.Errorf("%s, and it %s (-whole +without status):\n%s", name, before, diff)
					}
				}
			}
		}
	}
}

// reviews returns a review without a pod for each state of the owner and each actor.
func reviews() []deferreddelete.Review {
	var all []deferreddelete.Review
	for _, owner := range []deferreddelete.OwnerState{deferreddelete.OwnerPresent, deferreddelete.OwnerGone, deferreddelete.OwnerTerminating} {
		for _, actor := range []deferreddelete.Actor{deferreddelete.ActorOwner, deferreddelete.ActorController, deferreddelete.ActorEvictor, deferreddelete.ActorClient} {
			all = append(all, deferreddelete.Review{Owner: owner, Actor: actor, Method: deferreddelete.MethodDelete, UID: "web-0-uid"})
		}
	}
	return all
}

func TestDecodeFieldsOfBadJSON(t *testing.T) {
	for _, raw := range []string{`{"metadata":`, `[]`, `{"metadata":{"labels":{"a":1}}}`, `{"metadata":{"deletionTimestamp":"yesterday"}}`} {
		if pod, err := decodeFields([]byte(raw), keptFields()); err == nil {
			t.Errorf("%s is %+v, want an error", raw, pod)
		}
	}
}

func BenchmarkDecodeFields(b *testing.B) {
	raw := encoded(b, large())
	for name, keep := range map[string]func() []prune.Field{"old": keptFields, "requested": requestedFields} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeFields(raw, keep()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
