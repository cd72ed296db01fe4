// Package node simulates the nodes of a cluster: a scheduler that binds pods, and kubelets that
// run, report and remove them. Each has a client of its own, and acts as the real program does as
// far as the API server can observe it. How long a pod takes to start and to stop follows from a
// seed and the name of the pod.
package node

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

const (
	// CompleteAfter is an annotation of a pod: the time after its start at which its containers end with success.
	CompleteAfter = "test.podops.dev/complete-after"

	// StartAfter is an annotation of a pod: the time that its containers take to become ready.
	StartAfter = "test.podops.dev/start-after"

	// StopAfter is an annotation of a pod: the time that its containers take to end, at most its grace period.
	StopAfter = "test.podops.dev/stop-after"

	// watcher is the user whose watch all kubelets share.
	watcher = "system:node"

	// workers is the number of workers of all kubelets.
	workers = 8
)

// Config returns the configuration of a client of the user.
type Config func(user string, groups ...string) *rest.Config

// Nodes are the kubelets and the scheduler of a cluster. They are safe for concurrent use.
type Nodes struct {
	seed    uint64
	admin   clientset.Interface
	clients map[string]clientset.Interface // by node
	pods    corelisters.PodLister
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	running sync.WaitGroup

	mu    sync.Mutex
	lost  map[string]bool
	known map[types.UID]*facts
	next  int // of addresses
	ips   map[types.UID]string
}

// Start creates the Nodes node-1 to node-n, and starts their kubelets and the scheduler, which run until the
// context ends.
func Start(ctx context.Context, config Config, n int, seed uint64) (*Nodes, error) {
	admin, err := clientset.NewForConfig(config("kubernetes-admin", "system:masters"))
	if err != nil {
		return nil, fmt.Errorf("making the client of nodes: %w", err)
	}
	shared, err := clientset.NewForConfig(config(watcher, "system:nodes"))
	if err != nil {
		return nil, fmt.Errorf("making the client of kubelets: %w", err)
	}
	factory := informers.NewSharedInformerFactory(shared, 0)
	nodes := &Nodes{
		seed: seed, admin: admin, clients: map[string]clientset.Interface{}, pods: factory.Core().V1().Pods().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		lost:  map[string]bool{}, known: map[types.UID]*facts{}, ips: map[types.UID]string{},
	}
	for i := range n {
		name := fmt.Sprintf("node-%d", i+1)
		if nodes.clients[name], err = clientset.NewForConfig(config("system:node:"+name, "system:nodes")); err != nil {
			return nil, fmt.Errorf("making the client of %s: %w", name, err)
		}
		if err := nodes.Add(ctx, name); err != nil {
			return nil, err
		}
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: nodes.enqueue, UpdateFunc: func(_, pod any) { nodes.enqueue(pod) }, DeleteFunc: nodes.forget,
	}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	schedule, err := newScheduler(config, seed)
	if err != nil {
		return nil, err
	}
	nodes.running.Go(func() { schedule.run(ctx) })
	factory.Start(ctx.Done())
	nodes.running.Go(func() {
		<-ctx.Done()
		nodes.queue.ShutDown()
		factory.Shutdown()
	})
	for range workers {
		nodes.running.Go(func() {
			for nodes.work(ctx) {
			}
		})
	}
	return nodes, nil
}

// Wait waits for the end of the kubelets and the scheduler, which the end of the context of Start brings.
func (n *Nodes) Wait() { n.running.Wait() }

// Add creates the Node of a kubelet, which runs pods from then on, and the pods that were bound to it before it was lost.
func (n *Nodes) Add(ctx context.Context, name string) error {
	n.mu.Lock()
	wasLost := n.lost[name]
	delete(n.lost, name)
	n.mu.Unlock()
	if wasLost {
		pods, err := n.pods.List(labels.Everything())
		if err != nil {
			return fmt.Errorf("listing the pods of %s: %w", name, err)
		}
		for _, pod := range pods {
			if pod.Spec.NodeName == name {
				n.enqueue(pod)
			}
		}
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
	created, err := n.admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	created.Status = node.Status
	if _, err := n.clients[name].CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("reporting the status of Node %s: %w", name, err)
	}
	return nil
}

