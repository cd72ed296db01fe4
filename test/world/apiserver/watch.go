package apiserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// bookmarkInterval is the time between two bookmarks of a watch. That of Kubernetes is a minute, which would be most of what a
// quiet cluster does.
const bookmarkInterval = 5 * time.Minute

// watcher is one watch. It reads the changes of its table past the revision that it has reached, and delivers each
// after its lag.
type watcher struct {
	objects  *objects
	user     string
	resource string
	chosen   func(key string) bool
	options  storage.ListOptions
	initial  []record
	// revision is that of the last change that was delivered or passed over. due is the time of the last delivery.
	revision uint64
	due      time.Time

	woken  chan struct{}
	events chan watch.Event
	stop   context.CancelFunc
}

// newWatcher begins a watch: with the objects that exist, if it is to send them or has no resourceVersion, and
// with the changes past a resourceVersion otherwise.
func newWatcher(
	ctx context.Context, o *objects, user, key string, options storage.ListOptions,
) (*watcher, error) {
	from, err := o.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{
		objects: o, user: user, resource: o.table.resource.Resource,
		chosen: under(key, options.Recursive), options: options,
		woken: make(chan struct{}, 1), events: make(chan watch.Event), stop: stop,
	}
	if err := w.begin(from); err != nil {
		stop()
		return nil, err
	}
	go w.run(ctx)
	return w, nil
}

// begin registers the watch with its table at its first revision.
func (w *watcher) begin(from uint64) error {
	d, t := w.objects.database, w.objects.table
	d.mu.Lock()
	defer d.mu.Unlock()
	send := w.options.SendInitialEvents
	switch {
	case from > d.revision:
		return storage.NewTooLargeResourceVersionError(from, d.revision, 1)
	case send != nil && *send, send == nil && from == 0:
		w.initial, w.revision = t.list(w.chosen), d.revision
	case from == 0:
		w.revision = d.revision
	case from < t.compacted:
		return expired(from, t.compacted)
	default:
		w.revision = from
	}
	t.watches[w] = struct{}{}
	return nil
}

func expired(from, oldest uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, oldest))
}

// ResultChan returns the events of the watch.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch.
func (w *watcher) Stop() { w.stop() }

// wake lets the watch look for changes. It does not wait.
func (w *watcher) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.events)
	defer w.end()
	if !w.sendInitial(ctx) {
		return
	}
	bookmarks := w.bookmarks()
	defer bookmarks.Stop()
	for ctx.Err() == nil {
		next, found, complete := w.next()
		switch {
		case !complete:
			w.send(ctx, gone(w.revision))
			return
		case found:
			if !w.deliver(ctx, next) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-w.woken:
		case <-bookmarks.C:
			bookmarks.Reset(bookmarkInterval)
			if !w.send(ctx, w.bookmark(false)) {
				return
			}
		}
	}
}

// bookmarks returns the timer of the bookmarks, which does not run for a client without bookmarks.
func (w *watcher) bookmarks() *time.Timer {
	timer := time.NewTimer(bookmarkInterval)
	if !w.options.Predicate.AllowWatchBookmarks {
		timer.Stop()
	}
	return timer
}

func (w *watcher) end() {
	w.stop()
	d := w.objects.database
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(w.objects.table.watches, w)
}

// next returns the next change of the objects of the watch. With no such change it moves on to the revision of the
// database, which the next bookmark has.
func (w *watcher) next() (next change, found, complete bool) {
	d := w.objects.database
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		next, found, complete = w.objects.table.after(w.revision)
		switch {
		case !complete:
			return next, false, false
		case !found:
			w.revision = d.revision
			return next, false, true
		case w.chosen(next.key):
			return next, true, true
		}
		w.revision = next.revision
	}
}

// sendInitial sends the objects that existed at the beginning, and the bookmark that marks their end if the client
// wants them.
func (w *watcher) sendInitial(ctx context.Context) bool {
	for _, r := range w.initial {
		matches, err := w.options.Predicate.Matches(r.object)
		if err != nil {
			return false
		}
		if matches && !w.send(ctx, watch.Event{Type: watch.Added, Object: r.object.DeepCopyObject()}) {
			return false
		}
	}
	w.initial = nil
	if send := w.options.SendInitialEvents; send != nil && *send && w.options.Predicate.AllowWatchBookmarks {
		return w.send(ctx, w.bookmark(true))
	}
	return true
}

// deliver sends a change, if the client selects the object before or after it, once the lag has passed. It reports
// whether the watch goes on.
func (w *watcher) deliver(ctx context.Context, c change) bool {
	event, selected, err := w.event(c)
	if err != nil {
		return false
	}
	w.revision = c.revision
	if !selected {
		return true
	}
	chances := w.objects.server.chances(w.user, "watch", w.resource, c.revision)
	due := c.time.Add(chances.lag())
	if lag := w.objects.server.options.Lag; lag != nil {
		due = due.Add(lag(w.user, w.resource))
	}
	if due.Before(w.due) {
		due = w.due
	}
	w.due = due
	if !sleep(ctx, time.Until(due)) {
		return false
	}
	if chances.next() < w.objects.server.options.Drop {
		if chances.next() < 0.5 {
			w.send(ctx, gone(c.revision))
		}
		return false
	}
	return w.send(ctx, event)
}

// event returns the event of a change for this client: an object that begins to be selected is added, and one that is
// no longer selected is deleted.
func (w *watcher) event(c change) (event watch.Event, selected bool, err error) {
	before, err := w.selects(c.before)
	if err != nil {
		return event, false, err
	}
	after, err := w.selects(c.after)
	if err != nil {
		return event, false, err
	}
	switch {
	case before && after:
		return watch.Event{Type: watch.Modified, Object: c.shared.now()}, true, nil
	case after:
		return watch.Event{Type: watch.Added, Object: c.shared.now()}, true, nil
	case before:
		last, err := c.shared.last()
		return watch.Event{Type: watch.Deleted, Object: last}, true, err
	}
	return event, false, nil
}

func (w *watcher) selects(object runtime.Object) (bool, error) {
	if object == nil {
		return false, nil
	}
	return w.options.Predicate.Matches(object)
}

// bookmark returns the event that the client has seen everything up to the revision of the watch.
func (w *watcher) bookmark(initialEventsEnd bool) watch.Event {
	object := w.objects.newFunc()
	if err := w.objects.UpdateObject(object, w.revision); err != nil {
		return internalError(err)
	}
	if initialEventsEnd {
		if err := storage.AnnotateInitialEventsEndBookmark(object); err != nil {
			return internalError(err)
		}
	}
	return watch.Event{Type: watch.Bookmark, Object: object}
}

// gone returns the event that the history no longer reaches back to the revision.
func gone(revision uint64) watch.Event {
	status := expired(revision, revision+1).Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

func internalError(err error) watch.Event {
	status := apierrors.NewInternalError(err).Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

func (w *watcher) send(ctx context.Context, event watch.Event) bool {
	select {
	case <-ctx.Done():
		return false
	case w.events <- event:
		return true
	}
}
