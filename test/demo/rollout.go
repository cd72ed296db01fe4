package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/stage"
)

const (
	namespace = "demo"
	replicas  = 12 // as in config/samples
	limit     = 3  // 25 % of 12

	// manifests has the Deployment and its first rules.
	manifests = "test/demo/manifests"

	// newImage is what the rollout updates the pods to.
	newImage = "registry.k8s.io/pause:3.10.1"

	// stepTimeout bounds each part of the demo.
	stepTimeout = 90 * time.Second

	// byHandTimeout bounds the wait for an approval on the page.
	byHandTimeout = time.Hour

	// heldFor is the time for which waiting pods are shown, so that their reasons can be read.
	heldFor = 4 * time.Second

	// drawInterval is the time between two frames in which only requests have changed.
	drawInterval = 200 * time.Millisecond
)

// rollout takes the steps of the demo, one after the other.
type rollout struct {
	// byHand leaves approving to the page.
	byHand bool

	stage   *stage.Stage
	page    *page
	traffic *traffic
	view    *view
	record  *record

	// objects has the objects of the namespace.
	objects client.Reader

	// timeline is the file of the timeline, and picture that of its chart alone; empty: none.
	timeline, picture string
}

// play rolls the Deployment and returns the result.
func (r *rollout) play(ctx context.Context) (summary, error) {
	if err := r.prepare(ctx); err != nil {
		return summary{}, err
	}
	log, err := audit.Open(r.stage.AuditLog())
	if err != nil {
		return summary{}, fmt.Errorf("opening the audit log: %w", err)
	}
	mark, err := log.Mark()
	if err != nil {
		return summary{}, fmt.Errorf("reading the audit log: %w", err)
	}
	if err := r.traffic.start(); err != nil {
		return summary{}, err
	}
	if err := r.linger(ctx, loadBefore); err != nil {
		return summary{}, err
	}
	r.record.startRollout()
	began := time.Now()
	if err := r.roll(ctx); err != nil {
		return summary{}, err
	}
	took := time.Since(began)
	if err := r.linger(ctx, loadAfter); err != nil {
		return summary{}, err
	}
	if err := r.writeTimeline(began); err != nil {
		return summary{}, err
	}
	requests, err := r.traffic.stop()
	if err != nil {
		return summary{}, err
	}
	events, err := log.Since(mark)
	if err != nil {
		return summary{}, fmt.Errorf("reading the audit log: %w", err)
	}
	ours := events.Where(audit.ServiceAccount(managerprocess.Namespace, managerprocess.Account))
	// Lifecycles are written to pods/status; the adapter of the load balancer puts finalizers
	// on pods and takes them off.
	byAdapter := ours.Count(audit.On("pods"), audit.Verb("patch", "update"))
	result := r.record.summarize(limit, took, writes{
		pods: ours.Count(audit.On("pods", "pods/*")) - byAdapter, adapter: byAdapter,
		rules:  ours.Count(audit.On("podtransitionrules", "podtransitionrules/*")),
		events: ours.Count(audit.On("events")),
	})
	result.requests = requests
	return result, nil
}

// prepare creates the Deployment and its rules.
func (r *rollout) prepare(ctx context.Context) error {
	if err := r.watch(ctx); err != nil {
		return err
	}
	service, err := r.traffic.service(r.stage.Dir())
	if err != nil {
		return err
	}
	r.view.print("# Requests go through %s, at http://%s/\n$ kubectl apply -f service.yaml", r.traffic.name, r.traffic.balancer.Address())
	if err := r.kubectl(ctx, "apply", "-f", service); err != nil {
		return err
	}
	r.view.print("# 12 pods under two rules: maxUnavailable 25%%, and a label that must be there\n$ kubectl apply -k %s", manifests)
	if err := r.kubectl(ctx, "apply", "-k", manifests); err != nil {
		return err
	}
	r.view.print("# A third rule: a user approves, who has not written the revision\n$ kubectl apply -f %s", approvalRule)
	if err := r.kubectl(ctx, "apply", "-f", approvalRule); err != nil {
		return err
	}
	if r.page, err = openPage(r.stage.Config(), r.currentRevision); err != nil {
		return err
	}
	if err := r.kubectl(ctx, "create", "rolebinding", reviewer, "--clusterrole=podops-approver", "--user="+reviewer); err != nil {
		return err
	}
	return r.until(ctx, "12 pods are available", r.record.settled)
}

// roll updates the Deployment and satisfies one rule after the other.
func (r *rollout) roll(ctx context.Context) error {
	r.view.print("# The rollout: old pods wait for the label\n$ kubectl set image deployment/web web=%s", newImage)
	if err := r.kubectl(ctx, "set", "image", "deployment/web", "web="+newImage); err != nil {
		return err
	}
	if err := r.held(ctx, "is missing"); err != nil {
		return err
	}
	r.view.print("# Now they wait for a user\n$ kubectl label pod -l app=web demo.podops.dev/approved=true")
	if err := r.kubectl(ctx, "label", "pod", "-l", "app=web", "demo.podops.dev/approved=true"); err != nil {
		return err
	}
	if err := r.held(ctx, "person/approval"); err != nil {
		return err
	}
	if err := r.approve(ctx); err != nil {
		return err
	}
	return r.checkApproved(ctx)
}

