package clients_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// slower is how many times the time of undisturbed requests those of a stranger may take. 0 only measures.
var slower = flag.Float64("slower", 2, "how many times as long the requests of a stranger may take beside requests that wait")

const (
	// waiters are the users whose requests wait, and waitsEach the pods that each of them evicts at a time.
	waiters, waitsEach = 10, 50

	// period is for how long requests are measured: several times that of a request that waits and is repeated.
	period = 25 * time.Second

	// retry is the pause after which a user repeats a request, that of kubectl drain.
	retry = 5 * time.Second
)

// TestWaits measures the requests of a stranger, for pods that are not under PodOps, while 500 evictions wait: for pods whose traffic does not
// go off, since their finalizer stays.
func TestWaits(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
	defer cancel()
	w := &cluster{stagetest.Start(t, filepath.Join("..", ".."), "waits")}
	must := func(doing string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
	}
	stranger, err := w.serviceAccount(ctx, "stranger")
	must("making a client", err)
	place, err := w.NewScene(ctx, "stranger")
	must("making a namespace", err)
	must("making a namespace", w.awaitAccount(ctx, place.Namespace))

	before := measured(ctx, t, stranger, place.Namespace)
	waiting, stop := w.waiting(ctx, t)
	began := time.Now()
	beside := measured(ctx, t, stranger, place.Namespace)
	took := time.Since(began)
	stop()

	t.Logf("%d evictions of %d users were answered in %s", waiting.Load(), waiters, took.Round(time.Millisecond))
	for _, request := range []string{"create", "eviction"} {
		was, is := before[request], beside[request]
		t.Logf("%s: p50 %s, p99 %s undisturbed (of %d); p50 %s, p99 %s beside (of %d)", request,
			percentile(was, 50), percentile(was, 99), len(was), percentile(is, 50), percentile(is, 99), len(is))
		if factor := float64(percentile(is, 99)) / float64(percentile(was, 99)); *slower > 0 && factor > *slower {
			t.Errorf("p99 of a stranger's %s is %.1f times as long as undisturbed, want at most %.1f", request, factor, *slower)
		}
	}
}

// percentile returns a percentile of times that are sorted.
func percentile(times []time.Duration, percent int) time.Duration {
	return times[(len(times)-1)*percent/100].Round(10 * time.Microsecond)
}

// serviceAccount returns a client of a ServiceAccount. Users with all rights wait in no queue of the API server.
func (w *cluster) serviceAccount(ctx context.Context, name string) (client.Client, error) {
	kubeconfig, err := w.account(ctx, types.NamespacedName{Namespace: "kube-system", Name: name})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS = -1
	config.Dial = (&net.Dialer{}).DialContext // connections of its own
	return client.New(config, client.Options{Scheme: w.Scheme()})
}

// awaitAccount waits until a namespace has its default ServiceAccount, without which no pod is created.
func (w *cluster) awaitAccount(ctx context.Context, namespace string) error {
	account := &corev1.ServiceAccount{}
	for {
		err := w.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "default"}, account)
		if !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(stagetest.Polling):
		}
	}
}

// measured creates and evicts pods that are not under PodOps, and returns the sorted times of both requests.
func measured(ctx context.Context, t *testing.T, as client.Client, namespace string) map[string][]time.Duration {
	t.Helper()
	times := map[string][]time.Duration{}
	timed := func(what string, request func() error) {
		sent := time.Now()
		if err := request(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		times[what] = append(times[what], time.Since(sent))
	}
	began := time.Now()
	for i := 0; time.Since(began) < period; i++ {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%d-%d", time.Now().UnixNano(), i)},
			Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1"}}},
		}
		timed("create", func() error { return as.Create(ctx, pod) })
		timed("eviction", func() error {
			return as.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}})
		})
	}
	for _, each := range times {
		slices.Sort(each)
	}
	return times
}

// waiting has each user evict the pods of a namespace again and again until stop is called, and returns once each pod is prepared.
func (w *cluster) waiting(ctx context.Context, t *testing.T) (answered *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	answered = &atomic.Int64{}
	var group sync.WaitGroup
	for i := range waiters {
		scene, err := w.NewScene(ctx, "waits")
		if err := errors.Join(err, w.awaitAccount(ctx, scene.Namespace)); err != nil {
			t.Fatal(err)
		}
		as, err := w.serviceAccount(ctx, fmt.Sprintf("waiter-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		for j := range waitsEach {
			template := scene.Template()
			pod := &corev1.Pod{ObjectMeta: scene.Meta(fmt.Sprintf("web-%d", j)), Spec: template.Spec}
			pod.Labels, pod.Finalizers = template.Labels, []string{appsv1alpha1.ProtectionFinalizerPrefix + "/test"}
			pod.Spec.SchedulerName = "none"
			if err := w.Create(ctx, pod); err != nil {
				t.Fatal(err)
			}
			group.Go(func() {
				for ctx.Err() == nil {
					if accepted, err := evict(ctx, as, pod); ctx.Err() == nil && (accepted || err != nil) {
						t.Errorf("evicting pod %s: accepted=%t, %v", pod.Name, accepted, err)
						return
					}
					answered.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(retry):
					}
				}
			})
		}
	}
	w.awaitPrepared(ctx, t, waiters*waitsEach)
	return answered, func() {
		cancel()
		group.Wait()
	}
}

// awaitPrepared waits until so many pods are prepared for their deletion.
func (w *cluster) awaitPrepared(ctx context.Context, t *testing.T, pods int) {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	for {
		err := w.List(ctx, list, client.HasLabels{appsv1alpha1.PrepareLabelPrefix + "/" + appsv1alpha1.PodDeleteID})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) >= pods {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d pods are prepared, want %d", len(list.Items), pods)
		case <-time.After(retry):
		}
	}
}
