package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/stage"
)

const (
	namespace = "demo"
	replicas  = 12 // as in config/samples
	limit     = 3  // 25 % of 12

	// stepTimeout bounds each part of the demo.
	stepTimeout = 90 * time.Second

	// heldFor is how long the pods are shown being held, so that a person can read it.
	heldFor = 4 * time.Second
)

// rollout is the play: what is done, and what is waited for.
type rollout struct {
	stage   *stage.Stage
	desk    *desk
	traffic *traffic
	view    *view
	record  *record
}

// play rolls the Deployment and returns what was seen.
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
	requests, err := r.traffic.stop()
	if err != nil {
		return summary{}, err
	}
	events, err := log.Since(mark)
	if err != nil {
		return summary{}, fmt.Errorf("reading the audit log: %w", err)
	}
	ours := events.Where(audit.ServiceAccount(stage.ManagerNamespace, stage.ManagerAccount))
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

// prepare sets up the Deployment under its rules.
func (r *rollout) prepare(ctx context.Context) error {
	if err := r.watch(ctx); err != nil {
		return err
	}
	service, err := r.traffic.service(r.stage.Dir())
	if err != nil {
		return err
	}
	r.view.say("\n$ kubectl apply -f service.yaml    # the pods are behind %s at http://%s/", r.traffic.name, r.traffic.balancer.Address())
	if err := r.kubectl(ctx, "apply", "-f", service); err != nil {
		return err
	}
	r.view.say("\n$ kubectl apply -k config/samples    # a Deployment of 12, maxUnavailable 25%%, and a label that must be there")
	if err := r.kubectl(ctx, "apply", "-k", "config/samples"); err != nil {
		return err
	}
	rule, err := r.desk.rule(r.stage.Dir())
	if err != nil {
		return err
	}
	r.view.say("\n$ kubectl apply -f approval-rule.yaml    # and a person has to approve, at %s", r.desk.server.URL("/"))
	if err := r.kubectl(ctx, "apply", "-f", rule); err != nil {
		return err
	}
	return r.until(ctx, "12 pods are available", r.record.settled)
}

// roll restarts the Deployment, and lets one thing after the other hold its pods.
func (r *rollout) roll(ctx context.Context) error {
	old := r.record.oldUIDs()
	r.view.say("\n$ kubectl rollout restart deployment/web")
	if err := r.kubectl(ctx, "rollout", "restart", "deployment/web"); err != nil {
		return err
	}
	if err := r.held(ctx, "is missing"); err != nil {
		return err
	}
	r.view.say("\n$ kubectl label pod -l app=web demo.podops.dev/approved=true    # now a person is asked")
	if err := r.kubectl(ctx, "label", "pod", "-l", "app=web", "demo.podops.dev/approved=true"); err != nil {
		return err
	}
	if err := r.held(ctx, "person/approval"); err != nil {
		return err
	}
	r.view.say("\n$ curl -X POST '%s'    # whenever one is asked about; now they go, 3 at a time", r.desk.server.URL("/decide?ok=true"))
	approving, stop := context.WithCancel(ctx)
	defer stop()
	go r.desk.approveAll(approving)
	if err := r.until(ctx, "every pod is replaced", r.record.rolled); err != nil {
		return err
	}
	return r.desk.checkApproved(old)
}

// held waits until pods are held for a reason, shows them for a while, and checks that none
// has gone.
func (r *rollout) held(ctx context.Context, why string) error {
	if err := r.until(ctx, "pods are held ("+why+")", func() bool { return r.record.blockedBy(why) }); err != nil {
		return err
	}
	if err := r.linger(ctx, heldFor); err != nil {
		return err
	}
	return r.staysWhole()
}

// staysWhole: as long as the pods are held not one may have gone.
func (r *rollout) staysWhole() error {
	if worst := r.record.worstSoFar(); worst > 0 {
		return fmt.Errorf("%d pods became unavailable while all of them were held", worst)
	}
	return nil
}

func (r *rollout) kubectl(ctx context.Context, args ...string) error {
	return r.stage.Kubectl(ctx, append([]string{"--namespace", namespace}, args...)...)
}

// until shows the pods until something holds.
func (r *rollout) until(ctx context.Context, what string, holds func() bool) error {
	ctx, stop := context.WithTimeout(ctx, stepTimeout)
	defer stop()
	for {
		r.draw()
		if holds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w after %s (log of the manager: %s)", what, stage.ErrTimeout, stepTimeout, r.stage.ManagerLog())
		case <-r.stage.ManagerEnded():
			return r.stage.ManagerError()
		case <-r.record.changed:
		}
	}
}

// linger goes on showing the pods for a while.
func (r *rollout) linger(ctx context.Context, d time.Duration) error {
	end := time.After(d)
	for {
		r.draw()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-r.record.changed:
		}
	}
}

func (r *rollout) draw() {
	r.view.show(r.record.lines(), r.record.worstSoFar())
}

// watch feeds the record from watches of the demo's own.
func (r *rollout) watch(ctx context.Context) error {
	if err := r.stage.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("building the scheme: %w", err)
		}
	}
	objects, err := cache.New(r.stage.Config(), cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultLabelSelector: labels.Everything(),
	})
	if err != nil {
		return fmt.Errorf("making a cache: %w", err)
	}
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
