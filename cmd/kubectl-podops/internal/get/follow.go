package get

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/podops-dev/podops/pkg/rolloutview"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/live"
)

var (
	errGone  = errors.New("the object does not exist any more")
	errEnded = errors.New("the watch of the cluster ended")
)

// source returns views of one target, and reports changes.
type source interface {
	// View returns the present view.
	View(ctx context.Context) (rolloutview.View, error)

	// Next returns the view after the next change; views are at least drawInterval apart.
	Next(ctx context.Context) (rolloutview.View, error)
}

// watched is the source of a target in a cluster.
type watched struct {
	verb      *verb
	watch     *live.Watch
	namespace string
	highest   int
	last      time.Time
}

func (w *watched) View(ctx context.Context) (rolloutview.View, error) {
	snapshot, err := w.watch.Snapshot(ctx, w.namespace)
	if err != nil {
		return rolloutview.View{}, err
	}
	found := cluster.Find(snapshot, w.verb.target)
	if found == nil {
		if w.last.IsZero() {
			return rolloutview.View{}, cluster.NotFound(snapshot, w.verb.target)
		}
		return rolloutview.View{}, fmt.Errorf("%s: %w", w.verb.target, errGone)
	}
	view := rolloutview.Of(snapshot, found, w.verb.env.Now())
	w.highest = max(w.highest, view.Unavailable)
	view.Highest = &w.highest
	w.last = time.Now()
	return view, nil
}

func (w *watched) Next(ctx context.Context) (rolloutview.View, error) {
	select {
	case <-ctx.Done():
		return rolloutview.View{}, ctx.Err()
	case err := <-w.watch.Ended():
		return rolloutview.View{}, errors.Join(errEnded, err)
	case <-w.watch.Changed():
	}
	// The next frame includes all changes until then.
	select {
	case <-ctx.Done():
		return rolloutview.View{}, ctx.Err()
	case <-time.After(time.Until(w.last.Add(drawInterval))):
	}
	return w.View(ctx)
}

// follow shows the target until ctx ends, or the rollout is complete with --until-done.
func (v *verb) follow(ctx context.Context) error {
	namespace, err := v.env.Namespace()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch, err := live.Start(ctx, v.env, live.Options{ManagerNamespace: v.flags.ManagerNamespace, Namespaces: []string{namespace}})
	if err != nil {
		return err
	}
	views := &watched{verb: v, watch: watch, namespace: namespace}
	if _, _, terminal := v.env.Terminal(); terminal && v.output == "" {
		err = v.draw(ctx, views)
	} else {
		err = v.printChanges(ctx, views)
	}
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C is the way to end a watch.
	}
	return err
}

// printChanges prints the pods at first, and then a line for each change.
func (v *verb) printChanges(ctx context.Context, views source) error {
	view, err := views.View(ctx)
	last := rolloutview.View{}
	for ; err == nil; view, err = views.Next(ctx) {
		if err := v.printChange(last, view); err != nil {
			return err
		}
		if v.untilDone && view.Done() {
			return nil
		}
		last = view
	}
	return err
}

func (v *verb) printChange(last, view rolloutview.View) error {
	changes := rolloutview.Changes(last, view)
	for _, change := range changes {
		line := change.String()
		if v.output == "json" {
			encoded, err := json.Marshal(change)
			if err != nil {
				return fmt.Errorf("encoding a change: %w", err)
			}
			line = string(encoded)
		}
		if _, err := fmt.Fprintln(v.env.Out, line); err != nil {
			return err
		}
	}
	if v.output == "json" || view.Summary() == last.Summary() {
		return nil
	}
	_, err := fmt.Fprintf(v.env.Out, "%s  %s\n", view.Time.Format(time.TimeOnly), view.Summary())
	return err
}
