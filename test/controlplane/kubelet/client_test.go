package kubelet

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestDeleteIsAKubeletsFinalDelete(t *testing.T) {
	final := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions("uid-1")}
	tests := map[string]struct {
		pod  *corev1.Pod
		want []metav1.DeleteOptions
	}{
		"a stopped pod that terminates is deleted, by its UID": {deleted(newPod(created, started, stopped), 30), []metav1.DeleteOptions{final}},
		"a pod with the name of one that terminated":           {newPod(created, started), nil},
		"a completed pod without a deletion":                   {newPod(created, started, stopped), nil},
		"a pod that terminates and whose containers still run": {deleted(newPod(created, started), 30), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fakes := fake.NewClientset(tc.pod)
			err := client{fakes, testAddresses(t)}.CoreV1().Pods("default").Delete(t.Context(), "web-0", *metav1.NewDeleteOptions(0))
			if err != nil {
				t.Fatal(err)
			}
			var got []metav1.DeleteOptions
			for _, action := range fakes.Actions() {
				if d, ok := action.(clienttesting.DeleteActionImpl); ok {
					got = append(got, d.DeleteOptions)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("deletes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeleteOfADeletedPod(t *testing.T) {
	err := client{fake.NewClientset(), testAddresses(t)}.CoreV1().Pods("default").Delete(t.Context(), "web-0", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("want not found, got %v", err)
	}
}

func TestRejectedWritesAreRetried(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		refusal error
		again   bool // whether kwok retries it: service unavailable
	}{
		"rejected by admission":         {apierrors.NewForbidden(pods, "web-0", errors.New("not now")), true},
		"a webhook that cannot run":     {apierrors.NewInternalError(errors.New("no route to webhook")), true},
		"a connection that breaks":      {errors.New("unexpected EOF"), true},
		"the pod was deleted":           {apierrors.NewNotFound(pods, "web-0"), false},
		"another pod has the name":      {apierrors.NewConflict(pods, "web-0", errors.New("uid")), false},
		"the process must end":          {context.Canceled, false},
		"an accepted write is no error": {nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fakes := fake.NewClientset(newPod())
			if tc.refusal != nil {
				fakes.PrependReactor("patch", "pods", refuse(tc.refusal))
			}
			_, err := client{fakes, testAddresses(t)}.CoreV1().Pods("default").Patch(t.Context(), "web-0", types.StrategicMergePatchType,
				[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
			if got := apierrors.IsServiceUnavailable(err); got != tc.again {
				t.Errorf("retried: want %t, got %t (%v)", tc.again, got, err)
			}
			if !tc.again && !errors.Is(err, tc.refusal) {
				t.Errorf("want the error as it was, got %v", err)
			}
		})
	}
}

func refuse(err error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}
