package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// podWatch gets every version of every controlled pod, and shares no code with the code under test.
type podWatch struct {
	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod // pods that exist, at their last version
	served  map[types.UID]bool        // available at some time
	least   map[string]int            // fewest available pods by namespace, since measure
	outages []string
	waits   map[types.UID]map[string]bool // waits for PreCheck rules, by id and time
	permits map[types.UID]map[string]bool
	granted int
}

// watchPods watches until the suite ends.
func watchPods(s *system) *podWatch {
	GinkgoHelper()
	w := &podWatch{
		pods: map[types.UID]*corev1.Pod{}, served: map[types.UID]bool{}, least: map[string]int{},
		waits: map[types.UID]map[string]bool{}, permits: map[types.UID]map[string]bool{},
	}
	controlled := client.MatchingLabels{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	ctx, stop := context.WithCancel(context.Background())
	list := &corev1.PodList{}
	Expect(s.admin.List(ctx, list, controlled)).To(Succeed())
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return s.admin.Watch(ctx, &corev1.PodList{}, controlled, &client.ListOptions{Raw: &options})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if event.Type == watch.Error {
				Expect(event.Object).To(BeNil(), "the watch must not break")
			}
			if ok {
				w.see(event.Type, pod)
			}
		}
	}()
	DeferCleanup(func() {
		stop()
		<-ended
	})
	return w
}

func (w *podWatch) see(kind watch.EventType, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.UID] = pod
	if kind == watch.Deleted {
		delete(w.pods, pod.UID)
	}
	for key, value := range pod.Labels {
		prefix, id, _ := strings.Cut(key, "/")
		switch prefix {
		case appsv1alpha1.PreCheckLabelPrefix:
			w.count(w.waits, pod.UID, id+" "+value)
		case appsv1alpha1.PreCheckedLabelPrefix:
			w.granted += w.count(w.permits, pod.UID, id+" "+value)
		}
	}
	available := kind != watch.Deleted && expect.IsAvailable(pod)
	if len(expect.LifecycleLabels(pod)) > 0 || pod.DeletionTimestamp != nil {
		w.served[pod.UID] = false // it may be off traffic until it is available again
	}
	if !available && w.served[pod.UID] && kind != watch.Deleted {
		w.outages = append(w.outages, fmt.Sprintf("%s %s/%s at version %s: labels %v, conditions %v",
			time.Now().Format(time.StampMilli), pod.Namespace, pod.Name, pod.ResourceVersion, pod.Labels, pod.Status.Conditions))
	}
	w.served[pod.UID] = w.served[pod.UID] || available
	if least, measured := w.least[pod.Namespace]; measured {
		w.least[pod.Namespace] = min(least, w.available(pod.Namespace))
	}
}

// count adds to a set, and returns how many elements are new.
func (w *podWatch) count(sets map[types.UID]map[string]bool, uid types.UID, element string) int {
	if sets[uid] == nil {
		sets[uid] = map[string]bool{}
	}
	if sets[uid][element] {
		return 0
	}
	sets[uid][element] = true
	return 1
}

// available counts the available pods of a namespace.
func (w *podWatch) available(namespace string) int {
	count := 0
	for _, pod := range w.pods {
		if pod.Namespace == namespace && expect.IsAvailable(pod) {
			count++
		}
	}
	return count
}

// in returns the pods of a namespace at their last version, by name.
func (w *podWatch) in(namespace string) []*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.DeleteFunc(slices.Collect(maps.Values(w.pods)), func(pod *corev1.Pod) bool { return pod.Namespace != namespace })
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// measure begins to record the fewest available pods of a namespace.
func (w *podWatch) measure(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.least[namespace] = w.available(namespace)
}

// leastAvailable returns the fewest available pods of a namespace since measure.
func (w *podWatch) leastAvailable(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.least[namespace]
}

// unexplained returns each version of a pod that had been available and was not, although no operation had begun on it.
func (w *podWatch) unexplained() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.outages)
}

// permitted counts all permits so far.
func (w *podWatch) permitted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.granted
}

// passages returns how often pods of a namespace have begun to wait for PreCheck rules, and were permitted, by UID.
func (w *podWatch) passages() (waits, permits map[types.UID]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := func(sets map[types.UID]map[string]bool) map[types.UID]int {
		sizes := map[types.UID]int{}
		for uid, set := range sets {
			sizes[uid] = len(set)
		}
		return sizes
	}
	return counts(w.waits), counts(w.permits)
}
