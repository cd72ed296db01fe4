package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// namespaces hold the pods, in equal parts, and one PodTransitionRule each.
	namespaces = 4

	// maxUnavailable pods of a namespace may be out at a time, however many there are.
	maxUnavailable = "25"

	// atOnce is the number of pods that are operated on at a time: the pods that may be unavailable,
	// and half as many that wait for their turn. A pod that waits for ten seconds gets an annotation
	// and an event, which are no part of a lifecycle that is not held.
	atOnce = 150

	// workers act for kubelets and the operation controller, or create pods.
	workers = 16

	// patience is the time for which nothing may change before a wait fails.
	patience = 2 * time.Minute
)

// fleet has the pods, their kubelets, and an operation controller that updates them in place.
type fleet struct {
	clientset *kubernetes.Clientset
	pods      cache.SharedIndexInformer
	queue     workqueue.TypedRateLimitingInterface[string]
	made      int

	mu sync.Mutex

	// updates are the images that pods get, by key.
	updates map[string]string
	wave    int

	// delays are the times between the request of an operation and the permission to carry it out, for the pods of the last update.
	delays []time.Duration

	// failure is the first unexpected error of a worker.
	failure error
}

// newFleet creates the namespaces and rules, and starts the workers.
func newFleet(ctx context.Context, config *rest.Config) (*fleet, error) {
	fast := rest.CopyConfig(config)
	fast.ContentType, fast.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	clientset, err := kubernetes.NewForConfig(fast)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	f := &fleet{
		clientset: clientset, updates: map[string]string{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		pods:  informers.NewSharedInformerFactory(clientset, 0).Core().V1().Pods().Informer(),
	}
	if err := f.createRules(ctx, config); err != nil {
		return nil, err
	}
	if err := f.pods.SetTransform(slim); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	enqueue := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			f.queue.Add(key)
		}
	}
	if _, err := f.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	go f.pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), f.pods.HasSynced) {
		return nil, context.Cause(ctx)
	}
	for range workers {
		go f.work(ctx)
	}
	go func() {
		<-ctx.Done()
		f.queue.ShutDown()
	}()
	return f, nil
}

// slim keeps the fields that the workers read.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields, pod.Annotations, pod.OwnerReferences = nil, nil, nil
	images := make([]corev1.Container, 0, len(pod.Spec.Containers))
	for _, container := range pod.Spec.Containers {
		images = append(images, corev1.Container{Name: container.Name, Image: container.Image})
	}
	pod.Spec = corev1.PodSpec{Containers: images}
	return pod, nil
}

func (f *fleet) createRules(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for n := range namespaces {
		rule := &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(n), Name: "web"},
		}
		if err := json.Unmarshal([]byte(`{"selector":{"matchLabels":{"app":"web"}},"rules":[{"name":"max-unavailable","availablePolicy":{"maxUnavailableValue":`+
			maxUnavailable+`}}]}`), &rule.Spec); err != nil {
			return err
		}
		for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(n)}}, rule} {
			if err := admin.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %s: %w", object.GetName(), err)
			}
		}
	}
	return nil
}

// namespaceOf is the namespace of the n-th pod.
func namespaceOf(n int) string { return fmt.Sprintf("scale-%d", n%namespaces) }

// grow creates pods until there are as many, and waits until all of them are available.
func (f *fleet) grow(ctx context.Context, size int) error {
	numbers := make(chan int)
	var creating sync.WaitGroup
	for range workers {
		creating.Go(func() {
			for n := range numbers {
				_, err := f.clientset.CoreV1().Pods(namespaceOf(n)).Create(ctx, newPod(n), metav1.CreateOptions{})
				f.note(err)
			}
		})
	}
	for ; f.made < size; f.made++ {
		numbers <- f.made
	}
	close(numbers)
	creating.Wait()
	return f.await(ctx, size, func(int) {}, isAvailable)
}

// update updates the first pods in place, so many at a time, and waits until all of them are
// available again.
func (f *fleet) update(ctx context.Context, count, most int) error {
	f.mu.Lock()
	f.wave++
	f.delays = nil
	image := fmt.Sprintf("registry.example.com/payments/web:v%d", f.wave)
	f.mu.Unlock()
	begun := 0
	return f.await(ctx, count, func(finished int) {
		for ; begun < min(count, finished+most); begun++ {
			f.begin(namespaceOf(begun)+"/"+podName(begun), image)
		}
	}, func(pod *corev1.Pod) bool {
		return pod.Spec.Containers[0].Image == image && isAvailable(pod) && !isOperating(pod)
	})
}

