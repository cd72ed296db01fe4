package e2e_test

import (
	"context"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recordVersions records every version of every pod of a scenario from here on, in the order in which they
// were stored: one that lasts for a moment is missed by polling.
func recordVersions(p scenario) func() []*corev1.Pod {
	GinkgoHelper()
	var mu sync.Mutex
	var versions []*corev1.Pod
	list := &corev1.PodList{}
	follow(p, list, func() []*corev1.Pod { return pointers(list.Items) }, func(_ watch.EventType, pod *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		versions = append(versions, pod)
	})
	return func() []*corev1.Pod {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(versions)
	}
}

// follow calls see with every version of every object of a kind in the namespace, existing
// objects first, one at a time and in the order in which they were stored, until the
// scenario ends or stop is called. It returns once see was called for the existing objects.
func follow[T client.Object](p scenario, list client.ObjectList, items func() []T, see func(watch.EventType, T)) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
	for _, item := range items() {
		see(watch.Added, item)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return p.admin.Watch(ctx, list, client.InNamespace(p.namespace), &client.ListOptions{Raw: &options})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(T); ok {
				see(event.Type, object)
			} else if event.Type == watch.Error {
				Expect(event.Object).To(BeNil(), "the watch of a scenario must not break")
			}
		}
	}()
	stop = func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).Should(BeClosed())
	}
	DeferCleanup(stop)
	return stop
}
