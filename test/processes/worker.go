package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// The delays before a process that has ended is started again: the delays of a kubelet, divided
	// by ten.
	firstDelay = time.Second
	maxDelay   = 30 * time.Second

	// retryInterval is the pause after a write that failed.
	retryInterval = 200 * time.Millisecond

	writeTimeout = 10 * time.Second

	defaultGrace = 30 * time.Second
)

// worker runs one pod. Only its goroutine changes run; others read it under mu.
type worker struct {
	kubelet         *Kubelet
	namespace, name string
	updates         chan *corev1.Pod // the newest pod only
	gone            chan struct{}    // closed when the pod does not exist any more
	once            sync.Once

	mu      sync.Mutex // guards the fields below
	pod     *corev1.Pod
	state   run
	process *process // nil: none

	reported corev1.PodStatus // the last written status
	retryAt  time.Time        // of the next start, while the state is waiting
	delay    time.Duration    // between the next failure and the start after it
}

func newWorker(k *Kubelet, pod *corev1.Pod) *worker {
	return &worker{
		kubelet: k, namespace: pod.Namespace, name: pod.Name, pod: pod, updates: make(chan *corev1.Pod, 1), gone: make(chan struct{}), delay: firstDelay,
	}
}

// send passes the newest version of the pod.
func (w *worker) send(pod *corev1.Pod) {
	for {
		select {
		case w.updates <- pod:
			return
		default:
		}
		select {
		case <-w.updates: // an older version
		default:
		}
	}
}

// end ends the worker of a pod that does not exist any more.
func (w *worker) end() { w.once.Do(func() { close(w.gone) }) }

func (w *worker) ip() netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	address, err := netip.ParseAddr(w.state.address)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// named returns the pod as the file of hosts has it. A pod without further processes has no
// address.
func (w *worker) named() named {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := named{pod: w.pod, address: w.state.address, ready: w.state.running && w.state.ready && gatesOpen(w.pod)}
	if w.state.final {
		n.address = ""
	}
	return n
}

// kill reports whether there was a process to kill.
func (w *worker) kill() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return false
	}
	w.process.signal(syscall.SIGKILL)
	return true
}

