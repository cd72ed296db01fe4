package processes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// Program is the program that the containers of an image run.
type Program struct {
	Path string

	// VersionVariable is the environment variable with the tag of the image, HostsVariable
	// the environment variable with the path of the file of hosts. Empty: no variable.
	VersionVariable, HostsVariable string
}

// Options describe a Kubelet.
type Options struct {
	Config *rest.Config // of an administrator
	Dir    string       // of data and logs

	// CIDR has the addresses of the pods: loopback addresses that neither the control
	// plane nor another process on this machine uses.
	CIDR netip.Prefix

	// Programs are the programs by image, without its tag.
	Programs map[string]Program

	// Nodes is the number of nodes; 0: 3.
	Nodes int

	Log logr.Logger
}

const (
	defaultNodes = 3
	// maxErrors bounds the errors that are kept.
	maxErrors = 20
)

// Kubelet runs pods. It is created by Start, and safe for concurrent use.
type Kubelet struct {
	options  Options
	client   kubernetes.Interface
	services corelisters.ServiceLister
	claims   corelisters.PersistentVolumeClaimLister
	nodes    []string
	cordoned []string

	stop context.CancelFunc
	done sync.WaitGroup // workers and loops

	mu      sync.Mutex // guards the fields below
	workers map[types.UID]*worker
	next    netip.Addr
	errs    []error

	hosts sync.Mutex // serializes writes of the files of hosts
}

// Start registers the nodes, cordons all others, and runs pods until Close is called or ctx
// ends.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	if o.Nodes == 0 {
		o.Nodes = defaultNodes
	}
	o.Dir, _ = filepath.Abs(o.Dir) // it fails without a working directory only
	if !o.CIDR.IsValid() || !o.CIDR.Addr().IsLoopback() {
		return nil, fmt.Errorf("range %s: pods have loopback addresses", o.CIDR)
	}
	for _, folder := range []string{"logs", "volumes", "pods", "hosts"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, folder), 0o755); err != nil {
			return nil, fmt.Errorf("making the folders of the kubelet: %w", err)
		}
	}
	config := rest.CopyConfig(o.Config)
	config.UserAgent, config.QPS = "processes", -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	k := &Kubelet{options: o, client: client, workers: map[types.UID]*worker{}, next: o.CIDR.Masked().Addr()}
	ctx, k.stop = context.WithCancel(ctx)
	if err := k.start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kubelet) start(ctx context.Context) error {
	if err := k.register(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(k.client, 0)
	core := factory.Core().V1()
	k.services, k.claims = core.Services().Lister(), core.PersistentVolumeClaims().Lister()
	handlers := []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
	}{
		{core.Services().Informer(), handlerOf(func(s *corev1.Service) { k.publish(s.Namespace) }, func(s *corev1.Service) { k.publish(s.Namespace) })},
		{core.PersistentVolumeClaims().Informer(), handlerOf(func(c *corev1.PersistentVolumeClaim) { k.provision(ctx, c) }, nil)},
		{core.PersistentVolumes().Informer(), handlerOf(func(v *corev1.PersistentVolume) { k.reclaim(ctx, v) }, nil)},
		{core.Pods().Informer(), handlerOf(func(p *corev1.Pod) { k.observe(ctx, p) }, k.forget)},
	}
	for _, h := range handlers {
		if _, err := h.informer.AddEventHandler(h.handler); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("listing %s: %w", kind, context.Cause(ctx))
		}
	}
	return k.cordon(ctx)
}

// handlerOf returns a handler that calls set for new and changed objects, and deleted, which
// may be nil, for the others.
func handlerOf[T any](set, deleted func(*T)) toolscache.ResourceEventHandler {
	call := func(do func(*T), object any) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if typed, ok := object.(*T); ok && do != nil {
			do(typed)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { call(set, object) },
		UpdateFunc: func(_, object any) { call(set, object) },
		DeleteFunc: func(object any) { call(deleted, object) },
	}
}

// observe passes a pod of the nodes to its worker.
func (k *Kubelet) observe(ctx context.Context, pod *corev1.Pod) {
	if !slices.Contains(k.nodes, pod.Spec.NodeName) {
		return
	}
	k.mu.Lock()
	w, ok := k.workers[pod.UID]
	if !ok && ctx.Err() == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		w = newWorker(k, pod)
		k.workers[pod.UID] = w
		k.done.Go(func() { w.run(ctx) })
	}
	k.mu.Unlock()
	if w != nil {
		w.send(pod)
	}
}

// forget ends the worker of a pod that does not exist any more.
func (k *Kubelet) forget(pod *corev1.Pod) {
	k.mu.Lock()
	w, ok := k.workers[pod.UID]
	delete(k.workers, pod.UID)
	k.mu.Unlock()
	if ok {
		w.end()
		k.publish(pod.Namespace)
	}
}

// address returns an address that no pod has. They are reused late.
func (k *Kubelet) address() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	used := map[netip.Addr]bool{}
	for _, w := range k.workers {
		used[w.ip()] = true
	}
	for range len(k.workers) + 3 {
		k.next = k.next.Next()
		if !k.options.CIDR.Contains(k.next) {
			k.next = k.options.CIDR.Masked().Addr().Next()
		}
		if !used[k.next] {
			return k.next.String(), nil
		}
	}
	return "", fmt.Errorf("all addresses in %s are taken", k.options.CIDR)
}

// ErrNoProcess means that a pod has no process at the moment.
var ErrNoProcess = errors.New("the pod has no process")

// Kill sends SIGKILL to the process of a pod.
func (k *Kubelet) Kill(namespace, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if w.namespace == namespace && w.name == name && w.kill() {
			return nil
		}
	}
	return fmt.Errorf("%w: %s/%s", ErrNoProcess, namespace, name)
}

// HostsFile returns the path of the file of hosts of a namespace.
func (k *Kubelet) HostsFile(namespace string) string {
	return filepath.Join(k.options.Dir, "hosts", namespace)
}

// LogFile returns the path of the log of all pods of a name.
func (k *Kubelet) LogFile(namespace, name string) string {
	return filepath.Join(k.options.Dir, "logs", namespace+"_"+name+".log")
}

// Err returns the errors up to now; nil without errors.
func (k *Kubelet) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.errs...)
}

func (k *Kubelet) fail(err error) {
	k.options.Log.Error(err, "Running pods")
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.errs) < maxErrors {
		k.errs = append(k.errs, err)
	}
}

// Close kills every process, and lets pods run on the other nodes again. It returns the
// errors up to now.
func (k *Kubelet) Close() error {
	k.stop()
	k.done.Wait()
	k.uncordon(context.Background())
	return k.Err()
}
