package pod_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/golden"
)

const (
	identity = "system:serviceaccount:podops-system:podops-controller-manager"
	user     = "jane"
)

// clock returns a clock one second after all times of the builders.
func clock() *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(builders.Epoch.Add(time.Second))
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func decoder(t *testing.T) admission.Decoder {
	t.Helper()
	return admission.NewDecoder(scheme(t))
}

// creating returns the request of a user to create a pod.
func creating(t *testing.T, pod *corev1.Pod) admission.Request {
	t.Helper()
	return request(admissionv1.Create, user, nil, encode(t, pod))
}

// updating returns a request to update a pod.
func updating(t *testing.T, who string, old, requested *corev1.Pod) admission.Request {
	t.Helper()
	return request(admissionv1.Update, who, encode(t, old), encode(t, requested))
}

// deleting returns the request of the ReplicaSet controller to delete a pod: its name may be
// missing, as in the deletion of a collection.
func deleting(t *testing.T, pod *corev1.Pod) admission.Request {
	t.Helper()
	return request(admissionv1.Delete, "system:serviceaccount:kube-system:replicaset-controller", encode(t, pod), nil)
}

func request(operation admissionv1.Operation, who string, old, requested []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "request", Operation: operation, UserInfo: authenticationv1.UserInfo{Username: who},
		Object: runtime.RawExtension{Raw: requested}, OldObject: runtime.RawExtension{Raw: old},
	}}
}

func encode(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// visible is the part of a response that a client sees.
type visible struct {
	Allowed  bool                  `json:"allowed"`
	Code     int32                 `json:"code,omitempty"`
	Message  string                `json:"message,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
	Patch    []jsonpatch.Operation `json:"patch,omitempty"`
}

func visibleOf(response admission.Response) visible {
	a := visible{Allowed: response.Allowed, Warnings: response.Warnings, Patch: response.Patches}
	if response.Result != nil {
		a.Code, a.Message = response.Result.Code, response.Result.Message
	}
	return a
}

// checkGolden compares a response with a file.
func checkGolden(t *testing.T, name string, response admission.Response) {
	t.Helper()
	got, err := json.MarshalIndent(visibleOf(response), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden.Check(t, filepath.Join("testdata", name+".json"), string(got))
}