// run runs the pod until it does not exist any more or ctx ends. Then its process is killed.
func (w *worker) run(ctx context.Context) {
	defer func() {
		if p := w.process; p != nil {
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
	}()
	address, err := w.kubelet.address()
	if err != nil {
		w.kubelet.fail(err)
		return
	}
	w.set(func(r *run) {
		r.address, r.began, r.image = address, metav1.Now(), w.pod.Spec.Containers[0].Image
	})
	w.kubelet.publish(w.namespace)
	for w.step(ctx) {
	}
}

// step brings the process to the state that the pod requires, reports the status, and waits
// for the next change. It returns false if no change follows.
func (w *worker) step(ctx context.Context) bool {
	switch {
	case w.pod.DeletionTimestamp != nil:
		w.terminate(ctx)
		return w.await(ctx, nil)
	case w.state.final:
	case w.process != nil && w.pod.Spec.Containers[0].Image != w.state.image:
		w.stop(ctx)
		w.exited(true)
		return ctx.Err() == nil
	case w.process == nil && time.Until(w.retryAt) <= 0:
		w.start(ctx)
	}
	var timer <-chan time.Time
	if err := w.report(ctx); err != nil {
		timer = time.After(retryInterval)
	} else if w.process == nil && !w.state.final {
		timer = time.After(time.Until(w.retryAt))
	}
	return w.await(ctx, timer)
}

// await waits for a change of the pod, of its process or of its readiness, or for the timer.
func (w *worker) await(ctx context.Context, timer <-chan time.Time) bool {
	var (
		ended   <-chan struct{}
		results <-chan bool
	)
	if w.process != nil {
		ended, results = w.process.ended, w.process.ready
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.gone:
		return false
	case pod := <-w.updates:
		w.mu.Lock()
		if !older(pod, w.pod) {
			w.pod = pod
		}
		w.mu.Unlock()
	case ready := <-results:
		w.set(func(r *run) { r.ready = ready })
		w.kubelet.publish(w.namespace)
	case <-ended:
		w.exited(false)
	case <-timer:
	}
	return true
}

// older reports whether a version of a pod is older than another version: the answer to a
// write may be newer than the next event.
func older(pod, than *corev1.Pod) bool {
	a, errA := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	b, errB := strconv.ParseUint(than.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && a < b
}

func (w *worker) set(change func(*run)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
}

// start starts the process.
func (w *worker) start(ctx context.Context) {
	p, err := w.launch(ctx)
	if errors.Is(err, errUnbound) {
		w.retryAt = time.Now().Add(retryInterval)
		return
	}
	if err != nil {
		w.kubelet.options.Log.Info("A process did not start", "pod", w.namespace+"/"+w.name, "error", err.Error())
		reason := "CreateContainerError"
		if errors.Is(err, errImage) {
			reason = "ErrImagePull"
		}
		w.set(func(r *run) { r.waiting, r.image = reason, w.pod.Spec.Containers[0].Image })
		w.postpone()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = p
	if w.state.ended {
		w.state.restarts++
	}
	w.state.image, w.state.running, w.state.started, w.state.waiting = w.pod.Spec.Containers[0].Image, true, metav1.Now(), ""
	w.state.ready = w.pod.Spec.Containers[0].ReadinessProbe == nil
}

func (w *worker) launch(ctx context.Context) (*process, error) {
	pod := w.pod.DeepCopy()
	pod.Status.PodIP = w.state.address
	if n := len(pod.Spec.Containers); n != 1 || len(pod.Spec.InitContainers) > 0 {
		return nil, fmt.Errorf("a pod has one container, not %d", n+len(pod.Spec.InitContainers))
	}
	mounts, err := w.kubelet.mounts(pod)
	if err != nil {
		return nil, err
	}
	command, err := commandOf(pod, w.kubelet.options.Programs, mounts, w.kubelet.HostsFile(pod.Namespace))
	if err != nil {
		return nil, err
	}
	probe, err := probeOf(pod)
	if err != nil {
		return nil, err
	}
	return startProcess(ctx, command, w.kubelet.LogFile(pod.Namespace, pod.Name), filepath.Join(w.kubelet.options.Dir, "pods"), probe)
}

// exited notes the end of the process. A replaced process is followed by another process at once.
func (w *worker) exited(replaced bool) {
	w.mu.Lock()
	code := w.process.exitCode()
	w.process = nil
	policy := w.pod.Spec.RestartPolicy
	r := &w.state
	r.running, r.ready, r.ended, r.exitCode, r.finished = false, false, true, code, metav1.Now()
	r.final = !replaced && (policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0)
	r.waiting = ""
	if !replaced {
		r.waiting = "CrashLoopBackOff"
		w.postpone()
	}
	w.mu.Unlock()
	w.kubelet.publish(w.namespace)
}

// postpone delays the next start, the longer the more there were.
func (w *worker) postpone() {
	w.retryAt = time.Now().Add(w.delay)
	w.delay = min(2*w.delay, maxDelay)
}

// stop ends the process: SIGTERM, and SIGKILL after the grace period.
func (w *worker) stop(ctx context.Context) {
	grace := defaultGrace
	if s := w.pod.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	} else if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	w.process.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		select {
		case <-w.process.ended:
			return
		case ready := <-w.process.ready:
			w.set(func(r *run) { r.ready = ready })
			w.kubelet.publish(w.namespace)
			_ = w.report(ctx) // the end of the process is reported in any case
			continue
		case <-timer.C:
		case <-w.gone: // deleted by force
		case <-ctx.Done():
		}
		w.process.signal(syscall.SIGKILL)
		<-w.process.ended
		return
	}
}

// terminate ends the process of a pod that is being deleted, reports it, and lets the pod go.
// It is repeated until that has worked.
func (w *worker) terminate(ctx context.Context) {
	if w.process != nil {
		w.kubelet.publish(w.namespace)
		w.stop(ctx)
		w.exited(false)
	}
	w.set(func(r *run) { r.final = true })
	w.kubelet.publish(w.namespace)
	for ctx.Err() == nil {
		err := w.report(ctx)
		if err == nil {
			err = w.delete(ctx)
		}
		if err == nil {
			return
		}
		w.kubelet.options.Log.V(1).Info("Retrying the end of a pod", "pod", w.namespace+"/"+w.name, "error", err.Error())
		select {
		case <-ctx.Done():
		case <-w.gone:
			return
		case <-time.After(retryInterval):
		}
	}
}

// delete is the final delete of a kubelet. Finalizers keep the object.
func (w *worker) delete(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, writeTimeout)
	defer stop()
	zero := int64(0)
	if s := w.pod.DeletionGracePeriodSeconds; s != nil && *s == 0 {
		return nil // it was made
	}
	err := w.kubelet.client.CoreV1().Pods(w.namespace).Delete(ctx, w.name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(w.pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", w.name, err)
	}
	return nil
}

// report writes the status if it has changed.
func (w *worker) report(ctx context.Context) error {
	status := statusOf(w.pod, w.state, metav1.Now())
	if equality.Semantic.DeepEqual(status, w.reported) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encoding the status of pod %s: %w", w.name, err)
	}
	ctx, stop := context.WithTimeout(ctx, writeTimeout)
	defer stop()
	pod, err := w.kubelet.client.CoreV1().Pods(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or replaced: its event follows
	}
	if err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", w.name, err)
	}
	// Conditions of the next status keep the times of this status.
	w.mu.Lock()
	w.pod, w.reported = pod, statusOf(pod, w.state, metav1.Now())
	w.mu.Unlock()
	return nil
}
