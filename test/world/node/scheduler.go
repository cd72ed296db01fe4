package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// scheduler binds each pod to the node with the fewest pods of the nodes that it may run on, one pod after the other.
type scheduler struct {
	seed    uint64
	client  clientset.Interface
	factory informers.SharedInformerFactory
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// assumed are pods that were bound, which the watch may not show yet.
	assumed map[types.UID]string
}

func newScheduler(config Config, seed uint64) (*scheduler, error) {
	client, err := clientset.NewForConfig(config("system:kube-scheduler"))
	if err != nil {
		return nil, fmt.Errorf("making the client of the scheduler: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &scheduler{
		seed: seed, client: client, factory: factory, pods: factory.Core().V1().Pods().Lister(), nodes: factory.Core().V1().Nodes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](
			time.Second, 10*time.Second)),
		assumed: map[types.UID]string{},
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.enqueue, UpdateFunc: func(_, pod any) { s.enqueue(pod) },
	}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	return s, nil
}

func (s *scheduler) enqueue(object any) {
	if pod := object.(*corev1.Pod); pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
		s.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

// run binds pods until the context ends.
func (s *scheduler) run(ctx context.Context) {
	s.factory.Start(ctx.Done())
	defer s.factory.Shutdown()
	s.factory.WaitForCacheSync(ctx.Done())
	stop := context.AfterFunc(ctx, s.queue.ShutDown)
	defer stop()
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.schedule(ctx, key); err != nil {
			s.queue.AddRateLimited(key)
		} else {
			s.queue.Forget(key)
		}
		s.queue.Done(key)
	}
}

func (s *scheduler) schedule(ctx context.Context, key types.NamespacedName) error {
	pod, err := s.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading pod %s: %w", key, err)
	}
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || s.assumed[pod.UID] != "" {
		return nil
	}
	node, err := s.choose(pod)
	if err != nil {
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("binding pod %s: %w", key, err)
	}
	s.assumed[pod.UID] = node
	return nil
}

// choose returns the node with the fewest pods of the nodes that the pod may run on.
func (s *scheduler) choose(pod *corev1.Pod) (string, error) {
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool {
		fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		return err != nil || !fits || node.Spec.Unschedulable && !tolerates(pod)
	})
	if len(nodes) == 0 {
		return "", fmt.Errorf("pod %s/%s fits no node", pod.Namespace, pod.Name)
	}
	load, err := s.load()
	if err != nil {
		return "", err
	}
	least := slices.MinFunc(nodes, func(a, b *corev1.Node) int {
		if load[a.Name] != load[b.Name] {
			return load[a.Name] - load[b.Name]
		}
		return strings.Compare(a.Name, b.Name)
	})
	return least.Name, nil
}

// load returns the number of pods by node.
func (s *scheduler) load() (map[string]int, error) {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	load := map[string]int{}
	for _, pod := range pods {
		node := pod.Spec.NodeName
		if node == "" {
			node = s.assumed[pod.UID]
		} else {
			delete(s.assumed, pod.UID)
		}
		if node != "" && pod.DeletionTimestamp == nil {
			load[node]++
		}
	}
	return load, nil
}

// tolerates reports whether a pod may run on a node that is cordoned, as pods of DaemonSets may.
func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == corev1.TaintNodeUnschedulable || t.Key == "" && t.Operator == corev1.TolerationOpExists
	})
}
