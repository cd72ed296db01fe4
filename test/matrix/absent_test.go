package matrix_test

import (
	"context"
	"testing"
	"time"
)

// webhookTimeout is the timeout of the webhooks of deletes, evictions and scale-downs, and a second for the
// request itself.
const webhookTimeout = 4 * time.Second

// testWithoutManager checks that requests that rules would hold pass, each within the timeout of a webhook,
// while no manager runs. It kills the manager of the world.
func testWithoutManager(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
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
		for name, request := range map[string]act{
			"delete":   onFirst("delete", "pod", "POD", "--wait=false"),
			"eviction": evict(""),
			"scale-in": kubectl("scale", kind+"/web", "--replicas=1"),
		} {
			began := time.Now()
			if err := request(ctx, c); err != nil {
				t.Errorf("%s of the pods of a %s: %v", name, kind, err)
			}
			if took := time.Since(began); took > webhookTimeout {
				t.Errorf("%s of the pods of a %s took %s", name, kind, took)
			}
		}
		err := c.await(ctx, "waiting for the scale-in", func() bool { return len(c.pods) == 1 })
		if err != nil {
			t.Errorf("the pods of a %s: %v", kind, err)
		}
	}
}
