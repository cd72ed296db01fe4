package approval_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	core "github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/webhooks/approval"
)

const key = appsv1alpha1.TemplateAuthorAnnotationKey

func decoder(t *testing.T) admission.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return admission.NewDecoder(scheme)
}

func review(t *testing.T, kind, user string, old, now client.Object) admission.Request {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Kind: kind}, UserInfo: authenticationv1.UserInfo{Username: user},
	}}
	for _, one := range []struct {
		object client.Object
		into   *runtime.RawExtension
	}{{old, &request.OldObject}, {now, &request.Object}} {
		if one.object == nil {
			continue
		}
		raw, err := json.Marshal(one.object)
		if err != nil {
			t.Fatal(err)
		}
		one.into.Raw = raw
	}
	return request
}

func deployment(image string, annotations map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: annotations},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
		}},
	}
}

func TestAuthors(t *testing.T) {
	v1, v2 := core.Revision(&deployment("v1", nil).Spec.Template), core.Revision(&deployment("v2", nil).Spec.Template)
	path := "/metadata/annotations/podtransitionrule.kusionstack.io~1template-author"
	known, forged := map[string]string{key: v1 + " carol"}, map[string]string{key: v1 + " eve"}
	for name, tc := range map[string]struct {
		old  client.Object
		now  *appsv1.Deployment
		want []jsonpatch.Operation
	}{
		"a new workload": {
			now:  deployment("v1", nil),
			want: []jsonpatch.Operation{{Operation: "add", Path: "/metadata/annotations", Value: map[string]string{key: v1 + " alice"}}},
		},
		"a new workload with another author": {
			now:  deployment("v1", forged),
			want: []jsonpatch.Operation{{Operation: "add", Path: path, Value: v1 + " alice"}},
		},
		"another template": {
			old: deployment("v1", known), now: deployment("v2", known),
			want: []jsonpatch.Operation{{Operation: "add", Path: path, Value: v1 + " carol\n" + v2 + " alice"}},
		},
		"the same template": {old: deployment("v1", known), now: deployment("v1", known)},
		"the same template with another author": {
			old: deployment("v1", known), now: deployment("v1", forged),
			want: []jsonpatch.Operation{{Operation: "add", Path: path, Value: v1 + " carol"}},
		},
		"the same template without an author": {
			old: deployment("v1", known), now: deployment("v1", nil),
			want: []jsonpatch.Operation{{Operation: "add", Path: "/metadata/annotations", Value: map[string]string{key: v1 + " carol"}}},
		},
		"an author where none was known": {
			old: deployment("v1", nil), now: deployment("v1", forged),
			want: []jsonpatch.Operation{{Operation: "remove", Path: path}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			response := approval.NewAuthorMutator(decoder(t)).Handle(t.Context(), review(t, "Deployment", "alice", tc.old, tc.now))
			if !response.Allowed {
				t.Fatal(response.Result)
			}
			if diff := cmp.Diff(tc.want, response.Patches); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthorsOfOtherKinds(t *testing.T) {
	for kind, object := range map[string]client.Object{"StatefulSet": &appsv1.StatefulSet{}, "DaemonSet": &appsv1.DaemonSet{}} {
		response := approval.NewAuthorMutator(decoder(t)).Handle(t.Context(), review(t, kind, "alice", nil, object))
		if len(response.Patches) != 1 {
			t.Errorf("%s: %v", kind, response.Patches)
		}
	}
	response := approval.NewAuthorMutator(decoder(t)).Handle(t.Context(), review(t, "Job", "alice", nil, &appsv1.Deployment{}))
	if response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("a kind without an author: %v", response.Result)
	}
}

func TestApprovers(t *testing.T) {
	for given, want := range map[string][]jsonpatch.Operation{
		"":    {{Operation: "add", Path: "/spec/approver", Value: "alice"}},
		"bob": nil, // which the admission policy denies
	} {
		object := &appsv1alpha1.PodOperationApproval{Spec: appsv1alpha1.PodOperationApprovalSpec{Approver: given}}
		response := approval.NewApproverMutator(decoder(t)).Handle(t.Context(), review(t, "PodOperationApproval", "alice", nil, object))
		if diff := cmp.Diff(want, response.Patches); diff != "" || !response.Allowed {
			t.Errorf("%q (-want +got):\n%s", given, diff)
		}
	}
}
