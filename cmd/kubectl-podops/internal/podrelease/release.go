package podrelease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/pkg/state/podwriter"
)

const (
	// pageSize is the number of pods that are listed at once: about 2 MiB of them.
	pageSize = 250

	// pause is the time between two passes over the pods, if the first pass did not finish all.
	pause = 500 * time.Millisecond

	// maxWrites bounds the writes to a pod that end the waiting for it: the first ends its lifecycles, the second
	// removes finalizers, and a pod that needs more is changed by another client.
	maxWrites = 5

	// maxLeft bounds Report.Left.
	maxLeft = 10
)

// StepPods is the Report.Step in which pods are visited.
const StepPods = "releasing pods"

// errPodsChange reports that a pass was not the last although each of its writes succeeded.
var errPodsChange = errors.New("pods still change")

// Options of Run.
type Options struct {
	// Namespace of the manager's Deployment.
	Namespace string

	// Controllers are the names of the ResourceConsist controllers inside of the manager. Their
	// finalizers are removed; the finalizers of adapters in other programs stay.
	Controllers []string

	// Adapters are the names of TrafficAdapters whose programs are removed with PodOps. Their
	// finalizers are removed, too. The programs must not run any more.
	Adapters []string

	// AllFinalizers removes every protection finalizer, of any program.
	AllFinalizers bool

	// Progress is called after each step and each page of pods; may be nil.
	Progress func(Report)
}

// Report counts the changes that Run has made.
type Report struct {
	// Step is the present step.
	Step string

	// Pods is the number of pods read in this pass, Released the number of pods whose labels,
	// annotations or gate were changed in all passes, Finalizers the number of removed protection
	// finalizers.
	Pods, Released, Finalizers int

	// ReplicaSets is the number of ReplicaSets whose kept scale-down was handed back to Kubernetes.
	ReplicaSets int

	// Services is the number of Services whose clean finalizer was removed.
	Services int

	// Adapters are the names of the TrafficAdapters whose finalizers stay.
	Adapters []string

	// Left are the first pods that no write releases, with the cause: another client changes them again and
	// again, or the API server rejects the write.
	Left []string
}

