package podindex_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

func TestCauseOfAHeldDelete(t *testing.T) {
	set := func(uid types.UID, revision int64) podindex.Owner {
		return podindex.Owner{UID: uid, Namespace: "default", Kind: "ReplicaSet", Name: string(uid), Controller: "web", Revision: revision}
	}
	deployment := podindex.Owner{UID: "web", Namespace: "default", Kind: "Deployment", Name: "web"}
	alone := set("set-1", 0)
	alone.Controller = ""
	for name, tc := range map[string]struct {
		before, after []podindex.Owner
		id            string
		want          rule.Cause
	}{
		"nothing is known of the ReplicaSet": {},
		"a ReplicaSet of no Deployment":      {before: []podindex.Owner{alone}, want: rule.CauseScaleIn},
		"the only revision":                  {before: []podindex.Owner{deployment, set("set-1", 1)}, want: rule.CauseScaleIn},
		"an older revision":                  {before: []podindex.Owner{deployment, set("set-1", 1), set("set-2", 2)}, want: rule.CauseRollout},
		"a revision that was rolled back to": {before: []podindex.Owner{deployment, set("set-1", 3), set("set-2", 2)}, want: rule.CauseScaleIn},
		"an operation of another controller": {before: []podindex.Owner{deployment, set("set-1", 1), set("set-2", 2)}, id: "updater"},
		"a rollout that begins later":        {before: []podindex.Owner{deployment, set("set-1", 1)}, after: []podindex.Owner{set("set-2", 2)}, want: rule.CauseRollout},
		"a rollout that is undone later":     {before: []podindex.Owner{deployment, set("set-1", 1), set("set-2", 2)}, after: []podindex.Owner{set("set-1", 3)}, want: rule.CauseScaleIn},
		"a ReplicaSet that is seen later":    {after: []podindex.Owner{set("set-2", 2), set("set-1", 1), deployment}, want: rule.CauseRollout},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			for _, owner := range tc.before {
				x.SetOwner(owner)
			}
			id := tc.id
			if id == "" {
				id = appsv1alpha1.PodDeleteID
			}
			x.put(builders.MakePod("web-0").Available().Waiting(id, appsv1alpha1.DeleteOperationType, builders.Epoch).
				OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set-1", UID: "set-1"}).Obj())
			for _, owner := range tc.after {
				x.SetOwner(owner)
			}
			waiting := x.Snapshot("default", nil).Waiting
			if len(waiting) != 1 || waiting[0].Cause != tc.want {
				t.Errorf("got %+v, want the cause %q", waiting, tc.want)
			}
		})
	}
}

// TestRequesterOfALabel shows that an operation has the user who set its label, until the label or its type changes, and that
// so has a delete by the label to-delete.
func TestRequesterOfALabel(t *testing.T) {
	const label = appsv1alpha1.OperatingLabelPrefix + "/a"
	stamp := builders.Stamp(builders.Epoch)
	user := func(value, kind string) appsv1alpha1.LabelRequester {
		return appsv1alpha1.LabelRequester{Value: value, Type: kind, Actor: "Client", User: "jane", Groups: []string{"dev", "sre"}, GroupsTruncated: true}
	}
	labelled := deferreddelete.Request{Method: deferreddelete.MethodLabel, Actor: deferreddelete.ActorLabel}
	for name, tc := range map[string]struct {
		id      string
		entries lifecycle.Requesters
		want    rule.Requester
	}{
		"an operation": {"a", lifecycle.Requesters{label: user(stamp, "update")}, rule.Requester{
			Method: "Label", Actor: "Client", User: "jane", Groups: "dev\nsre", GroupsTruncated: true,
		}},
		"an earlier operation": {"a", lifecycle.Requesters{label: user("1", "update")}, rule.Requester{}},
		"another type":         {"a", lifecycle.Requesters{label: user(stamp, "restart")}, rule.Requester{}},
		"another label":        {"a", lifecycle.Requesters{label + "b": user(stamp, "update")}, rule.Requester{}},
		"no entry":             {"a", nil, rule.Requester{}},
		"to-delete": {appsv1alpha1.PodDeleteID, lifecycle.Requesters{appsv1alpha1.ToDeleteLabelKey: user("true", "")}, rule.Requester{
			Method: "Label", Actor: "Label", User: "jane", Groups: "dev\nsre", GroupsTruncated: true,
		}},
		"to-delete by a user who is not known": {appsv1alpha1.PodDeleteID, nil, rule.Requester{Method: "Label", Actor: "Label"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			pod := builders.MakePod("web-0").Available().Waiting(tc.id, "update", builders.Epoch).Obj()
			pod.Annotations = map[string]string{appsv1alpha1.RequestersAnnotationKey: tc.entries.Encode()}
			if tc.id == appsv1alpha1.PodDeleteID {
				pod.Labels[appsv1alpha1.ToDeleteLabelKey] = "true"
				pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(labelled.Begin(pod, deferreddelete.Begun(pod)))
			}
			x.put(pod)
			waiting := x.Snapshot("default", nil).Waiting
			if len(waiting) != 1 || waiting[0].Requester != tc.want {
				t.Errorf("got %+v, want the requester %+v", waiting, tc.want)
			}
		})
	}
}

// TestRequesterOfADelete shows that a delete has its client, another lifecycle has none, and an earlier lifecycle's
// record counts for nothing.
func TestRequesterOfADelete(t *testing.T) {
	evicted := deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor, User: "jane", Groups: []string{"dev", "sre"}}
	jane := rule.Requester{Method: "Eviction", Actor: "Evictor", User: "jane", Groups: "dev\nsre"}
	for name, tc := range map[string]struct {
		id    string
		since func(*corev1.Pod) string
		want  rule.Requester
	}{
		"an eviction":                      {appsv1alpha1.PodDeleteID, deferreddelete.Begun, jane},
		"another lifecycle":                {"a", deferreddelete.Begun, rule.Requester{}},
		"a record of an earlier lifecycle": {appsv1alpha1.PodDeleteID, func(*corev1.Pod) string { return "1" }, rule.Requester{}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			pod := builders.MakePod("web-0").Available().Waiting(tc.id, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
			pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(evicted.Begin(pod, tc.since(pod)))}
			x.put(pod)
			waiting := x.Snapshot("default", nil).Waiting
			if len(waiting) != 1 || waiting[0].Requester != tc.want {
				t.Errorf("got %+v, want the requester %+v", waiting, tc.want)
			}
		})
	}
}
