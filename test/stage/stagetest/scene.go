package stagetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/test/audit"
)

const (
	// SceneLabelKey is a label for pods, with their namespace, by which programs that work on all namespaces select them.
	SceneLabelKey = "test.podops.dev/scene"

	// ApprovedLabelKey is the label that the rule Approved requires.
	ApprovedLabelKey = "test.podops.dev/approved"

	// Polling is the interval at which conditions are checked.
	Polling = 50 * time.Millisecond

	// timeFormat is that of changes and requests; their order is that of the text.
	timeFormat = "15:04:05.000000"
)

// Scene is a namespace whose pods are followed.
type Scene struct {
	*Cluster
	Namespace string

	// Mutex guards Pods, and what a test derives from their changes.
	sync.Mutex

	// Pods are the pods that exist.
	Pods map[types.UID]*corev1.Pod

	mark audit.Mark
	log  []string
}

// NewScene creates a namespace.
func (w *Cluster) NewScene(ctx context.Context, prefix string) (*Scene, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	if err := w.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("creating the namespace: %w", err)
	}
	mark, err := w.Audit.Mark()
	if err != nil {
		return nil, err
	}
	return &Scene{Cluster: w, Namespace: namespace.Name, Pods: map[types.UID]*corev1.Pod{}, mark: mark}, nil
}

// Follow follows the pods until ctx ends. It calls changed after each change, one at a time and with the lock, with the version of the pod
// before, nil for a new pod. A watch alone ends where many pods change at a time.
func (s *Scene) Follow(ctx context.Context, changed func(kind watch.EventType, before, pod *corev1.Pod)) error {
	clientset, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	note := func(kind watch.EventType, object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return
		}
		s.Lock()
		defer s.Unlock()
		s.log = append(s.log, fmt.Sprintf("%s %s %s", time.Now().Format(timeFormat), kind, Describe(pod)))
		before := s.Pods[pod.UID]
		if s.Pods[pod.UID] = pod; kind == watch.Deleted {
			delete(s.Pods, pod.UID)
		}
		changed(kind, before, pod)
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(clientset.CoreV1().RESTClient(), "pods", s.Namespace, fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { note(watch.Added, object) },
			UpdateFunc: func(_, object any) { note(watch.Modified, object) },
			DeleteFunc: func(object any) { note(watch.Deleted, object) },
		},
	})
	go informer.RunWithContext(ctx)
	return nil
}

// Describe returns a pod as text.
func Describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s/%s available=%t ready=%t phase=%s node=%s deletion=%v labels=%v annotations=%v finalizers=%v", pod.Namespace, pod.Name,
		podstate.Available(pod), lifecycle.NewPodFacts(pod).Ready, pod.Status.Phase, pod.Spec.NodeName, pod.DeletionTimestamp,
		pod.Labels, pod.Annotations, pod.Finalizers)
}

// Serves reports whether a pod is Ready and not terminating.
func Serves(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && lifecycle.NewPodFacts(pod).Ready
}

// IsWaiting reports whether a lifecycle has begun on a pod.
func IsWaiting(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		if strings.HasPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/") {
			return true
		}
	}
	return false
}

// Note adds lines to what Story returns.
func (s *Scene) Note(output string) {
	s.Lock()
	defer s.Unlock()
	now := time.Now().Format(timeFormat)
	for line := range strings.Lines(output) {
		s.log = append(s.log, now+" > "+strings.TrimSpace(line))
	}
}

// Await waits until a condition holds, which is called with the lock.
func (s *Scene) Await(ctx context.Context, what string, holds func() bool) error {
	for {
		s.Lock()
		ok := holds()
		s.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w\n%s", what, ctx.Err(), s.Describe())
		case <-time.After(Polling):
		}
	}
}

// Describe returns the pods as text.
func (s *Scene) Describe() string {
	s.Lock()
	defer s.Unlock()
	var text strings.Builder
	for _, pod := range s.Sorted() {
		text.WriteString(Describe(pod) + "\n")
	}
	return text.String()
}

// Sorted returns the pods by name, which must not be modified. The caller holds the lock.
func (s *Scene) Sorted() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(s.Pods))
	for _, pod := range s.Pods {
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// Count counts the pods that match. The caller holds the lock.
func (s *Scene) Count(match func(*corev1.Pod) bool) int {
	count := 0
	for _, pod := range s.Pods {
		if match(pod) {
			count++
		}
	}
	return count
}

// Approve sets the label that the rule Approved requires on the pods that match.
func (s *Scene) Approve(ctx context.Context, match func(*corev1.Pod) bool) error {
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+ApprovedLabelKey+`":"true"}}}`))
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[ApprovedLabelKey] != "" || !match(pod) {
			continue
		}
		if err := s.Patch(ctx, pod, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("approving pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// Requests returns the audited requests in the namespace that match.
func (s *Scene) Requests(match ...audit.Filter) (audit.Events, error) {
	events, err := s.Audit.Since(s.mark)
	if err != nil {
		return nil, err
	}
	return events.Where(audit.InNamespace(s.Namespace)).Where(match...), nil
}

// Removes reports whether a request removes pods.
func Removes(e audit.Event) bool {
	return e.Target() == "pods" && (e.Verb == "delete" || e.Verb == "deletecollection") || e.Target() == "pods/eviction" && e.Verb == "create"
}

// Story returns the changes of the pods, and the requests of the namespace but those for events, by time.
func (s *Scene) Story() string {
	requests, err := s.Requests(func(e audit.Event) bool { return !strings.HasPrefix(e.Resource, "events") })
	if err != nil {
		return err.Error()
	}
	s.Lock()
	lines := slices.Clone(s.log)
	s.Unlock()
	for _, e := range requests {
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %d after %s %s",
			e.Time.Local().Format(timeFormat), e.User, e.Verb, e.Target(), e.Name, e.Code, e.Took, e.Message))
	}
	slices.Sort(lines) // by time
	return strings.Join(lines, "\n")
}
