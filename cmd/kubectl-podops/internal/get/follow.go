package get

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"

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

	// Changes returns the changes of pods until the last view, and whether they are complete.
	Changes() (changes []rolloutview.Change, complete bool)
}

// watched is the source of a target in a cluster.
type watched struct {
	verb      *verb
	watch     *live.Watch
	namespace string
	highest   int
	last      time.Time

	versions timeline.Changes // of pods
	stream   timeline.Stream
	changes  []rolloutview.Change
	complete bool
}

func (w *watched) View(ctx context.Context) (rolloutview.View, error) {
	versions := w.versions.Take()
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
	if lost := w.watch.Lost(); lost != nil {
		view.Stale = lost.Error()
	}
	w.last = time.Now()
	w.changes, w.complete = w.stream.Next(view, view.PodsIn(snapshot), versions)
	return view, nil
}

func (w *watched) Changes() (changes []rolloutview.Change, complete bool) {
	return w.changes, w.complete
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
	views := &watched{verb: v, namespace: namespace}
	views.watch, err = live.Start(ctx, v.env, live.Options{
		ManagerNamespace: v.flags.ManagerNamespace, Namespaces: []string{namespace}, Changes: &views.versions,
	})
	if err != nil {
		return err
	}
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
		changes, complete := views.Changes()
		if err := v.printChanged(last, view, changes); err != nil {
			return err
		}
		if v.untilDone && view.Done() && complete {
			return nil
		}
		last = view
	}
	return err
}

// printChanged prints the changes of pods, and of a view's numbers.
func (v *verb) printChanged(last, view rolloutview.View, changes []rolloutview.Change) error {
	if view.Stale != last.Stale {
		_, _ = fmt.Fprintf(v.env.ErrOut, "%s  %s\n", view.Time.Format(time.TimeOnly), cmp.Or(view.Stale, live.Answers))
	}
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
	at := view.Time.Time
	if len(changes) > 0 {
		at = changes[len(changes)-1].Time.Time // The view is later than the changes; lines are in the order of their times.
	}
	_, err := fmt.Fprintf(v.env.Out, "%s  %s\n", at.Format(time.TimeOnly), view.Summary())
	return err
}
