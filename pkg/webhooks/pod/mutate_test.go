package pod_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
)

func TestMutatorCreate(t *testing.T) {
	// The key is the name of the golden file with spaces.
	for name, created := range map[string]*corev1.Pod{
		"create adds the gate":                builders.MakePod("web").Gateless().Obj(),
		"create adds the gate to others":      withGate(builders.MakePod("web").Gateless().Obj(), "example.com/other"),
		"create keeps the gate":               builders.MakePod("web").Obj(),
		"create strips a copied manifest":     builders.MakePod("web").Allowed("a", "update").Complete("b", "update").Obj(),
		"create strips a requester":           builders.MakePod("web").Annotation(requesters, entry("jane", "update")).Obj(),
		"create strips the request to delete": builders.MakePod("web").Label(appsv1alpha1.ToDeleteLabelKey, "true").Obj(),
		"create warns of a mirror pod":        builders.MakePod("web").Annotation(corev1.MirrorPodAnnotationKey, "x").Obj(),
		"create ignores uncontrolled pods":    builders.MakePod("web").Gateless().Uncontrolled().Operating("a", "update").Obj(),
		"create ignores other label values":   builders.MakePod("web").Gateless().Label(appsv1alpha1.ControlLabelKey, "yes").Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			checkGolden(t, strings.ReplaceAll(name, " ", "-"), mutator(t).Handle(t.Context(), creating(t, created)))
		})
	}
}