// Lose ends the kubelet of a node and deletes its Node, as a cloud does with a machine that is lost.
func (n *Nodes) Lose(ctx context.Context, name string) error {
	n.mu.Lock()
	n.lost[name] = true
	n.mu.Unlock()
	if err := n.admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Node %s: %w", name, err)
	}
	return nil
}

// Fail makes the containers of a pod fail their probes for a time.
func (n *Nodes) Fail(pod *corev1.Pod, during time.Duration) {
	n.mu.Lock()
	n.facts(pod, time.Now()).unwell = time.Now().Add(during)
	n.mu.Unlock()
	n.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

func (n *Nodes) enqueue(object any) {
	if pod := object.(*corev1.Pod); pod.Spec.NodeName != "" {
		n.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (n *Nodes) forget(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, pod.UID)
	delete(n.ips, pod.UID)
}

func (n *Nodes) work(ctx context.Context) bool {
	key, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(key)
	next, err := n.sync(ctx, key)
	switch {
	case err != nil:
		n.queue.AddRateLimited(key)
	case !next.IsZero():
		n.queue.Forget(key)
		n.queue.AddAfter(key, time.Until(next))
	default:
		n.queue.Forget(key)
	}
	return true
}

// sync reports a pod, or removes it.
func (n *Nodes) sync(ctx context.Context, key types.NamespacedName) (time.Time, error) {
	pod, err := n.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading pod %s: %w", key, err)
	}
	now := time.Now()
	f, address, lost := n.look(pod, now)
	if lost || pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return time.Time{}, nil
	}
	status, next, remove := report(pod, f, address, now)
	client, ok := n.clients[pod.Spec.NodeName]
	if !ok {
		return time.Time{}, fmt.Errorf("pod %s is on the unknown node %s", key, pod.Spec.NodeName)
	}
	if _, _, _, err := podutil.PatchPodStatus(ctx, client, pod.Namespace, pod.Name, pod.UID, pod.Status, status); err != nil {
		if apierrors.IsNotFound(errors.Unwrap(err)) {
			return time.Time{}, nil
		}
		return time.Time{}, fmt.Errorf("reporting pod %s: %w", key, err)
	}
	if !remove {
		return next, nil
	}
	now0 := int64(0)
	err = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now0, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return time.Time{}, fmt.Errorf("removing pod %s: %w", key, err)
	}
	return time.Time{}, nil
}

// look returns what the kubelet of a pod knows of it, its address, and whether the node is lost.
func (n *Nodes) look(pod *corev1.Pod, now time.Time) (f facts, address string, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.facts(pod, now)
	if pod.DeletionTimestamp != nil && known.stop.IsZero() {
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		known.stop = now.Add(min(grace, n.duration(pod, StopAfter, stops)))
	}
	return *known, n.ips[pod.UID], n.lost[pod.Spec.NodeName]
}

// facts returns what the kubelets know of a pod, which begins when they first see it.
func (n *Nodes) facts(pod *corev1.Pod, now time.Time) *facts {
	if known, ok := n.known[pod.UID]; ok {
		return known
	}
	const create = 300 * time.Millisecond
	known := &facts{start: now.Add(create), ready: now.Add(create + n.duration(pod, StartAfter, starts))}
	if after, err := time.ParseDuration(pod.Annotations[CompleteAfter]); err == nil {
		known.complete = known.start.Add(after)
	}
	n.known[pod.UID] = known
	n.next++
	n.ips[pod.UID] = fmt.Sprintf("10.0.%d.%d", n.next/250, 1+n.next%250)
	return known
}

// starts and stops are the times of which the seed chooses.
var (
	starts = []time.Duration{700 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 9 * time.Second}
	stops  = []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second, 7 * time.Second}
)

// duration returns the time in an annotation of a pod, else one of the choices.
func (n *Nodes) duration(pod *corev1.Pod, annotation string, choices []time.Duration) time.Duration {
	if d, err := time.ParseDuration(pod.Annotations[annotation]); err == nil {
		return d
	}
	return choices[hash(n.seed, annotation, pod.Name)%uint64(len(choices))]
}

// hash returns a number that follows from a seed and texts.
func hash(seed uint64, texts ...string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed)
	for _, text := range texts {
		fmt.Fprint(h, "/", text)
	}
	return h.Sum64()
}