// Run ends every lifecycle in the cluster, opens every gate, and removes the finalizers of
// removed controllers. It returns when a pass over all pods changes nothing but the pods in Report.Left, or with
// the context's error and the changes so far. c must not read from a cache.
func Run(ctx context.Context, c client.Client, options Options) (Report, error) {
	r := &runner{client: c, options: options, clock: clock.RealClock{}, writes: map[types.UID]int{}}
	r.writer = podwriter.New(c, unrecorded{}, r.clock)
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"reading TrafficAdapters", r.findAdapters},
		{"finding managers outside of the cluster", r.findManagerOutside},
		{"removing webhook configurations and admission policies", r.removeAdmission},
		{"stopping the manager", r.stopManager},
		{"listing Services of adapters", r.findServices},
		{StepPods, r.releasePods},
		{"releasing PodOperations", r.releaseOperations},
		{"releasing ReplicaSets", r.releaseReplicaSets},
		{"releasing workloads", r.releaseAuthors},
		{"releasing PodDisruptionBudgets", r.releaseBudgets},
		{"releasing Services", r.releaseServices},
	} {
		r.report.Step = step.name
		r.progress()
		if err := step.run(ctx); err != nil {
			return r.report, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return r.report, nil
}

// runner holds the state of one Run.
type runner struct {
	client   client.Client
	options  Options
	clock    clock.PassiveClock
	writer   *podwriter.Writer
	report   Report
	removed  []trafficadapter.Registration // of Options.Adapters
	services []corev1.Service              // of removed controllers
	last     error                         // of a write that is retried
	writes   map[types.UID]int             // to each pod
}

func (r *runner) progress() {
	if r.options.Progress != nil {
		r.options.Progress(r.report)
	}
}

// findServices lists the employers of the removed controllers.
func (r *runner) findServices(ctx context.Context) error {
	return r.eachPage(ctx, &corev1.ServiceList{}, func(page client.ObjectList) error {
		for _, service := range page.(*corev1.ServiceList).Items {
			if r.isRemoved(&service) {
				r.services = append(r.services, service)
			}
		}
		return nil
	})
}

// releasePods passes over the pods until a pass changes nothing.
func (r *runner) releasePods(ctx context.Context) error {
	for {
		settled, err := r.pass(ctx)
		if err != nil || settled {
			return err
		}
		if r.last == nil {
			r.last = errPodsChange
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the last write that failed: %w: %w", r.last, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// pass visits every controlled pod, and every other pod in namespaces with Services of
// removed controllers. settled is true if it changed nothing but pods that are left.
func (r *runner) pass(ctx context.Context) (settled bool, err error) {
	settled, r.report.Pods, r.report.Left = true, 0, nil
	visit := func(page client.ObjectList) error {
		for i := range page.(*corev1.PodList).Items {
			changed, err := r.releasePod(ctx, &page.(*corev1.PodList).Items[i])
			if err != nil {
				return err
			}
			settled = settled && !changed
			r.report.Pods++
		}
		r.progress()
		return nil
	}
	controlled := client.MatchingLabels{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	if err := r.eachPage(ctx, &corev1.PodList{}, visit, controlled); err != nil {
		return false, err
	}
	seen := map[string]bool{}
	for _, service := range r.services {
		if seen[service.Namespace] {
			continue
		}
		seen[service.Namespace] = true
		if err := r.eachPage(ctx, &corev1.PodList{}, visit, client.InNamespace(service.Namespace)); err != nil {
			return false, err
		}
	}
	return settled, nil
}

// releasePod writes the Decision for one pod. A pod whose request is denied by an admission policy that the API
// server still applies is left to the next pass, and so is a pod that changes all the time.
func (r *runner) releasePod(ctx context.Context, pod *corev1.Pod) (changed bool, err error) {
	decision := Decide(pod, r.goes(pod.Namespace), r.clock.Now())
	if decision.IsEmpty() {
		return false, nil
	}
	err = r.write(ctx, pod, decision)
	switch {
	case apierrors.IsInvalid(err):
		r.leave(pod, err.Error())
		return false, nil
	case err != nil:
		return true, r.transient(err)
	}
	if r.writes[pod.UID]++; r.writes[pod.UID] > maxWrites {
		r.leave(pod, "another client changes it again and again")
		return false, nil
	}
	return true, nil
}

// leave reports a pod that no write releases.
func (r *runner) leave(pod *corev1.Pod, cause string) {
	if len(r.report.Left) < maxLeft {
		r.report.Left = append(r.report.Left, fmt.Sprintf("%s: %s", client.ObjectKeyFromObject(pod), cause))
	}
}

// write writes a Decision for a pod: the change of its lifecycles, and in the next pass, under the
// resourceVersion of that write, its finalizers and owner references. When the pod has changed meanwhile, it decides again.
func (r *runner) write(ctx context.Context, pod *corev1.Pod, decision Decision) error {
	return retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		err := r.writeOnce(ctx, pod, decision)
		if !apierrors.IsConflict(err) {
			return err
		}
		present := &corev1.Pod{}
		if getErr := r.client.Get(ctx, client.ObjectKeyFromObject(pod), present); getErr != nil {
			return fmt.Errorf("reading pod %s: %w", client.ObjectKeyFromObject(pod), getErr)
		}
		pod, decision = present, Decide(present, r.goes(present.Namespace), r.clock.Now())
		return err
	})
}

func (r *runner) writeOnce(ctx context.Context, pod *corev1.Pod, decision Decision) error {
	if !decision.Change.IsEmpty() {
		if err := r.writer.Write(ctx, pod, decision.Change); err != nil {
			return err
		}
		r.report.Released++
		return nil
	}
	stays := pod.DeepCopy()
	stays.Finalizers = without(pod.Finalizers, decision.Finalizers)
	if decision.Owners != nil {
		stays.OwnerReferences = decision.Owners
	}
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, stays, patch); err != nil {
		return err
	}
	r.report.Finalizers += len(decision.Finalizers)
	return nil
}

// goes returns a function that reports whether a protection finalizer on a pod of the namespace
// belongs to a removed controller.
func (r *runner) goes(namespace string) func(string) bool {
	if r.options.AllFinalizers {
		return func(string) bool { return true }
	}
	names := map[string]bool{}
	for _, service := range r.services {
		if service.Namespace == namespace {
			names[resourceconsist.GenerateLifecycleFinalizer(service.Name)] = true
		}
	}
	return func(name string) bool { return names[name] }
}

// releaseServices removes the clean finalizers of removed controllers. Their configuration of a
// load balancer stays, because pods continue to serve.
func (r *runner) releaseServices(ctx context.Context) error {
	for i := range r.services {
		service := &r.services[i]
		changed, err := r.change(ctx, service, func() { resourceconsist.Disown(service) })
		if err != nil {
			return fmt.Errorf("service %s: %w", client.ObjectKeyFromObject(service), err)
		}
		if changed {
			r.report.Services++
		}
	}
	r.progress()
	return nil
}

// change writes a modification of an object, which it reads again when that has changed meanwhile. It returns false
// if there is nothing to write.
func (r *runner) change(ctx context.Context, object client.Object, modify func()) (changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before := object.DeepCopyObject().(client.Object)
		if modify(); equality.Semantic.DeepEqual(before, object) {
			return nil
		}
		changed = true
		err := r.client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return errors.Join(err, r.client.Get(ctx, client.ObjectKeyFromObject(object), object))
		}
		return err
	})
	return changed, client.IgnoreNotFound(err)
}

// eachPage lists objects a page at a time.
func (r *runner) eachPage(ctx context.Context, list client.ObjectList, visit func(client.ObjectList) error, options ...client.ListOption) error {
	for {
		page := append([]client.ListOption{client.Limit(pageSize), client.Continue(list.GetContinue())}, options...)
		if err := r.client.List(ctx, list, page...); err != nil {
			return fmt.Errorf("listing: %w", err)
		}
		if err := visit(list); err != nil {
			return err
		}
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// transient returns nil for errors after which the next pass retries, and keeps them
// for the case that no pass succeeds.
func (r *runner) transient(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err) {
		r.last = err
		return nil
	}
	return err
}

func without(all, removed []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(removed, name) })
}

// unrecorded drops events: the recorder of the manager is stopped.
type unrecorded struct{}

var _ events.EventRecorder = unrecorded{}

// Eventf implements events.EventRecorder.
func (unrecorded) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
