package cooperation_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podops-dev/podops/pkg/podopslifecycle/cooperation"
)

// printer is a provider that prints its changes.
type printer struct{}

func (printer) TrafficOn(_ context.Context, pod *corev1.Pod) error {
	fmt.Println("requests go to", pod.Name)
	return nil
}

func (printer) TrafficOff(_ context.Context, pod *corev1.Pod) error {
	fmt.Println("no requests go to", pod.Name)
	return nil
}

// A service controller calls Sync for each event of a pod.
func ExampleSync() {
	ctx := context.Background()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Labels: map[string]string{"kusionstack.io/control": "true"}},
		Spec:       corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "pod.kusionstack.io/service-ready"}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: "pod.kusionstack.io/service-ready", Status: corev1.ConditionTrue},
		}},
	}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	sync := func() {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			panic(err)
		}
		if err := cooperation.Sync(ctx, c, printer{}, "prot.podopslifecycle.kusionstack.io/printer", pod); err != nil {
			panic(err)
		}
		fmt.Println(pod.Finalizers)
	}

	sync()

	// PodOps prepares an operation.
	pod.Labels["prepare.podopslifecycle.kusionstack.io/restarts"] = "1767225600000000000"
	if err := c.Update(ctx, pod); err != nil {
		panic(err)
	}
	sync()

	// Output:
	// requests go to web-0
	// [prot.podopslifecycle.kusionstack.io/printer]
	// no requests go to web-0
	// []
}
