package e2e_test

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/examples/imageupdater"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
	"github.com/podops-dev/podops/pkg/podopslifecycle/cooperation"
	"github.com/podops-dev/podops/test/expect"
)

// deleter is the adapter of an operation controller that deletes pods.
type deleter struct{}

func (deleter) GetID() string                          { return "deleter" }
func (deleter) GetType() podopslifecycle.OperationType { return podopslifecycle.OperationTypeDelete }
func (deleter) AllowMultiType() bool                   { return false }
func (deleter) WhenBegin(pod client.Object) (bool, error) {
	return podopslifecycle.PrepareDelete(pod)
}
func (deleter) WhenFinish(client.Object) (bool, error) { return false, nil }

// deleteAnnotation is the annotation that requests the deletion of a pod.
const deleteAnnotation = "e2e.podops.dev/delete"

// deletePods deletes pods that are annotated, after every other operation on them.
func deletePods(c client.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		pod := &corev1.Pod{}
		if err := c.Get(ctx, req.NamespacedName, pod); err != nil || pod.Annotations[deleteAnnotation] == "" {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if pod.DeletionTimestamp != nil {
			return reconcile.Result{}, nil
		}
		if _, err := podopslifecycle.BeginContext(ctx, c, deleter{}, pod); err != nil {
			return reconcile.Result{}, err
		}
		if wait, allowed := podopslifecycle.AllowOps(deleter{}, 0, pod); !allowed || pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/imageupdater"] != "" {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
	}
}

// directory is a service controller: it lists the pods that get requests.
type directory struct {
	mu      sync.Mutex
	listed  map[string]bool
	changes []string
}

func (d *directory) TrafficOn(_ context.Context, pod *corev1.Pod) error {
	d.set(pod.Name, true)
	return nil
}

func (d *directory) TrafficOff(_ context.Context, pod *corev1.Pod) error {
	d.set(pod.Name, false)
	return nil
}

func (d *directory) set(name string, listed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed[name] == listed {
		return
	}
	d.listed[name] = listed
	d.changes = append(d.changes, map[bool]string{true: "on", false: "off"}[listed])
}

func (d *directory) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.changes...)
}

func (d *directory) reconcile(c client.Client, finalizer string) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		pod := &corev1.Pod{}
		if err := c.Get(ctx, req.NamespacedName, pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, cooperation.Sync(ctx, c, d, finalizer, pod)
	}
}

// controllers returns a manager for the namespace of the scenario, which start starts and the end of the
// scenario stops.
func (p scenario) controllers() (mgr ctrl.Manager, start func()) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(p.config, ctrl.Options{
		Scheme:     p.scheme,
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{p.namespace: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	return mgr, func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		DeferCleanup(func(ctx context.Context) {
			cancel()
			Eventually(ctx, ended).Should(Receive(BeNil()))
		})
	}
}

func (p scenario) annotate(ctx context.Context, pod *corev1.Pod, key, value string) {
	GinkgoHelper()
	p.patch(ctx, pod, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

var _ = Describe("Operation controllers", func() {
	It("finish an update and a delete on one pod in one preparation", Label(mainStories), func(ctx context.Context) {
		const name, finalizer = "web", "prot.podopslifecycle.kusionstack.io/directory"
		p := newScenario(ctx)
		p.rule(ctx, approved())
		mgr, start := p.controllers()
		listed := &directory{listed: map[string]bool{}}
		Expect((&imageupdater.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)).To(Succeed())
		Expect(ctrl.NewControllerManagedBy(mgr).Named("deleter").For(&corev1.Pod{}).Complete(deletePods(mgr.GetClient()))).To(Succeed())
		Expect(ctrl.NewControllerManagedBy(mgr).Named("directory").For(&corev1.Pod{}).Complete(listed.reconcile(mgr.GetClient(), finalizer))).To(Succeed())
		start()
		p.pod(ctx, name, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: `{"expectedFinalizers":{"Directory/e2e/pods":"` + finalizer + `"}}`}
		})
		Eventually(ctx, p.seeing(name)).Should(expect.BeAvailable())
		Expect(listed.seen()).To(Equal([]string{"on"}))

		By("requesting both while a rule withholds the pod")
		image := "registry.example.com/web:v2"
		p.annotate(ctx, p.get(ctx, name), imageupdater.ImageAnnotation, image)
		p.annotate(ctx, p.get(ctx, name), deleteAnnotation, "true")
		Eventually(ctx, p.seeing(name)).Should(And(expect.BeWaiting("imageupdater"), expect.BeWaiting("deleter")))
		Expect(p.get(ctx, name).Labels).To(HaveKey(appsv1alpha1.PreparingToDeleteLabelKey))

		By("recording every version of the pod until it is gone")
		var seen []*corev1.Pod
		gone := make(chan struct{})
		pods := &corev1.PodList{}
		follow(p, pods, func() []*corev1.Pod { return pointers(pods.Items) }, func(event watch.EventType, pod *corev1.Pod) {
			seen = append(seen, pod.DeepCopy())
			if event == watch.Deleted {
				close(gone)
			}
		})
		p.approve(ctx)
		Eventually(ctx, gone).Should(BeClosed())

		By("finding both operations, the update before the delete, and the traffic off once")
		last := seen[len(seen)-1]
		Expect(last.Spec.Containers[0].Image).To(Equal(image))
		Expect(last.Labels).To(HaveKey(appsv1alpha1.OperatedLabelPrefix+"/imageupdater"), "the update has finished")
		Expect(last.Labels).To(HaveKey(appsv1alpha1.OperateLabelPrefix+"/deleter"), "the delete was allowed")
		Expect(listed.seen()).To(Equal([]string{"on", "off"}))
		gates := 0
		for i, pod := range seen {
			if i > 0 && gateOf(pod) != gateOf(seen[i-1]) {
				gates++
			}
		}
		Expect(gates).To(Equal(1), "the readiness gate is closed once, and stays closed")
	})

	It("begin again on the object that Undo returned", func(ctx context.Context) {
		const tries = 10
		p := newScenario(ctx)
		p.pods(ctx, 1, nil)
		pod := p.list(ctx)[0]
		begin := func() {
			GinkgoHelper()
			updated, err := podopslifecycle.BeginContext(ctx, p.admin, deleter{}, pod)
			Expect(err).NotTo(HaveOccurred())
			Expect(updated).To(BeTrue())
			Expect(pod).To(expect.BeWaiting("deleter"))
			Eventually(ctx, p.seeing(pod.Name)).Should(expect.BeOperable("deleter"))
		}
		undo := func() {
			GinkgoHelper()
			updated, err := podopslifecycle.UndoContext(ctx, p.admin, deleter{}, pod, podopslifecycle.WithdrawDelete)
			Expect(err).NotTo(HaveOccurred())
			Expect(updated).To(BeTrue())
			Expect(pod).To(expect.HaveNoLifecycle())
			Expect(pod.Labels).NotTo(HaveKey(appsv1alpha1.PreparingToDeleteLabelKey))
		}
		begin()
		for range tries {
			undo()
			By("waiting until PodOps has opened the gate, which makes the returned object stale")
			Eventually(ctx, p.seeing(pod.Name)).Should(expect.HaveGate(corev1.ConditionTrue))
			err := p.admin.Update(ctx, pod.DeepCopy())
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "an update of the whole object must meet a conflict: %v", err)
			begin()
		}
		undo()
		p.awaitAvailable(ctx, 1)
	})
})

func gateOf(pod *corev1.Pod) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == appsv1alpha1.ServiceReadyGate {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}
