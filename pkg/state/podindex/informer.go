package podindex

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// NewInformer returns the informer of a kind. The informer of pods shares its watch and
// its objects with the index; the informer of any other kind is the informer of
// client-go. It has the signature of cache.Options.NewInformer of controller-runtime.
//
// The watch of the pods writes to the index first and to the informer behind it. The index
// therefore sees every list, event and bookmark in the order of resourceVersions, as from a
// reflector of its own, and the handlers of the informer see no pod before the index does.
func (x *Index) NewInformer(
	source cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	if _, pods := object.(*corev1.Pod); !pods {
		return cache.NewSharedIndexInformer(source, object, resync, indexers)
	}
	stream := newPodStream(x)
	x.mu.Lock()
	x.stream = stream
	x.mu.Unlock()
	return &podInformer{
		SharedIndexInformer: cache.NewSharedIndexInformer(stream, object, resync, indexers), stream: stream, source: source,
	}
}

// Pod returns a pod as the watch has delivered it last. It is shared with the informer and the index, and must not be
// modified.
func (x *Index) Pod(key types.NamespacedName) (pod *corev1.Pod, ok bool) {
	x.mu.Lock()
	stream := x.stream
	x.mu.Unlock()
	if stream == nil {
		return nil, false
	}
	stream.mu.Lock()
	defer stream.mu.Unlock()
	pod, ok = stream.pods[key]
	return pod, ok
}

// podInformer lists and watches a podStream, which a reflector fills from the API server.
type podInformer struct {
	cache.SharedIndexInformer
	stream *podStream
	source cache.ListerWatcher
}

// SetTransform sets the transformation of each pod before the index and the informer share it. It
// must be called before the informer runs.
func (i *podInformer) SetTransform(transform cache.TransformFunc) error {
	i.stream.transform = transform
	return nil
}

// Run runs the informer until the channel is closed.
func (i *podInformer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext runs the informer and its reflector until ctx ends.
func (i *podInformer) RunWithContext(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(i.source, &corev1.Pod{}, i.stream, cache.ReflectorOptions{Name: "podops-pods"})
	var reflecting sync.WaitGroup
	defer reflecting.Wait()
	reflecting.Go(func() { reflector.RunWithContext(ctx) })
	i.SharedIndexInformer.RunWithContext(ctx)
}
