package e2e_test

import (
	"sync"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// observer counts available pods with its own watch, after every write. It shares no code
// with the code under test.
type observer struct {
	mu        sync.Mutex
	available map[types.UID]bool
	least     int
	seen      map[types.UID]bool

	// active are the pods that exist and are not terminating, most is their highest number.
	active map[types.UID]bool
	most   int
}

// observe starts counting. All pods of the scenario are counted together.
func observe(p scenario) *observer {
	GinkgoHelper()
	o := &observer{available: map[types.UID]bool{}, seen: map[types.UID]bool{}, active: map[types.UID]bool{}}
	list := &corev1.PodList{}
	follow(p, list, func() []*corev1.Pod { return pointers(list.Items) }, o.see)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.least = o.count() // pods that existed before count from here on
	return o
}

func (o *observer) see(kind watch.EventType, pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[pod.UID] = true
	o.available[pod.UID] = kind != watch.Deleted && expect.IsAvailable(pod)
	o.least = min(o.least, o.count())
	if kind == watch.Deleted || pod.DeletionTimestamp != nil {
		delete(o.active, pod.UID)
	} else {
		o.active[pod.UID] = true
	}
	o.most = max(o.most, len(o.active))
}

func (o *observer) count() int {
	count := 0
	for _, available := range o.available {
		if available {
			count++
		}
	}
	return count
}

// leastAvailable returns the smallest number of available pods so far.
func (o *observer) leastAvailable() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.least
}

// mostPods returns the highest number of pods that existed at once, without terminating pods.
func (o *observer) mostPods() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most
}

// seenPods returns the number of pods that have existed so far.
func (o *observer) seenPods() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen)
}

// batches counts how often pods were added to the record of a PodTransitionRule.
type batches struct {
	mu       sync.Mutex
	reserved map[types.UID]map[appsv1alpha1.ReservedPod]bool
	sizes    []int
}

// countBatches starts counting.
func countBatches(p scenario) *batches {
	GinkgoHelper()
	b := &batches{reserved: map[types.UID]map[appsv1alpha1.ReservedPod]bool{}}
	list := &appsv1alpha1.PodTransitionRuleList{}
	follow(p, list, func() []*appsv1alpha1.PodTransitionRule { return pointers(list.Items) }, b.see)
	return b
}

func (b *batches) see(_ watch.EventType, rule *appsv1alpha1.PodTransitionRule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, now, added := b.reserved[rule.UID], map[appsv1alpha1.ReservedPod]bool{}, 0
	if rule.Status.Permits != nil {
		for _, reserved := range rule.Status.Permits.Reserved {
			now[reserved] = true
			if !before[reserved] {
				added++
			}
		}
	}
	b.reserved[rule.UID] = now
	if added > 0 {
		b.sizes = append(b.sizes, added)
	}
}

// all returns the sizes of the batches so far, oldest first.
func (b *batches) all() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]int{}, b.sizes...)
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
