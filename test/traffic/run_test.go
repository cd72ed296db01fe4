package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/test/stage"
	"github.com/podops-dev/podops/test/traffic/front"
)

// podCache lists the pods of a test.
type podCache struct {
	cache.Cache
	mu   sync.Mutex
	pods []corev1.Pod
}

func (c *podCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	list.(*corev1.PodList).Items = append([]corev1.Pod(nil), c.pods...)
	return nil
}

func (c *podCache) set(pods ...corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = pods
}

// TestControllerOutlivesTheOperationThatRestartsIt checks the side without PodOps: the last
// pods become ready after the operation has returned, and its context has ended.
func TestControllerOutlivesTheOperationThatRestartsIt(t *testing.T) {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := exec.CommandContext(t.Context(), "../../hack/haproxy").Output()
	if err != nil {
		t.Fatalf("this test needs haproxy, and installing it failed: %v", err)
	}
	balancer, err := front.StartHAProxy(t.Context(), front.Options{Dir: dir, Program: strings.TrimSpace(string(program))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = balancer.Close() })
	pods := &podCache{}
	g := &scenarioRun{
		harness: &harness{stage: stage.New(stage.Options{}), pods: pods}, side: withoutPodOps, balancer: balancer, socket: balancer.Socket(),
		look: runtimeapi.New(runtimeapi.Endpoint{Network: "unix", Address: balancer.Socket()}, 0),
	}
	t.Cleanup(func() { g.following.end() })
	operation, end := context.WithCancel(t.Context())
	if err := g.killController(operation); err != nil {
		t.Fatal(err)
	}
	end()
	pods.set(podOf("web-0", firstImage, firstImage))
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if err := g.settled(ctx, 1, always); err != nil {
		t.Error(err)
	}
}