// begin lets the operation controller give an image to a pod.
func (f *fleet) begin(key, image string) {
	f.mu.Lock()
	f.updates[key] = image
	f.mu.Unlock()
	f.queue.Add(key)
}

// await waits until as many pods are done, and calls proceed with their number from time to time.
func (f *fleet) await(ctx context.Context, count int, proceed func(found int), done func(*corev1.Pod) bool) error {
	last, since := 0, time.Now()
	for {
		found := 0
		for _, object := range f.pods.GetStore().List() {
			if done(object.(*corev1.Pod)) {
				found++
			}
		}
		if found >= count {
			return nil
		}
		proceed(found)
		if found != last {
			last, since = found, time.Now()
		}
		if err := f.failed(); err != nil {
			return err
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d pods are done, and nothing has changed for %s", found, count, patience)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// note keeps the first error that is not expected.
func (f *fleet) note(err error) {
	if err == nil || apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		f.failure = err
	}
}

func (f *fleet) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

func (f *fleet) work(ctx context.Context) {
	for {
		key, ended := f.queue.Get()
		if ended {
			return
		}
		if object, exists, _ := f.pods.GetStore().GetByKey(key); exists {
			f.note(f.act(ctx, key, object.(*corev1.Pod)))
		}
		f.queue.Done(key)
	}
}

// act takes the next step of the kubelet of a pod, or else of the operation controller. The
// next version of the pod causes the step after it.
func (f *fleet) act(ctx context.Context, key string, pod *corev1.Pod) error {
	pods := f.clientset.CoreV1().Pods(pod.Namespace)
	if status := kubeletStatus(pod); status != nil {
		_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, encode(map[string]any{"status": status}), metav1.PatchOptions{}, "status")
		return err
	}
	f.mu.Lock()
	image := f.updates[key]
	f.mu.Unlock()
	patch := operation(pod, image)
	if patch == nil {
		return nil
	}
	if _, updates := patch["spec"]; updates {
		f.measure(pod)
	}
	patch["metadata"].(map[string]any)["resourceVersion"] = pod.ResourceVersion
	_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, encode(patch), metav1.PatchOptions{})
	return err
}

// measure records for how long the operation controller of a pod has waited for its permission.
func (f *fleet) measure(pod *corev1.Pod) {
	requested, err := strconv.ParseInt(pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id], 10, 64)
	if err != nil {
		return // the label is its own
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays = append(f.delays, time.Since(time.Unix(0, requested)))
}

func encode(patch map[string]any) []byte {
	text, err := json.Marshal(patch)
	if err != nil {
		panic(err) // maps of plain values always have JSON
	}
	return text
}

// id of the operations.
const id = "scale"

// operation returns the next patch of an operation controller that gives a pod an image; nil
// when there is nothing to do.
func operation(pod *corev1.Pod, image string) map[string]any {
	_, operating := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id]
	_, allowed := pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id]
	updated := pod.Spec.Containers[0].Image == image
	switch {
	case image == "":
	case !operating && !updated && isAvailable(pod) && !isOperating(pod):
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{
			appsv1alpha1.OperatingLabelPrefix + "/" + id:     fmt.Sprint(time.Now().UnixNano()),
			appsv1alpha1.OperationTypeLabelPrefix + "/" + id: "update",
		}}}
	case allowed && !updated:
		return map[string]any{"metadata": map[string]any{}, "spec": map[string]any{
			"containers": []map[string]any{{"name": pod.Spec.Containers[0].Name, "image": image}},
		}}
	case operating && allowed && updated:
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil}}}
	}
	return nil
}

func isAvailable(pod *corev1.Pod) bool {
	_, available := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return available && condition(pod, corev1.PodReady) == corev1.ConditionTrue
}

// isOperating reports whether some label of the lifecycle is left.
func isOperating(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		if strings.HasSuffix(key, "/"+id) {
			return true
		}
	}
	return false
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return pod.Status.Conditions[i].Status
}
