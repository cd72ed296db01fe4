package matrix_test

import (
	"context"
	"testing"
	"time"
)

// webhookTimeout is the timeout of the webhooks of deletes, evictions and scale-downs, and a second for the
// request itself on an idle machine.
const webhookTimeout = 4 * time.Second

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
	cells := map[string]*cell{}
	for name, create := range map[string]setup{"deployment": deployment(3), "statefulset": statefulSet(3)} {
		c, err := newCell(ctx, w, approved())
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
			took := timed(t, func() error { return request(ctx, c) })
			unreviewed = max(unreviewed, timed(t, func() error { return c.kubectl(ctx, "get", "pods") }))
			if took > webhookTimeout+2*unreviewed {
				t.Errorf("request %d for the pods of a %s took %s, and a request without webhooks %s", i+1, kind, took, unreviewed)
			}
		}
		err := c.await(ctx, "waiting for the scale-in", func() bool { return len(c.pods) <= 1 })
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
