package eventqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// DefaultRate is the number of events a second that one namespace may have in the long
	// run. A lifecycle has two events and three other requests: this allows five lifecycles a
	// second in each namespace.
	DefaultRate = 10

	// burst is the number of events that one namespace may have at once: the events of a rollout of
	// 25 pods.
	burst = 50

	// totalRate and totalBurst bound the requests for all namespaces together.
	totalRate, totalBurst = 50, 200

	// maxEntries, maxBytes and maxNamespaceEntries bound the backlog. A namespace alone
	// sends its share in 100 seconds at DefaultRate; later the events would be out of date.
	maxEntries, maxBytes, maxNamespaceEntries = 4000, 8 << 20, 1000

	// seriesBytes bounds the sent events that are kept to be continued as a series. Beyond it the
	// namespace with the most of them loses its oldest; a repetition of it becomes a new event.
	seriesBytes = 4 << 20

	// seriesWindow is the time after its last request for which a series is continued. Events
	// live for an hour by default, and readers take longer series for one continuous problem.
	seriesWindow = 10 * time.Minute

	// seriesInterval is the least time between two requests for one series. Repetitions in
	// between are counted, and the newest note is sent then.
	seriesInterval = 10 * time.Second

	// maxTries is the number of times that an event is sent when the API server fails,
	// with a pause of retryAfter before the second time and twice the previous pause
	// before each further time.
	maxTries   = 3
	retryAfter = 2 * time.Second

	// sendTimeout bounds one request, and drainFor the requests after the manager was stopped.
	sendTimeout = 10 * time.Second
	drainFor    = time.Second

	// maxNoteBytes and maxWordBytes are the limits of the API server for a note, and for a
	// reason or an action.
	maxNoteBytes, maxWordBytes = 1024, 128
)

// Sink writes events.
type Sink interface {
	// Create stores an event.
	Create(ctx context.Context, event *corev1.Event) error

	// Patch applies a strategic merge patch to a stored event.
	Patch(ctx context.Context, namespace, name string, patch []byte) error
}

// Queue sends the events of its recorders. It is safe for concurrent use.
type Queue struct {
	scheme  *runtime.Scheme
	sink    Sink
	clock   clock.Clock
	metrics *Metrics
	off     bool
	wake    chan struct{}

	mu      sync.Mutex
	backlog *backlog

	// sent are the events that may be continued as a series.
	sent *fairshare.Cache[series, lastSent]
}

// lastSent is the last event of a series that was sent.
type lastSent struct {
	name  string
	count int32
	at    time.Time
}

var _ manager.LeaderElectionRunnable = &Queue{}

// New returns a Queue in which each namespace has perSecond events a second in the long run.
// With 0 no event is recorded.
func New(scheme *runtime.Scheme, sink Sink, perSecond float64, clk clock.Clock, metrics *Metrics) *Queue {
	return newQueue(scheme, sink, clk, metrics, limits{
		entries: maxEntries, bytes: maxBytes, namespaceEntries: maxNamespaceEntries,
		rate: rate.Limit(perSecond), burst: burst, totalRate: max(totalRate, rate.Limit(perSecond)), totalBurst: totalBurst,
	})
}

func newQueue(scheme *runtime.Scheme, sink Sink, clk clock.Clock, metrics *Metrics, l limits) *Queue {
	return &Queue{
		scheme: scheme, sink: sink, clock: clk, metrics: metrics, off: l.rate <= 0, wake: make(chan struct{}, 1),
		backlog: newBacklog(l), sent: fairshare.NewCache[series, lastSent](seriesBytes),
	}
}

// Recorder returns a recorder of events with source as their reporting component.
func (q *Queue) Recorder(source string) recorder.EventRecorder {
	return &sourceRecorder{queue: q, source: source}
}

// sourceRecorder records the events of one source.
type sourceRecorder struct {
	queue  *Queue
	source string
}

// Eventf records an event. It never blocks, and drops an event of an object that cannot be
// referred to.
func (r *sourceRecorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	r.AnnotatedEventf(regarding, related, nil, eventType, reason, action, note, args...)
}

// AnnotatedEventf records an event with annotations, as Eventf does. The annotations must not be
// modified afterwards; the annotations of a series' first event stay.
func (r *sourceRecorder) AnnotatedEventf(
	regarding, related runtime.Object, annotations map[string]string, eventType, reason, action, note string, args ...any,
) {
	q := r.queue
	if q.off {
		return
	}
	e, err := q.entry(regarding, related, reason)
	if err != nil || !util.ValidateEventType(eventType) {
		q.metrics.dropped(dropInvalid, 1)
		ctrllog.Log.V(1).Info("Event cannot be made", "reason", reason, "type", eventType, "error", err)
		return
	}
	e.source, e.annotations, e.eventType = r.source, annotations, eventType
	e.action, e.note = text.Cut(action, maxWordBytes), text.Cut(fmt.Sprintf(note, args...), maxNoteBytes)
	q.add(e)
}

// entry returns an entry that refers to the objects of an event.
func (q *Queue) entry(regarding, related runtime.Object, reason string) (*entry, error) {
	about, err := reference.GetReference(q.scheme, regarding)
	if err != nil {
		return nil, fmt.Errorf("referring to the object: %w", err)
	}
	now := q.clock.Now()
	e := &entry{regarding: *about, reason: text.Cut(reason, maxWordBytes), first: now, last: now, count: 1}
	if related != nil {
		if e.related, err = reference.GetReference(q.scheme, related); err != nil {
			return nil, fmt.Errorf("referring to the related object: %w", err)
		}
	}
	e.series = series{namespace: about.Namespace, kind: about.Kind, name: about.Name, uid: about.UID, reason: e.reason}
	if e.series.namespace == "" {
		e.series.namespace = metav1.NamespaceDefault
	}
	return e, nil
}

func (q *Queue) add(e *entry) {
	q.mu.Lock()
	if last, ok := q.last(e.series, e.last); ok {
		e.due = last.at.Add(seriesInterval)
	}
	dropped := q.backlog.add(e.series.namespace, e)
	queued := q.backlog.entries
	q.mu.Unlock()
	q.metrics.dropped(dropFull, dropped)
	q.metrics.queued(queued)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// last returns the event that a series continues. The caller holds the lock.
func (q *Queue) last(s series, now time.Time) (lastSent, bool) {
	last, ok := q.sent.Get(s)
	return last, ok && now.Sub(last.at) < seriesWindow
}
