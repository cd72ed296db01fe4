package podtransitionrule_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

func TestDeleteWarner(t *testing.T) {
	now := metav1.Now()
	const held = "; they are held for 30s more, and then nothing of this rule holds them, unless a rule of the same name is created before"
	for name, tc := range map[string]struct {
		status   appsv1alpha1.PodTransitionRuleStatus
		deletion *metav1.Time
		want     []string
	}{
		"no pod waits and none is permitted": {status: appsv1alpha1.PodTransitionRuleStatus{Selected: 3, Desired: 3, Available: 3}},
		"pods wait": {
			status: appsv1alpha1.PodTransitionRuleStatus{Selected: 3, Desired: 3, Available: 3, Waiting: 2},
			want:   []string{`PodTransitionRule "web": 3 of 3 desired pods are available and 2 wait` + held},
		},
		"pods are unavailable": {
			status: appsv1alpha1.PodTransitionRuleStatus{Selected: 12, Desired: 12, Available: 9},
			want:   []string{`PodTransitionRule "web": 9 of 12 desired pods are available and 0 wait` + held},
		},
		"a permit is reserved": {
			status: appsv1alpha1.PodTransitionRuleStatus{Selected: 3, Desired: 3, Available: 3, Permits: &appsv1alpha1.PermitRecord{
				Reserved: []appsv1alpha1.ReservedPod{{UID: "u", Name: "web-0", ResourceVersion: "1"}},
			}},
			want: []string{`PodTransitionRule "web": 3 of 3 desired pods are available and 0 wait` + held},
		},
		"the rule is terminating already": {
			status: appsv1alpha1.PodTransitionRuleStatus{Desired: 3, Waiting: 2}, deletion: &now,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := appsv1alpha1.PodTransitionRule{
				TypeMeta:   metav1.TypeMeta{APIVersion: appsv1alpha1.GroupVersion().String(), Kind: "PodTransitionRule"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", DeletionTimestamp: tc.deletion}, Status: tc.status,
			}
			raw, err := json.Marshal(rule)
			if err != nil {
				t.Fatal(err)
			}
			req := request("")
			req.Object, req.OldObject = runtime.RawExtension{}, runtime.RawExtension{Raw: raw}
			response := podtransitionrule.NewDeleteWarner(decoder(t)).Handle(t.Context(), req)
			if !response.Allowed {
				t.Fatalf("the deletion is denied: %+v", response.Result)
			}
			if diff := cmp.Diff(tc.want, response.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
