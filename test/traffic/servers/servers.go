package servers

import (
	"errors"
	"net"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// Set runs one server for each running pod. It gets pods through Handler. It is safe
// for concurrent use.
type Set struct {
	port, drainPort int
	log             logr.Logger

	mu      sync.Mutex
	closed  bool
	running map[types.UID]running
	starts  int
	kills   int
	errs    []error // at most maxErrors
}

// maxErrors bounds the errors that are kept.
const maxErrors = 20

type running struct {
	process process
	server  *server
}

// New returns a Set without servers. Each will listen on the given ports of its pod's address, on the second one for its
// drain endpoint (examples/draining); 0 is any port.
func New(port, drainPort int, log logr.Logger) *Set {
	return &Set{port: port, drainPort: drainPort, log: log, running: map[types.UID]running{}}
}

// Handler returns the event handler for the pods of an informer. A server has ended when
// the call that ends it returns.
func (f *Set) Handler() toolscache.ResourceEventHandler {
	set := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			f.observe(pod)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				f.forget(pod)
			}
		},
	}
}

// Counts are the numbers of servers that run, and that were ever started and killed.
type Counts struct{ Running, Started, Killed int }

// Counts returns the counts up to now.
func (f *Set) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Counts{Running: len(f.running), Started: f.starts, Killed: f.kills}
}

// Err returns the errors up to now; nil without errors. A pod whose server could not listen
// invalidates a measurement, so callers check it at the end.
func (f *Set) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// Close kills every server. Pods that are observed later get no server.
func (f *Set) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for uid := range f.running {
		f.stop(uid)
	}
}

// observe starts and kills servers under the lock: the old server of a pod must have ended
// before its next server listens on the same address, and both take well below a
// millisecond.
func (f *Set) observe(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	want, runs := processOf(pod)
	have, serves := f.running[pod.UID]
	if serves && (!runs || have.process != want) {
		f.stop(pod.UID)
		serves = false
	}
	if !runs || serves || f.closed {
		return
	}
	at := func(port int) string { return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)) }
	s, err := listen(pod.Name, at(f.port), at(f.drainPort))
	if err != nil {
		f.fail(err)
		return
	}
	f.starts++
	f.running[pod.UID] = running{process: want, server: s}
	f.log.V(1).Info("Started the server of a pod", "pod", pod.Name, "address", pod.Status.PodIP)
}

func (f *Set) forget(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop(pod.UID)
}

func (f *Set) stop(uid types.UID) {
	entry, ok := f.running[uid]
	if !ok {
		return
	}
	delete(f.running, uid)
	f.kills++
	if err := entry.server.kill(); err != nil {
		f.fail(err)
	}
}

func (f *Set) fail(err error) {
	f.log.Error(err, "Running the server of a pod")
	if len(f.errs) < maxErrors {
		f.errs = append(f.errs, err)
	}
}
