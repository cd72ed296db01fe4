package main

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/test/traffic/front"
)

// TestFollowerKeepsTheServersThatAreReady checks that the side without PodOps is not
// handicapped by its load balancer.
func TestFollowerKeepsTheServersThatAreReady(t *testing.T) {
	dir, err := os.MkdirTemp("", "follower")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	balancer, err := front.StartEmbedded(front.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = balancer.Close() })
	var pods []corev1.Pod
	port := uint16(podPort)
	f := &follower{
		client:  runtimeapi.New(runtimeapi.Endpoint{Network: "unix", Address: balancer.Socket()}, 0),
		backend: balancer.Backend(),
		pods:    func(context.Context) ([]corev1.Pod, error) { return pods, nil },
		port:    func() uint16 { return port },
	}
	serving := func(rounds int, want map[string]bool) {
		t.Helper()
		for range rounds {
			if err := f.follow(t.Context()); err != nil {
				t.Error(err)
			}
		}
		servers, err := f.client.Servers(t.Context(), f.backend)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for name, server := range servers {
			got[name] = server.Serves()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("servers, and whether they serve (-want +got):\n%s", diff)
		}
	}
	unready := podOf("web-2", firstImage, firstImage)
	unready.Status.Conditions = nil
	pods = []corev1.Pod{podOf("web-0", firstImage, firstImage), podOf("web-1", firstImage, firstImage), unready}
	serving(1, map[string]bool{"web-0": true, "web-1": true})
	pods[0].DeletionTimestamp = &metav1.Time{}
	pods[2] = podOf("web-2", firstImage, firstImage)
	serving(1, map[string]bool{"web-0": false, "web-1": true, "web-2": true}) // web-0 drains.
	serving(1, map[string]bool{"web-1": true, "web-2": true})
	pods[0].DeletionTimestamp = nil
	serving(1, map[string]bool{"web-0": true, "web-1": true, "web-2": true})
	port = otherPort
	serving(1, map[string]bool{"web-0": false, "web-1": false, "web-2": false, "web-0-8081": true, "web-1-8081": true, "web-2-8081": true})
	serving(1, map[string]bool{"web-0-8081": true, "web-1-8081": true, "web-2-8081": true})
}
