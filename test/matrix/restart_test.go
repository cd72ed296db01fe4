package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restarted returns rows with a way back during which the manager is killed, and started again. They run last, when the
// cluster has fewer nodes than the rows of DaemonSets count.
func restarted() []row {
	ends := []string{undone, orphaned, "scaled out again", "resumed", "removed", "cancelled"}
	rows := slices.DeleteFunc(ways(), func(r row) bool { return !r.keeps || !slices.Contains(ends, r.way) || r.actor == "DaemonSet" })
	again := &interruption{done: make(chan struct{})}
	for i := range rows {
		rows[i].way += ", and the manager is killed"
		rows[i].restart = again.place()
	}
	return rows
}

// interruption has rows wait until each of them has come to the same place, and the manager has been restarted there.
type interruption struct {
	before sync.WaitGroup
	done   chan struct{}
	err    error
}

// place is that of one row. Its methods do nothing for nil.
type place struct {
	restart *interruption
	arrive  func()
}

func (i *interruption) place() *place {
	i.before.Add(1)
	return &place{restart: i, arrive: sync.OnceFunc(i.before.Done)}
}

// manager restarts the manager once all rows have come to their place, or have failed.
func (i *interruption) manager(ctx context.Context, w *cluster) {
	defer close(i.done)
	i.before.Wait()
	w.KillManager()
	i.err = w.StartManager(ctx)
}

// pass waits until the manager has been restarted.
func (p *place) pass(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.arrive()
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the other rows: %w", ctx.Err())
	case <-p.restart.done:
		return p.restart.err
	}
}

// leave lets the other rows pass, when the row has failed before its place.
func (p *place) leave() {
	if p != nil {
		p.arrive()
	}
}

// playRestarted plays rows of restarted, all at a time. Meanwhile the API server rejects what no manager reviews: a request
// that passes unreviewed does not depend on the manager that comes back.
func playRestarted(t *testing.T, w *cluster, rows []row) []outcome {
	restore, err := failClosed(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := restore(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	go rows[0].restart.restart.manager(t.Context(), w)
	return play(t, w, rows, len(rows))
}

// failClosed sets the failurePolicy Fail on all webhooks, and returns how to restore it.
func failClosed(ctx context.Context, w *cluster) (restore func(context.Context) error, err error) {
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfigurationList{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := errors.Join(w.List(ctx, mutating), w.List(ctx, validating)); err != nil {
		return nil, err
	}
	ignored := map[client.Object][]string{} // names of webhooks
	for i := range mutating.Items {
		for _, webhook := range mutating.Items[i].Webhooks {
			if *webhook.FailurePolicy == admissionregistrationv1.Ignore {
				ignored[&mutating.Items[i]] = append(ignored[&mutating.Items[i]], webhook.Name)
			}
		}
	}
	for i := range validating.Items {
		for _, webhook := range validating.Items[i].Webhooks {
			if *webhook.FailurePolicy == admissionregistrationv1.Ignore {
				ignored[&validating.Items[i]] = append(ignored[&validating.Items[i]], webhook.Name)
			}
		}
	}
	set := func(ctx context.Context, policy admissionregistrationv1.FailurePolicyType) (err error) {
		for object, names := range ignored {
			for _, name := range names {
				patch := fmt.Sprintf(`{"webhooks":[{"name":%q,"failurePolicy":%q}]}`, name, policy)
				err = errors.Join(err, w.Patch(ctx, object, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
			}
		}
		return err
	}
	return func(ctx context.Context) error { return set(ctx, admissionregistrationv1.Ignore) }, set(ctx, admissionregistrationv1.Fail)
}
