package admission_test

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/config"
	"github.com/podops-dev/podops/test/world/admission"
	"github.com/podops-dev/podops/test/world/apiserver"
)

const manager = "system:serviceaccount:podops-system:podops-controller-manager"

// TestThePoliciesOfTheManifestsDecide evaluates policies of PodOps with the parameters of its manifests.
func TestThePoliciesOfTheManifestsDecide(t *testing.T) {
	configuration, err := admission.Read(config.Manifests, "webhook", "rbac")
	if err != nil {
		t.Fatal(err)
	}
	controlled := map[string]string{v1alpha1.ControlLabelKey: v1alpha1.ControlLabelValue}
	by := func(user string, r *apiserver.Request) *apiserver.Request {
		r.User.Username = user
		return r
	}
	status := func(r *apiserver.Request) *apiserver.Request {
		r.Subresource = "status"
		return r
	}
	forged := map[string]string{v1alpha1.ControlLabelKey: v1alpha1.ControlLabelValue, v1alpha1.OperateLabelPrefix + "/1": "1"}
	operation := &apiserver.Request{
		Operation: admissionv1.Create, Namespace: "default", Name: "restart",
		Resource: metav1.GroupVersionResource{Group: v1alpha1.GroupVersion().Group, Version: v1alpha1.GroupVersion().Version, Resource: "podoperations"},
		Kind:     metav1.GroupVersionKind{Group: v1alpha1.GroupVersion().Group, Version: v1alpha1.GroupVersion().Version, Kind: "PodOperation"},
		Object:   &v1alpha1.PodOperation{Spec: v1alpha1.PodOperationSpec{Action: v1alpha1.PodOperationAction{Type: v1alpha1.ActionDelete}}},
	}
	binding := request(admissionv1.Create, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: controlled}}, nil)
	binding.Subresource, binding.Kind.Kind = "binding", "Binding"
	for name, test := range map[string]struct {
		request *apiserver.Request
		may     []string
		denied  bool
	}{
		"the manager deletes a pod of others":       {by(manager, request(admissionv1.Delete, nil, pod(nil))), nil, true},
		"a user deletes it":                         {request(admissionv1.Delete, nil, pod(nil)), nil, false},
		"the manager deletes a controlled pod":      {by(manager, request(admissionv1.Delete, nil, pod(controlled))), nil, false},
		"the manager changes a label of others":     {by(manager, request(admissionv1.Update, pod(map[string]string{"a": "b"}), pod(controlled))), nil, true},
		"the status changes a label of a lifecycle": {status(request(admissionv1.Update, pod(forged), pod(controlled))), nil, true},
		"the manager does so":                       {status(by(manager, request(admissionv1.Update, pod(forged), pod(controlled)))), nil, false},
		"the status changes no label":               {status(request(admissionv1.Update, pod(controlled), pod(controlled))), nil, false},
		"a binding adds the label of control":       {binding, nil, true},
		"an operation without rights on pods":       {operation, []string{"update"}, true},
		"an operation of a user who may delete":     {operation, []string{"delete"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			chain := admission.New(admission.Options{Configuration: configuration, Authorize: func(a authorizer.Attributes) bool {
				return slices.Contains(test.may, a.GetVerb())
			}})
			// Without a manager only policies deny what webhooks would review, and deletes pass.
			err := chain.Validate(t.Context(), test.request)
			if (err != nil) != test.denied {
				t.Errorf("denied: %v, want %v", err, test.denied)
			}
		})
	}
}
