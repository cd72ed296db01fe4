package matrix_test

import (
	"context"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/podops-dev/podops/test/stage/stagetest"
)

// ownTime is the time of a request itself on an idle machine.
const ownTime = time.Second

// longestTimeout returns the longest timeout of the webhooks that let a request pass when no manager answers.
func longestTimeout(ctx context.Context, w *cluster) (time.Duration, error) {
	configurations := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := w.List(ctx, configurations); err != nil {
		return 0, err
	}
	longest := time.Duration(0)
	for _, configuration := range configurations.Items {
		for _, webhook := range configuration.Webhooks {
			if *webhook.FailurePolicy == admissionregistrationv1.Ignore {
				longest = max(longest, time.Duration(*webhook.TimeoutSeconds)*time.Second)
			}
		}
	}
	return longest, nil
}

// testWithoutManager checks that requests that rules would hold pass, each within the timeout of a webhook,
// while no manager runs. It kills the manager of the cluster.
func testWithoutManager(t *testing.T, w *cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	requests := map[string][]act{
		"deployment": {onFirst("delete", "pod", "POD", "--wait=false"), evict(""), kubectl("scale", "deployment/web", "--replicas=1")},
		// The pods of a StatefulSet follow each other: one that was deleted would have to be created first, and
		// no controlled pod is created without a manager.
		"statefulset": {kubectl("scale", "statefulset/web", "--replicas=1")},
	}
	timeout, err := longestTimeout(ctx, w)
	if err != nil || timeout == 0 {
		t.Fatalf("reading the timeouts of webhooks: %s, %v", timeout, err)
	}
	cells := map[string]*cell{}
	for name, create := range map[string]setup{"deployment": deployment(3), "statefulset": statefulSet(3)} {
		c, err := newCell(ctx, w, stagetest.Approved())
		if err != nil {
			t.Fatal(err)
		}
		if err := create(ctx, c); err != nil {
			t.Fatal(err)
		}
		cells[name] = c
	}
	w.KillManager()
	for kind, c := range cells {
		for i, request := range requests[kind] {
			unreviewed := timed(t, func() error { return c.kubectl(ctx, "get", "pods") })
			first := c.first()
			took := timed(t, func() error { return request(ctx, c) })
			if i < len(requests[kind])-1 { // else the next request would be for a pod that is gone
				if err := c.Await(ctx, "the end of the first pod", func() bool { return c.Pods[first.UID] == nil }); err != nil {
					t.Fatal(err)
				}
			}
			unreviewed = max(unreviewed, timed(t, func() error { return c.kubectl(ctx, "get", "pods") }))
			if took > timeout+ownTime+2*unreviewed {
				t.Errorf("request %d for the pods of a %s took %s, and a request without webhooks %s", i+1, kind, took, unreviewed)
			}
		}
		err := c.Await(ctx, "the scale-in", func() bool { return len(c.Pods) <= 1 })
		if err != nil {
			t.Errorf("the pods of a %s: %v", kind, err)
		}
	}
}

// timed returns how long a request takes, which must not fail.
func timed(t *testing.T, request func() error) time.Duration {
	t.Helper()
	began := time.Now()
	if err := request(); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}
