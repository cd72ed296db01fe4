package eventqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record/util"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// APISink writes events to the API server.
type APISink struct {
	Events typedcorev1.EventsGetter
}

// Create stores an event.
func (s APISink) Create(ctx context.Context, event *corev1.Event) error {
	_, err := s.Events.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

// Patch applies a strategic merge patch to a stored event.
func (s APISink) Patch(ctx context.Context, namespace, name string, patch []byte) error {
	_, err := s.Events.Events(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// NeedLeaderElection returns false: the events of a leader are sent even after it lost the lease.
func (q *Queue) NeedLeaderElection() bool { return false }

// Start sends events until ctx ends, and then for a moment the events that may be sent.
func (q *Queue) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		wait, sent := q.sendNext(ctx)
		if !sent {
			q.pause(ctx, wait)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	for last.Err() == nil {
		if _, sent := q.sendNext(last); !sent {
			break
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.metrics.dropped(dropStopped, q.backlog.entries)
	return nil
}

// pause waits until an event is recorded, ctx ends, or a time has passed; 0 is no time.
func (q *Queue) pause(ctx context.Context, wait time.Duration) {
	var due <-chan time.Time
	if wait > 0 {
		timer := q.clock.NewTimer(wait)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-q.wake:
	case <-due:
	}
}

// sendNext sends the next event that is due. Without a due event it returns how soon an event may
// be due.
func (q *Queue) sendNext(ctx context.Context) (wait time.Duration, sent bool) {
	q.mu.Lock()
	e, wait := q.backlog.take(q.clock.Now())
	queued := q.backlog.entries
	var last lastSent
	continues := false
	if e != nil {
		last, continues = q.last(e.series, q.clock.Now())
	}
	q.mu.Unlock()
	q.metrics.queued(queued)
	if e == nil {
		return wait, false
	}
	next, err := q.send(ctx, e, last, continues)
	q.settle(ctx, e, next, err)
	return 0, true
}

// send writes one event: as a continuation of its series if the series continues, or else as a new
// event.
func (q *Queue) send(ctx context.Context, e *entry, last lastSent, continues bool) (lastSent, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if continues {
		next := lastSent{name: last.name, count: last.count + e.count, at: q.clock.Now()}
		patch, err := json.Marshal(map[string]any{
			"count": next.count, "lastTimestamp": metav1.NewTime(e.last), "message": e.note, "type": e.eventType, "action": e.action,
		})
		if err != nil {
			return lastSent{}, fmt.Errorf("encoding the patch: %w", err)
		}
		if err := q.sink.Patch(ctx, e.series.namespace, last.name, patch); !apierrors.IsNotFound(err) {
			return next, err
		}
	}
	event := e.event()
	return lastSent{name: event.Name, count: e.count, at: q.clock.Now()}, q.sink.Create(ctx, event)
}

// event returns an entry as the API server stores it.
func (e *entry) event() *corev1.Event {
	host, _ := os.Hostname() // best effort, as in client-go
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.series.namespace, Name: e.name(), Annotations: e.annotations,
		},
		InvolvedObject: e.regarding, Related: e.related,
		Type: e.eventType, Reason: e.reason, Action: e.action, Message: e.note,
		Source: corev1.EventSource{Component: e.source}, ReportingController: e.source, ReportingInstance: text.Cut(e.source+"-"+host, maxWordBytes),
		FirstTimestamp: metav1.NewTime(e.first), LastTimestamp: metav1.NewTime(e.last), Count: e.count,
	}
}

// name returns a name that is unique among the events of an object: two may be recorded at one
// time, with different reasons.
func (e *entry) name() string {
	reason := fnv.New32a()
	_, _ = reason.Write([]byte(e.reason)) // never fails
	return util.GenerateEventName(e.regarding.Name, e.first.UnixNano()+int64(reason.Sum32()))
}

// settle records an event that was sent, and handles an error:
//   - to a namespace that is deleted or terminating nothing more is sent;
//   - an event that the API server rejects is dropped;
//   - other failures are retried a few times.
func (q *Queue) settle(ctx context.Context, e *entry, next lastSent, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.sent.Add(e.series.namespace, e.series, next, e.series.bytes()+int64(len(next.name)))
		return
	}
	ctrllog.FromContext(ctx).V(1).Info("Event not written", "namespace", e.series.namespace, "object", e.series.name, "reason", e.reason, "error", err.Error())
	e.tries++
	switch {
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		q.metrics.dropped(dropNamespaceGone, 1+q.backlog.dropNamespace(e.series.namespace))
	case isRefused(err):
		q.metrics.dropped(dropRefused, 1)
	case e.tries >= maxTries:
		q.metrics.dropped(dropFailed, 1)
	default:
		e.due = q.clock.Now().Add(retryAfter << (e.tries - 1))
		if !q.backlog.giveBack(e) {
			q.metrics.dropped(dropFull, 1)
		}
	}
}

// isRefused reports whether the same request would be rejected again.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsUnauthorized(err)
}
