package kubelet

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
)

func testAddresses(t *testing.T) *addresses {
	t.Helper()
	pool, err := newAddresses(Node{Name: "node-1", IP: "127.64.1.254", PodCIDR: "127.64.1.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func take(t *testing.T, pool *addresses, uid string) string {
	t.Helper()
	address, err := pool.take(types.UID(uid))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestAPodKeepsItsAddress(t *testing.T) {
	pool := testAddresses(t)
	first := take(t, pool, "a")
	if first != "127.64.1.1" {
		t.Errorf("first address: %s", first)
	}
	if second := take(t, pool, "b"); second == first {
		t.Errorf("two pods have %s", second)
	}
	if again := take(t, pool, "a"); again != first {
		t.Errorf("requested again, %s became %s", first, again)
	}
}

// TestAllAddressesOfARange checks that every address of the /24 is used except the
// addresses of the range and of the node; then no address is free until a pod is deleted.
func TestAllAddressesOfARange(t *testing.T) {
	pool := testAddresses(t)
	const capacity = 254
	seen := map[string]bool{}
	for i := range capacity {
		seen[take(t, pool, fmt.Sprint(i))] = true
	}
	if len(seen) != capacity || seen["127.64.1.0"] || seen["127.64.1.254"] {
		t.Errorf("%d different addresses: %v", len(seen), seen)
	}
	if address, err := pool.take("one more"); err == nil {
		t.Errorf("a full range returns %s", address)
	}
	gone := take(t, pool, "7")
	pool.release("7")
	if got := take(t, pool, "one more"); got != gone {
		t.Errorf("want %s, got %s", gone, got)
	}
}

func TestPodsThatStartAtOnceHaveDifferentAddresses(t *testing.T) {
	pool := testAddresses(t)
	var wait sync.WaitGroup
	got := make([]string, 100)
	for i := range got {
		wait.Go(func() { got[i], _ = pool.take(types.UID(fmt.Sprint(i))) })
	}
	wait.Wait()
	seen := map[string]bool{}
	for _, address := range got {
		if address == "" || seen[address] {
			t.Errorf("address %q twice or not at all", address)
		}
		seen[address] = true
	}
}

func TestAddressesOfListedPodsAreTaken(t *testing.T) {
	pool := testAddresses(t)
	there := newPod(created)
	listed := client{fake.NewClientset(there), pool}
	if _, err := listed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := take(t, pool, "another"); got == there.Status.PodIP {
		t.Errorf("%s was allocated twice", got)
	}
	if got := take(t, pool, string(there.UID)); got != there.Status.PodIP {
		t.Errorf("%s became %s", there.Status.PodIP, got)
	}
}

func TestADeletedPodReleasesItsAddress(t *testing.T) {
	pool := testAddresses(t)
	pod := newPod(created)
	take(t, pool, string(pod.UID))
	fakes := fake.NewClientset(pod)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := client{fakes, pool}.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if err := fakes.CoreV1().Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// A watch without a resourceVersion begins with the pods that exist.
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		event := <-events.ResultChan()
		if got, ok := event.Object.(*corev1.Pod); !ok || event.Type != want || got.Name != pod.Name {
			t.Fatalf("received the event %+v, want %s of pod %s", event, want, pod.Name)
		}
	}
	if len(pool.byPod)+len(pool.inUse) != 0 {
		t.Errorf("still taken: %v %v", pool.byPod, pool.inUse)
	}
}
