package operator

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/podops-dev/podops/pkg/state/eventqueue"
)

// queuedEvents is a manager whose recorders record into a queue. Every controller gets its recorder
// from the manager, including the controllers of adapters.
type queuedEvents struct {
	manager.Manager
	queue *eventqueue.Queue
}

// GetEventRecorder returns a recorder that never blocks, and whose events may be dropped.
func (m queuedEvents) GetEventRecorder(name string) recorder.EventRecorder {
	return m.queue.Recorder(name)
}

// withEventQueue returns the manager with a queue of events, which it runs. perSecond is how
// many events each namespace may have in the long run.
func withEventQueue(mgr manager.Manager, clientset kubernetes.Interface, measured *eventqueue.Metrics, perSecond float64) (manager.Manager, error) {
	queue := eventqueue.New(mgr.GetScheme(), eventqueue.APISink{Events: clientset.CoreV1()}, perSecond, clock.RealClock{}, measured)
	if err := mgr.Add(queue); err != nil {
		return nil, fmt.Errorf("adding the queue of events: %w", err)
	}
	return queuedEvents{Manager: mgr, queue: queue}, nil
}
