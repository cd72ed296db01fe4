package podopslifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// restarts is the adapter of a controller that restarts containers.
type restarts struct{}

func (restarts) GetID() string                          { return "restarts" }
func (restarts) GetType() podopslifecycle.OperationType { return podopslifecycle.OperationTypeRestart }
func (restarts) AllowMultiType() bool                   { return false }
func (restarts) WhenBegin(client.Object) (bool, error)  { return false, nil }
func (restarts) WhenFinish(client.Object) (bool, error) { return false, nil }

// An operation controller takes a pod one step further at each event of the pod.
func Example() {
	ctx := context.Background()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", Labels: map[string]string{"kusionstack.io/control": "true"},
	}}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	reconcile := func() {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			panic(err)
		}
		if !podopslifecycle.IsDuringOps(restarts{}, pod) {
			updated, err := podopslifecycle.BeginContext(ctx, c, restarts{}, pod)
			fmt.Println("begins:", updated, err)
			return
		}
		if _, allowed := podopslifecycle.AllowOps(restarts{}, 0, pod); !allowed {
			fmt.Println("waits until rules permit it and its traffic is off")
			return
		}
		fmt.Println("restarts the container")
		updated, err := podopslifecycle.FinishContext(ctx, c, restarts{}, pod)
		fmt.Println("finishes:", updated, err)
	}

	reconcile()
	reconcile()

	// PodOps allows it.
	pod.Labels["operate.podopslifecycle.kusionstack.io/restarts"] = fmt.Sprint(time.Now().UnixNano())
	if err := c.Update(ctx, pod); err != nil {
		panic(err)
	}
	reconcile()

	// Output:
	// begins: true <nil>
	// waits until rules permit it and its traffic is off
	// restarts the container
	// finishes: true <nil>
}

// A pod that is not under PodOps has no lifecycle; the controller decides how to handle that.
func ExampleBeginContext() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	_, err := podopslifecycle.BeginContext(context.Background(), c, restarts{}, pod)
	fmt.Println(errors.Is(err, podopslifecycle.ErrNotControlled))
	// Output: true
}

// A controller may leave clients time to follow after traffic is off.
func ExampleAllowOps() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"operating.podopslifecycle.kusionstack.io/restarts":      "1767225600000000000",
		"operation-type.podopslifecycle.kusionstack.io/restarts": "restart",
		"operate.podopslifecycle.kusionstack.io/restarts":        fmt.Sprint(time.Now().UnixNano()),
	}}}
	_, allowed := podopslifecycle.AllowOps(restarts{}, 0, pod)
	fmt.Println("allowed at once:", allowed)
	wait, allowed := podopslifecycle.AllowOps(restarts{}, 3600, pod)
	fmt.Println("allowed an hour after traffic is off:", allowed, wait > 0)
	// Output:
	// allowed at once: true
	// allowed an hour after traffic is off: false true
}

// Undo ends an operation that is no longer wanted. The object may begin another operation.
func ExampleUndoContext() {
	ctx := context.Background()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", Labels: map[string]string{"kusionstack.io/control": "true"},
	}}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		panic(err)
	}
	updated, err := podopslifecycle.UndoContext(ctx, c, restarts{}, pod)
	fmt.Println("nothing to undo:", updated, err)
	if _, err := podopslifecycle.BeginContext(ctx, c, restarts{}, pod, podopslifecycle.PrepareDelete); err != nil {
		panic(err)
	}
	updated, err = podopslifecycle.UndoContext(ctx, c, restarts{}, pod, podopslifecycle.WithdrawDelete)
	fmt.Println("undone:", updated, err)
	// Output:
	// nothing to undo: false <nil>
	// undone: true <nil>
}