func TestMutatorUpdate(t *testing.T) {
	serving := func() *builders.PodBuilder { return builders.MakePod("web").Available() }
	finalizer := appsv1alpha1.ProtectionFinalizerPrefix + "/f"
	protected := func() *builders.PodBuilder {
		return builders.MakePod("web").UnreadyByGate(builders.Epoch).Preparing("a", "update").Expect("Service/default/web", finalizer)
	}
	scaledDown := func(b *builders.PodBuilder) *corev1.Pod {
		pod := b.Preparing(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Obj()
		_, annotations := replicasetscale.Begin(pod, builders.Epoch)
		for key, value := range annotations {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value.(string))
		}
		return pod
	}
	// The key is the name of the golden file with spaces.
	for name, tc := range map[string]struct {
		who            string // default: a user
		old, requested *corev1.Pod
	}{
		"update begins": {old: serving().Obj(), requested: serving().Operating("a", "update").Obj()},
		"update escapes tildes": {
			old: serving().Obj(), requested: serving().Label(appsv1alpha1.PreCheckLabelPrefix+"/a~b", "1").Uncontrolled().Obj(),
		},
		"update releases a pod that waits": {
			old:       withDetail(scaledDown(serving().Annotation(corev1.PodDeletionCost, "7"))),
			requested: uncontrolled(withDetail(scaledDown(serving().Annotation(corev1.PodDeletionCost, "7")))),
		},
		"update releases a pod without a deletion cost": {
			old: scaledDown(serving()), requested: uncontrolled(scaledDown(serving())),
		},
		"update releases a pod with another deletion cost": {
			old:       annotated(scaledDown(serving()), corev1.PodDeletionCost, "9"),
			requested: annotated(uncontrolled(scaledDown(serving())), corev1.PodDeletionCost, "9"),
		},
		"update releases a pod behind a load balancer": {
			old:       serving().Finalizer("example.com/other").Finalizer(finalizer).Obj(),
			requested: serving().Finalizer("example.com/other").Finalizer(finalizer).Uncontrolled().Obj(),
		},
		"update releases a pod that surges": {
			old: surging(serving().Obj()), requested: surging(serving().Uncontrolled().Obj()),
		},
		"update operates with the last finalizer": {
			old: protected().Finalizer(finalizer).Obj(), requested: protected().Obj(),
		},
		"update waits for the settle time while a plain Service selects the pod": {
			old: protected().Finalizer(finalizer).Label("plain", "true").Obj(), requested: protected().Label("plain", "true").Obj(),
		},
		"update operates and lowers the deletion cost": {
			old: scaledDown(protected().Finalizer(finalizer)), requested: scaledDown(protected()),
		},
		"update undoes in one request": {
			old:       builders.MakePod("web").UnreadyByGate(builders.Epoch).Preparing("a", "update").Obj(),
			requested: builders.MakePod("web").UnreadyByGate(builders.Epoch).Preparing("a", "update").Label(appsv1alpha1.UndoOperationTypeLabelPrefix+"/a", "update").Obj(),
		},
		"update denies forged labels": {
			old: serving().Obj(), requested: serving().Operating("a", "update").Label(appsv1alpha1.OperateLabelPrefix+"/a", "1").Obj(),
		},
		"update by podops sets them": {
			who: identity,
			old: serving().Waiting("a", "update", builders.Epoch).Obj(),
			requested: serving().Operating("a", "update").Label(appsv1alpha1.PreCheckedLabelPrefix+"/a", builders.Stamp(builders.Epoch)).
				Label(appsv1alpha1.OperationPermissionLabelPrefix+"/update", builders.Stamp(builders.Epoch)).Obj(),
		},
		"update restores dropped labels": {
			old: serving().Waiting("a", "update", builders.Epoch).Obj(), requested: serving().Operating("a", "update").Obj(),
		},
		"update that drops every label changes nothing": {
			old: serving().Obj(), requested: withLabels(serving().Obj(), nil),
		},
		"update denies half a pair": {
			old: serving().Obj(), requested: serving().Label(appsv1alpha1.OperatingLabelPrefix+"/a", "1").Obj(),
		},
		"update removes the control label": {
			old: serving().Waiting("a", "update", builders.Epoch).Obj(), requested: serving().Waiting("a", "update", builders.Epoch).Uncontrolled().Obj(),
		},
		"update adds the control label": {
			old: builders.MakePod("web").Uncontrolled().Obj(), requested: builders.MakePod("web").Obj(),
		},
		"update adds the control label without the gate": {
			old: builders.MakePod("web").Gateless().Uncontrolled().Obj(), requested: builders.MakePod("web").Gateless().Obj(),
		},
		"update of a pod without the gate warns once": {
			old: builders.MakePod("web").Gateless().Obj(), requested: builders.MakePod("web").Gateless().Label("note", "x").Obj(),
		},
		"update names another requester": {
			old: serving().Obj(), requested: serving().Operating("a", "update").Annotation(requesters, entry("mallory", "update")).Obj(),
		},
		"update renames the requester": {
			old:       serving().Operating("a", "update").Annotation(requesters, entry("jane", "update")).Obj(),
			requested: serving().Operating("a", "update").Annotation(requesters, entry("mallory", "update")).Obj(),
		},
		"update drops the requester": {
			old:       serving().Operating("a", "update").Annotation(requesters, entry("joe", "update")).Obj(),
			requested: serving().Operating("a", "update").Obj(),
		},
		"update changes the type of an operation": {
			old:       serving().Operating("a", "update").Annotation(requesters, entry("joe", "update")).Obj(),
			requested: serving().Operating("a", "restart").Annotation(requesters, entry("joe", "update")).Obj(),
		},
		"update names the requester of an operation that had none": {
			old:       serving().Operating("a", "update").Obj(),
			requested: serving().Operating("a", "update").Annotation(requesters, entry("jane", "update")).Obj(),
		},
		"update adds the control label to a pod with a requester": {
			old:       serving().Uncontrolled().Operating("a", "update").Annotation(requesters, entry("mallory", "update")).Obj(),
			requested: serving().Operating("a", "update").Annotation(requesters, entry("mallory", "update")).Obj(),
		},
		"update denies a forged record of a pending delete": {
			old: serving().Obj(), requested: serving().Annotation(appsv1alpha1.PendingDeleteAnnotationKey, "{}").Obj(),
		},
		"update keeps the record of a pending delete": {
			old:       serving().Waiting("pod-delete", "delete", builders.Epoch).Annotation(appsv1alpha1.PendingDeleteAnnotationKey, "{}").Obj(),
			requested: serving().Waiting("pod-delete", "delete", builders.Epoch).Label("note", "x").Obj(),
		},
		"update keeps a request that the leader is to begin": {
			old: handedOver().Obj(), requested: handedOver().Label("note", "x").Obj(),
		},
		"update undoes and drops the record of a pending delete": {
			old: serving().Waiting("pod-delete", "delete", builders.Epoch).Annotation(appsv1alpha1.PendingDeleteAnnotationKey, "{}").Obj(),
			requested: serving().Waiting("pod-delete", "delete", builders.Epoch).Annotation(appsv1alpha1.PendingDeleteAnnotationKey, "{}").
				Label(appsv1alpha1.UndoOperationTypeLabelPrefix+"/pod-delete", "delete").Obj(),
		},
		"update of nothing changes nothing": {
			old: serving().Obj(), requested: serving().Annotation("note", "x").Obj(),
		},
		"update of a terminating pod changes nothing": {
			old: serving().Terminating(builders.Epoch).Obj(), requested: serving().Terminating(builders.Epoch).Operating("a", "update").Obj(),
		},
		"update of a stale pod passes": {
			old:       withVersion(serving().Waiting("a", "update", builders.Epoch).Obj(), "2"),
			requested: withVersion(serving().Label(appsv1alpha1.OperateLabelPrefix+"/a", "1").Obj(), "1"),
		},
		"update of the stored version is checked": {
			old:       withVersion(serving().Obj(), "2"),
			requested: withVersion(serving().Label(appsv1alpha1.OperateLabelPrefix+"/a", "1").Obj(), "2"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			who := tc.who
			if who == "" {
				who = user
			}
			checkGolden(t, strings.ReplaceAll(name, " ", "-"), mutator(t).Handle(t.Context(), updating(t, who, tc.old, tc.requested)))
		})
	}
}