// approve has the rollout approved, on the page or in place of its user, and returns when all pods are replaced.
func (r *rollout) approve(ctx context.Context) error {
	if r.byHand {
		r.view.print("# Approve the rollout at %s", r.page.address)
		return r.within(ctx, byHandTimeout, "the rollout is approved, and every pod is replaced", r.record.rolled)
	}
	file, err := r.writeApproval(ctx)
	if err != nil {
		return err
	}
	r.view.print("# Approved: they go, as far as maxUnavailable permits\n$ kubectl create --as=%s -f approval.yaml", reviewer)
	if err := r.kubectl(ctx, "create", "--as="+reviewer, "-f", file); err != nil {
		return err
	}
	return r.until(ctx, "every pod is replaced", r.record.rolled)
}

// held waits until pods wait for a reason, shows them for a while, and checks that all of them
// serve.
func (r *rollout) held(ctx context.Context, why string) error {
	if err := r.until(ctx, "pods wait ("+why+")", func() bool { return r.record.blockedBy(why) }); err != nil {
		return err
	}
	if err := r.linger(ctx, heldFor); err != nil {
		return err
	}
	return r.staysWhole()
}

// staysWhole returns an error if a pod became unavailable while all of them wait.
func (r *rollout) staysWhole() error {
	if worst := r.record.worstSoFar(); worst > 0 {
		return fmt.Errorf("%d pods became unavailable while all of them wait", worst)
	}
	return nil
}

// writeTimeline writes the phases of the pods since the beginning of the rollout as a page and, if there is a file for it, as a
// picture.
func (r *rollout) writeTimeline(began time.Time) error {
	line := r.record.timeline(began, time.Now())
	if err := writeFile(r.timeline, line.HTML); err != nil || r.picture == "" {
		return err
	}
	return writeFile(r.picture, line.SVG)
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

func (r *rollout) kubectl(ctx context.Context, args ...string) error {
	return r.stage.Kubectl(ctx, append([]string{"--namespace", namespace}, args...)...)
}

// until shows the pods until a condition holds.
func (r *rollout) until(ctx context.Context, what string, holds func() bool) error {
	return r.within(ctx, stepTimeout, what, holds)
}

// within is until with a timeout.
func (r *rollout) within(ctx context.Context, timeout time.Duration, what string, holds func() bool) error {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	for {
		if err := r.draw(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if holds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w after %s (log of the manager: %s)", what, stage.ErrTimeout, timeout, r.stage.ManagerLog())
		case <-r.stage.ManagerEnded():
			return r.stage.ManagerError()
		case <-r.record.changed:
		case <-time.After(drawInterval):
		}
	}
}

// linger shows the pods for a while.
func (r *rollout) linger(ctx context.Context, d time.Duration) error {
	end := time.After(d)
	for {
		if err := r.draw(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-r.record.changed:
		case <-time.After(drawInterval):
		}
	}
}

// draw shows the Deployment, once it exists.
func (r *rollout) draw(ctx context.Context) error {
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	deployment := snapshot.Deployment("web")
	if deployment == nil {
		return nil
	}
	now := rolloutview.Of(snapshot, deployment, time.Now())
	worst := r.record.worstSoFar()
	now.Highest = &worst
	sent, failed := r.traffic.counts()
	now.Requests = &rolloutview.Requests{Sent: sent, Failed: failed}
	r.view.show(now)
	return nil
}

// snapshot returns the objects of the namespace that the view shows.
func (r *rollout) snapshot(ctx context.Context) (*clusterstate.Snapshot, error) {
	var pods corev1.PodList
	var sets appsv1.ReplicaSetList
	var deployments appsv1.DeploymentList
	var rules appsv1alpha1.PodTransitionRuleList
	for _, list := range []client.ObjectList{&pods, &sets, &deployments, &rules} {
		if err := r.objects.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing the objects of the demo: %w", err)
		}
	}
	return &clusterstate.Snapshot{
		Namespace: namespace, Pods: pointers(pods.Items), ReplicaSets: pointers(sets.Items), Deployments: pointers(deployments.Items),
		Rules: pointers(rules.Items),
	}, nil
}

func pointers[T any](items []T) []*T {
	pointers := make([]*T, len(items))
	for i := range items {
		pointers[i] = &items[i]
	}
	return pointers
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// watch feeds the record from watches of the demo's own.
func (r *rollout) watch(ctx context.Context) error {
	if err := r.stage.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	objects, err := cache.New(r.stage.Config(), cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultLabelSelector: labels.Everything(),
	})
	if err != nil {
		return fmt.Errorf("making a cache: %w", err)
	}
	r.objects = objects
	go objects.Start(ctx) //nolint:errcheck // It ends with ctx; a watch that fails shows as a timeout of the step.
	pods, err := objects.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	rules, err := objects.GetInformer(ctx, &appsv1alpha1.PodTransitionRule{})
	if err != nil {
		return fmt.Errorf("watching rules: %w", err)
	}
	for _, handler := range []toolscache.ResourceEventHandler{r.traffic.fleet.Handler(), r.podHandler()} {
		if _, err := pods.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching pods: %w", err)
		}
	}
	if _, err := rules.AddEventHandler(r.ruleHandler()); err != nil {
		return fmt.Errorf("watching rules: %w", err)
	}
	return nil
}

func (r *rollout) podHandler() toolscache.ResourceEventHandler {
	set := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			r.record.set(pod, time.Now())
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				r.record.remove(pod.UID, time.Now())
			}
		},
	}
}

func (r *rollout) ruleHandler() toolscache.ResourceEventHandler {
	set := func(object any) {
		if rule, ok := object.(*appsv1alpha1.PodTransitionRule); ok {
			r.record.explain(rule)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, object any) { set(object) }}
}
