package pod_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
)

func TestValidator(t *testing.T) {
	serving := func() *builders.PodBuilder { return builders.MakePod("web").Available() }
	conditions, record := appsv1alpha1.AvailableConditionsAnnotationKey, appsv1alpha1.PendingDeleteAnnotationKey
	operate := appsv1alpha1.OperateLabelPrefix + "/a"

	for name, tc := range map[string]struct {
		who            string      // default: a user
		old, requested *corev1.Pod // without an old pod: a CREATE
		wantCode       int32       // 0: allowed
		wantDenied     []string    // texts of the message
	}{
		"a new pod passes": {requested: serving().Obj()},
		"the patch of the mutator for a begin passes": {
			old: serving().Obj(), requested: serving().Waiting("a", "update", builders.Epoch).Obj(),
		},
		"a forged label is denied": {
			old: serving().Obj(), requested: serving().Waiting("a", "update", builders.Epoch).Label(operate, "1").Obj(),
			wantCode: http.StatusForbidden, wantDenied: []string{"metadata.labels[" + operate + "]", "only PodOps sets this label"},
		},
		"half a pair is denied": {
			old: serving().Obj(), requested: serving().Label(appsv1alpha1.OperationTypeLabelPrefix+"/a", "update").Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{appsv1alpha1.OperationTypeLabelPrefix + "/a", appsv1alpha1.OperatingLabelPrefix + "/a"},
		},
		"a key without an id is denied": {
			old: serving().Obj(), requested: serving().Label(appsv1alpha1.OperatingLabelPrefix, "1").Label(appsv1alpha1.OperationTypeLabelPrefix, "update").Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{
				"metadata.labels[" + appsv1alpha1.OperatingLabelPrefix + "]: has no id and does nothing: write " + appsv1alpha1.OperatingLabelPrefix + "/<id>",
				"metadata.labels[" + appsv1alpha1.OperationTypeLabelPrefix + "]",
			},
		},
		"a key without an id that was there before does not deny other requests": {
			old:       serving().Label(appsv1alpha1.OperatingLabelPrefix, "1").Obj(),
			requested: serving().Label(appsv1alpha1.OperatingLabelPrefix, "1").Waiting("a", "update", builders.Epoch).Obj(),
		},
		"a permission without a type is denied": {
			old: serving().Obj(), requested: serving().Label(appsv1alpha1.OperationPermissionLabelPrefix, "1").Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{"write " + appsv1alpha1.OperationPermissionLabelPrefix + "/<type>"},
		},
		"64 ids are allowed at once": {
			old: serving().Obj(), requested: ids(serving(), lifecycle.MaxIDs).Obj(),
		},
		"65 ids are denied": {
			old: serving().Obj(), requested: ids(serving(), lifecycle.MaxIDs+1).Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{"a pod takes at most 64 ids at once"},
		},
		"PodOps may set its labels": {
			who: identity, old: serving().Obj(), requested: serving().Label(operate, "1").Obj(),
		},
		"a stale request passes, and fails with a conflict": {
			old: withVersion(serving().Obj(), "2"), requested: withVersion(serving().Label(operate, "1").Obj(), "1"),
		},
		"an annotation that is no JSON is denied": {
			old: serving().Obj(), requested: serving().Annotation(conditions, "{").Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{"metadata.annotations[" + conditions + "]", "expectedFinalizers"},
		},
		"a malformed annotation is denied at creation too": {
			requested: serving().Annotation(conditions, "[]").Obj(),
			wantCode:  http.StatusUnprocessableEntity, wantDenied: []string{"metadata.annotations[" + conditions + "]"},
		},
		"an annotation that is too long is denied": {
			old: serving().Obj(), requested: serving().Annotation(conditions, `{"x":"`+strings.Repeat("x", 200<<10)+`"}`).Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{"metadata.annotations[" + conditions + "]"},
		},
		"PodOps itself may not set a malformed annotation either": {
			who: identity, old: serving().Obj(), requested: serving().Annotation(conditions, "{").Obj(),
			wantCode: http.StatusUnprocessableEntity, wantDenied: []string{"metadata.annotations[" + conditions + "]"},
		},
		"the record of a pending delete is denied": {
			old: serving().Obj(), requested: serving().Annotation(record, "{}").Obj(),
			wantCode: http.StatusForbidden, wantDenied: []string{"only PodOps sets " + record},
		},
		"a change of it is denied": {
			old: serving().Annotation(record, "{}").Obj(), requested: serving().Annotation(record, `{"actor":"Client"}`).Obj(),
			wantCode: http.StatusForbidden, wantDenied: []string{"only PodOps sets " + record},
		},
		"PodOps sets it": {
			who: identity, old: serving().Obj(), requested: serving().Annotation(record, "{}").Obj(),
		},
		"it can be removed": {
			old: serving().Annotation(record, "{}").Obj(), requested: serving().Obj(),
		},
		"a pod is created from a copied manifest that has it": {
			requested: serving().Annotation(record, "{}").Obj(),
		},
		"the requester of a label is denied": {
			old: serving().Obj(), requested: serving().Operating("a", "update").Annotation(requesters, entry("mallory", "update")).Obj(),
			wantCode: http.StatusForbidden, wantDenied: []string{"only PodOps sets " + requesters},
		},
		"the user itself is the requester": {
			old: serving().Obj(), requested: serving().Operating("a", "update").Annotation(requesters, entry(user, "update")).Obj(),
		},
		"a requester of an earlier operation stays": {
			old:       serving().Operating("a", "update").Annotation(requesters, entry("joe", "update")).Obj(),
			requested: serving().Operating("a", "update").Label("note", "x").Annotation(requesters, entry("joe", "update")).Obj(),
		},
		"a requester of an operation that does not exist counts for nothing": {
			old: serving().Obj(), requested: serving().Annotation(requesters, entry("mallory", "update")).Obj(),
		},
		"an annotation that was malformed before does not deny other requests": {
			old:       serving().Annotation(conditions, "{").Obj(),
			requested: serving().Annotation(conditions, "{").Operating("a", "update").Obj(),
		},
		"a malformed annotation can be removed": {
			old: serving().Annotation(conditions, "{").Obj(), requested: serving().Obj(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := creating(t, tc.requested)
			if tc.old != nil {
				who := tc.who
				if who == "" {
					who = user
				}
				req = updating(t, who, tc.old, tc.requested)
			}
			got := visibleOf(validator(t).Handle(t.Context(), req))
			if got.Allowed != (tc.wantCode == 0) || !got.Allowed && got.Code != tc.wantCode {
				t.Fatalf("got %+v, want code %d", got, tc.wantCode)
			}
			for _, text := range tc.wantDenied {
				if !strings.Contains(got.Message, text) {
					t.Errorf("message %q does not contain %q", got.Message, text)
				}
			}
			if len(got.Message) > 4<<10 {
				t.Errorf("the message has %d bytes", len(got.Message))
			}
		})
	}
}

// ids begins the given number of lifecycles.
func ids(pod *builders.PodBuilder, count int) *builders.PodBuilder {
	for i := range count {
		pod.Waiting(fmt.Sprintf("id-%02d", i), "update", builders.Epoch)
	}
	return pod
}

func validator(t *testing.T) *pod.Validator {
	t.Helper()
	return pod.NewValidator(decoder(t), identity, options(), clock())
}