func annotated(pod *corev1.Pod, key, value string) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	return pod
}

func withDetail(pod *corev1.Pod) *corev1.Pod {
	return annotated(pod, appsv1alpha1.DetailAnnotationPrefix+"/web", "{}")
}

// handedOver returns a pod whose removal a replica leaves to the leader.
func handedOver() *builders.PodBuilder {
	pod := builders.MakePod("web").Gate(true).Ready()
	record := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner}.HandOver(pod.Obj(), builders.Epoch)
	return pod.Annotation(appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(record))
}

// uncontrolled returns the pod as a client sends it that removes the control label only.
func uncontrolled(pod *corev1.Pod) *corev1.Pod {
	delete(pod.Labels, appsv1alpha1.ControlLabelKey)
	return pod
}

// surging makes a Deployment the controller of a pod, beside another owner.
func surging(pod *corev1.Pod) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "1"},
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "2", Controller: new(true)},
	}
	pod.Annotations = map[string]string{appsv1alpha1.SurgeAnnotationKey: `{"began":"2026-11-30T00:00:00Z","cost":true}`, corev1.PodDeletionCost: "1"}
	return pod
}

func TestHandlersRejectMalformedPods(t *testing.T) {
	good := []byte(`{"metadata":{"name":"web","labels":{"kusionstack.io/control":"true"}}}`)
	for name, tc := range map[string]struct{ old, requested []byte }{
		"no JSON":                {requested: []byte("{")},
		"labels are a list":      {requested: []byte(`{"metadata":{"labels":[]}}`)},
		"a label is a number":    {requested: []byte(`{"metadata":{"labels":{"a":1}}}`)},
		"the old pod is no JSON": {old: []byte("]"), requested: good},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(admissionv1.Update, user, tc.old, tc.requested)
			for handler, response := range map[string]visible{
				"mutator":   visibleOf(mutator(t).Handle(t.Context(), req)),
				"validator": visibleOf(validator(t).Handle(t.Context(), req)),
				"deferrer":  visibleOf(newDeferrer(t, nil, nil, nil).Handle(t.Context(), req)),
			} {
				if response.Allowed || response.Code != http.StatusBadRequest || response.Message == "" {
					t.Errorf("%s: got %+v, want 400 with a message", handler, response)
				}
			}
		})
	}
}

func TestMutatorIsDeterministic(t *testing.T) {
	requested := builders.MakePod("web").Available()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		requested.Operating(id, "update")
	}
	req := updating(t, user, builders.MakePod("web").Available().Obj(), requested.Obj())
	first := visibleOf(mutator(t).Handle(t.Context(), req))
	for range 20 {
		if diff := cmp.Diff(first, visibleOf(mutator(t).Handle(t.Context(), req))); diff != "" {
			t.Fatalf("the response depends on more than the request (-first +later):\n%s", diff)
		}
	}
}

func mutator(t *testing.T) *pod.Mutator {
	t.Helper()
	return pod.NewMutator(decoder(t), identity, options(), clock()).Settling(plainServices)
}

// plainServices is a namespace with a plain Service that selects pods with the label plain.
func plainServices(_ context.Context, pod *corev1.Pod, facts lifecycle.PodFacts) (lifecycle.Services, error) {
	if facts.Ready || facts.Protected() || pod.Labels["plain"] == "true" {
		return lifecycle.ServicesSome, nil
	}
	return lifecycle.ServicesNone, nil
}

func options() lifecycle.Options { return lifecycle.Options{Settle: 5 * time.Second} }

func withGate(pod *corev1.Pod, gate corev1.PodConditionType) *corev1.Pod {
	pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
	return pod
}

func withLabels(pod *corev1.Pod, labels map[string]string) *corev1.Pod {
	pod.Labels = labels
	return pod
}

func withVersion(pod *corev1.Pod, version string) *corev1.Pod {
	pod.ResourceVersion = version
	return pod
}
