package install

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestADeploymentIsReplacedWhenAllReplicasAreNewAndAvailable(t *testing.T) {
	for name, test := range map[string]struct {
		status appsv1.DeploymentStatus
		want   string
	}{
		"not observed": {
			appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
			"the Deployment controller has not observed the Deployment",
		},
		"a new replica serves": {
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 2},
			"1 of 2 replicas are of the new version",
		},
		"an old replica ends": {
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3},
			"replicas of the old version that are left: 1",
		},
		"a new replica starts": {
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1},
			"1 of 2 replicas are available",
		},
		"all": {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: test.status}
			if diff := cmp.Diff(test.want, unreplaced(deployment)); diff != "" {
				t.Errorf("unreplaced (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheReasonIsReportedWhenReplicasAreNotReplacedInTime(t *testing.T) {
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "podops-system", Name: "manager", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2))},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 2},
	}
	applied := &unstructured.Unstructured{}
	applied.SetNamespace(deployment.Namespace)
	applied.SetName(deployment.Name)
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	var out strings.Builder
	err := awaitReplicas(ctx, fake.NewClientBuilder().WithObjects(deployment).Build(), applied, &out)
	want := "1 of 2 replicas are of the new version"
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "webhook configurations are unchanged") {
		t.Errorf("error %v, want %q", err, want)
	}
	if diff := cmp.Diff("  not yet: "+want+"\n", out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestWebhookConfigurationsFollowTheReplicas(t *testing.T) {
	var got []string
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			got = append(got, object.(interface{ GetKind() string }).GetKind())
			return nil
		},
	})
	var objects []*unstructured.Unstructured
	want := []string{"Deployment", "ValidatingAdmissionPolicy", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
	for _, kind := range want {
		object := &unstructured.Unstructured{}
		object.SetKind(kind)
		objects = append(objects, object)
	}
	err := apply(t.Context(), c, objects, func(_ context.Context, deployment *unstructured.Unstructured) error {
		got = append(got, "replicas of the "+deployment.GetKind())
		return nil
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want = []string{want[0], want[1], "replicas of the Deployment", want[2], want[3]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the order (-want +got):\n%s", diff)
	}
}
