package podindex

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// podStream writes the pods of one watch to the index, and serves them to an
// informer that lists and watches the podStream. All of them share the objects, which must not
// be modified.
//
// A reflector writes to it from one goroutine, in the order of resourceVersions.
type podStream struct {
	index     podStore
	transform cache.TransformFunc

	// listed is closed after the first list.
	listed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	pods map[types.NamespacedName]*corev1.Pod

	// version is the resourceVersion of the last pod change. Bookmarks go to the index
	// alone.
	version string

	// changes since the last list of the informer; nil before it.
	changes *changes
}

var (
	_ cache.TransformingStore        = &podStream{}
	_ cache.ReflectorBookmarkStore   = &podStream{}
	_ cache.ListerWatcherWithContext = &podStream{}
)

func newPodStream(x *Index) *podStream {
	return &podStream{index: podStore{index: x}, listed: make(chan struct{}), pods: map[types.NamespacedName]*corev1.Pod{}}
}

// Transformer returns the transform, which the reflector calls on pods that it collects for
// a list. Each pod is transformed again when it is stored.
func (s *podStream) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if s.transform == nil {
			return object, nil
		}
		return s.transform(object)
	}
}

func (s *podStream) pod(object any) (*corev1.Pod, error) {
	transformed, err := s.Transformer()(object)
	if err != nil {
		return nil, fmt.Errorf("transforming a pod: %w", err)
	}
	pod, ok := transformed.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("the stream of pods got a %T", object)
	}
	return pod, nil
}

// Add stores a pod that the watch reported.
func (s *podStream) Add(object any) error { return s.Update(object) }

// Update stores a pod that the watch reported.
func (s *podStream) Update(object any) error {
	pod, err := s.pod(object)
	if err != nil {
		return err
	}
	if err := s.index.Update(pod); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(pod)
	s.version = pod.ResourceVersion
	return nil
}

// Delete removes a pod that was deleted, or that no longer matches the watch.
func (s *podStream) Delete(object any) error {
	pod, err := s.pod(object)
	if err != nil {
		return err
	}
	if err := s.index.Delete(pod); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(pod)
	s.version = pod.ResourceVersion
	return nil
}

// Replace stores the pods of a list and removes all others. A pod that has not changed stays
// the same object.
func (s *podStream) Replace(objects []any, resourceVersion string) error {
	listed := make(map[types.NamespacedName]*corev1.Pod, len(objects))
	stored := make([]any, 0, len(objects))
	for _, object := range objects {
		pod, err := s.pod(object)
		if err != nil {
			return err
		}
		if known := s.pods[podKey(pod)]; known != nil && known.UID == pod.UID && known.ResourceVersion == pod.ResourceVersion {
			pod = known
		}
		listed[podKey(pod)] = pod
		stored = append(stored, pod)
	}
	if err := s.index.Replace(stored, resourceVersion); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, pod := range s.pods {
		if listed[key] == nil {
			s.remove(pod)
		}
	}
	for key, pod := range listed {
		if s.pods[key] != pod {
			s.set(pod)
		}
	}
	s.version = resourceVersion
	s.once.Do(func() { close(s.listed) })
	return nil
}

// Bookmark records in the index that no pod has changed up to a resourceVersion.
func (s *podStream) Bookmark(resourceVersion string) error { return s.index.Bookmark(resourceVersion) }

// Resync does nothing: the informer resyncs its own store.
func (s *podStream) Resync() error { return nil }

func podKey(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// set stores a pod and reports it to the informer. The caller holds the lock.
func (s *podStream) set(pod *corev1.Pod) {
	kind := watch.Added
	if s.pods[podKey(pod)] != nil {
		kind = watch.Modified
	}
	s.pods[podKey(pod)] = pod
	s.changes.add(watch.Event{Type: kind, Object: pod})
}

// remove removes a pod and reports it to the informer. The caller holds the lock.
func (s *podStream) remove(pod *corev1.Pod) {
	if s.pods[podKey(pod)] == nil {
		return
	}
	delete(s.pods, podKey(pod))
	s.changes.add(watch.Event{Type: watch.Deleted, Object: pod})
}

// IsWatchListSemanticsUnSupported is true: an informer of the stream lists, then watches.
func (s *podStream) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *podStream) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// ListWithContext returns all pods once the reflector has listed them. The watch at the
// resourceVersion of the list continues it.
func (s *podStream) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-s.listed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.Stop()
	s.changes = newChanges(s.version)
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: s.version}, Items: make([]runtime.RawExtension, 0, len(s.pods))}
	for _, pod := range s.pods {
		list.Items = append(list.Items, runtime.RawExtension{Object: pod})
	}
	return list, nil
}

// Watch implements cache.ListerWatcher.
func (s *podStream) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// WatchWithContext returns the changes since the last list, once. It returns the error Expired
// for every other resourceVersion, and for a second watch; the informer then lists again.
func (s *podStream) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.changes.start(options.ResourceVersion) {
		return nil, apierrors.NewResourceExpired("the changes since this list have been read")
	}
	return s.changes, nil
}
