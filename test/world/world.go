package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/world/apiserver"
	"github.com/podops-dev/podops/test/world/kubernetes"
	"github.com/podops-dev/podops/test/world/node"
)

// Users of the actors.
const (
	person   = "alice"
	labeller = "carol" // puts pods without the control label under PodOps, and so needs a manager that answers
	drainer  = "bob"
	gitOps   = "system:serviceaccount:argocd:application-controller"
	hpa      = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	approver = "approver"
	evictor  = "descheduler"
	owner    = "owner-controller" // owns pods of kinds that Kubernetes does not know
	balancer = "load-balancer"
	setup    = "kubernetes-admin"
)

// warmUp is the time from the start of a schedule until its acts begin: managers lead, and workloads are ready.
const warmUp = 90 * time.Second

// World is one cluster and its users. It is for one schedule.
type World struct {
	fixture  *Fixture
	schedule Schedule
	server   *apiserver.Server
	nodes    *node.Nodes
	managers *managers
	laws     *laws
	trace    *trace
	scheme   *runtime.Scheme
	began    time.Time
	running  sync.WaitGroup

	mu      sync.Mutex
	clients map[string]client.Client
	wishes  map[string]*wishes // by workload
	granted map[string]int     // by act
	always  map[string]bool    // workloads that an approver approves continuously
	late    map[string]lateness
}

// wishes are what users want of a workload.
type wishes struct {
	replicas, before int    // the number of replicas, and the number before
	image, previous  string // the image, and the image before
	gone, orphaned   bool
	labelled         bool // the template has the control label
	recreated        bool // it was deleted, and created again
}

type lateness struct {
	until time.Time
	by    time.Duration
}

// Play plays a schedule in the bubble of the caller and returns its verdict. Every goroutine has ended when it returns.
func (f *Fixture) Play(ctx context.Context, s Schedule) Verdict {
	w, err := newWorld(f, s)
	if err != nil {
		return Verdict{Violations: []Violation{{Law: lawWorks, Text: err.Error()}}}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop, err := w.start(ctx)
	if err == nil {
		err = w.play(ctx)
	}
	if err != nil {
		w.laws.report(lawWorks, err.Error())
	}
	verdict := w.verdict()
	w.managers.mute()
	cancel()
	stop()
	w.running.Wait()
	return verdict
}

func newWorld(f *Fixture, s Schedule) (*World, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making the scheme: %w", err)
	}
	w := &World{
		fixture: f, schedule: s, scheme: scheme, began: time.Now(), clients: map[string]client.Client{}, wishes: map[string]*wishes{},
		granted: map[string]int{}, always: map[string]bool{}, late: map[string]lateness{},
	}
	for _, workload := range s.Workloads {
		w.wishes[workload.Name] = &wishes{
			replicas: workload.Replicas, before: workload.Replicas, image: first, previous: first, labelled: workload.isLabelled(),
		}
	}
	w.trace = &trace{began: w.began}
	w.laws = newLaws(w)
	return w, nil
}

// start starts everything that runs by itself. The returned function waits for its end.
func (w *World) start(ctx context.Context) (stop func(), err error) {
	w.serve()
	ended := func() {}
	for _, namespace := range []string{Shop, Strangers, kubernetes.Namespace, managerNamespace} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := client.IgnoreAlreadyExists(w.client(setup).Create(ctx, object)); err != nil {
			return ended, fmt.Errorf("creating namespace %s: %w", namespace, err)
		}
	}
	controllers, err := kubernetes.Start(ctx, w.typed)
	if err != nil {
		return ended, err
	}
	ended = controllers.Wait
	if w.nodes, err = node.Start(ctx, w.typed, max(1, w.schedule.Nodes), w.schedule.Seed); err != nil {
		return ended, err
	}
	ended = func() { controllers.Wait(); w.nodes.Wait() }
	if err := w.managers.start(ctx); err != nil {
		return ended, err
	}
	ended = func() { controllers.Wait(); w.nodes.Wait(); w.managers.wait() }
	for _, run := range []func(context.Context){w.balance, w.own, w.approveAlways, w.laws.watch} {
		w.running.Go(func() { run(ctx) })
	}
	return ended, nil
}

// serve makes the API server.
func (w *World) serve() {
	w.managers = newManagers(w)
	w.server = apiserver.New(apiserver.Options{
		Seed: w.schedule.Seed, Admission: w.managers.admission(), OnWrite: w.observe, Lag: w.lag, Definitions: w.fixture.definitions,
		FieldOwners: w.schedule.fieldOwners(), WithoutEvents: !w.schedule.Events,
	})
}

// typed returns the configuration of a client for built-in kinds, as in the programs of Kubernetes.
func (w *World) typed(user string, groups ...string) *rest.Config {
	config := w.server.Config(user, groups...)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// observe records a write.
func (w *World) observe(write apiserver.Write) {
	w.trace.write(write)
	w.laws.write(write)
}

// lag returns by how much a watch is late, as the schedule has it.
func (w *World) lag(user, resource string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.late[resource]
	if !isManager(user) || time.Now().After(late.until) {
		return 0
	}
	return late.by
}

// client returns the client of a user.
func (w *World) client(user string) client.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.clients[user]; ok {
		return known
	}
	groups := []string{"system:authenticated"}
	if user == setup {
		groups = append(groups, "system:masters")
	}
	config := rest.CopyConfig(w.server.Config(user, groups...))
	config.QPS = -1
	made, err := client.New(config, client.Options{Scheme: w.scheme})
	if err != nil {
		panic(fmt.Sprintf("making the client of %s: %v", user, err)) // a mistake of this program
	}
	made = client.WithFieldOwner(made, shortUser(user)) // the default would be that of every program of this process
	w.clients[user] = made
	return made
}

// play creates the workloads, performs the acts and the end, and reads the laws of the end.
func (w *World) play(ctx context.Context) error {
	for _, workload := range w.schedule.Workloads {
		if err := w.create(ctx, workload); err != nil {
			return err
		}
	}
	if err := w.label(ctx); err != nil {
		return err
	}
	if !pause(ctx, time.Until(w.began.Add(warmUp))) {
		return ctx.Err()
	}
	w.trace.note("the workloads are there")
	w.laws.begin()
	acts := slices.SortedStableFunc(slices.Values(w.schedule.Acts), func(a, b Act) int { return int(a.At - b.At) })
	begin := time.Now()
	for _, late := range w.schedule.Late {
		w.running.Go(func() {
			if pause(ctx, late.At) {
				w.mu.Lock()
				w.late[late.On] = lateness{until: time.Now().Add(late.For), by: time.Duration(late.N) * time.Second}
				w.mu.Unlock()
			}
		})
	}
	var acting sync.WaitGroup
	for _, act := range acts {
		if !pause(ctx, time.Until(begin.Add(act.At))) {
			return ctx.Err()
		}
		w.trace.note(act.String())
		w.laws.act()
		acting.Go(func() { w.perform(ctx, act) })
	}
	pause(ctx, time.Until(begin.Add(w.schedule.Length)))
	acting.Wait()
	w.laws.end()
	return w.end(ctx)
}

// pause waits, and reports whether the context still holds.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// create creates a workload.
func (w *World) create(ctx context.Context, workload Workload) error {
	if workload.Kind == DaemonSet {
		if err := w.labelNodes(ctx, workload.Name, true, -1); err != nil {
			return err
		}
	}
	if err := w.client(setup).Create(ctx, manifest(workload)); err != nil {
		return fmt.Errorf("creating %s %s: %w", workload.Kind, workload.Name, err)
	}
	return nil
}

// label labels every other pod of workloads with mixed labels, once they exist.
func (w *World) label(ctx context.Context) error {
	for _, workload := range w.schedule.Workloads {
		if workload.Labels != Mixed {
			continue
		}
		if !pause(ctx, 5*time.Second) {
			return ctx.Err()
		}
		pods, err := w.pods(ctx, workload)
		if err != nil {
			return err
		}
		for i, pod := range pods {
			if i%2 == 0 {
				err := w.patch(ctx, person, &pod, labelPatch(appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue))
				if client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("labelling %s: %w", pod.Name, err)
				}
			}
		}
	}
	return nil
}

// pods returns the pods of a workload by name, without pods that have ended.
func (w *World) pods(ctx context.Context, workload Workload) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.client(setup).List(ctx, &list, client.InNamespace(workload.Namespace()), client.MatchingLabels{app: workload.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", workload.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !isActive(&pod) }), nil
}

// isActive reports whether a pod is neither terminating nor has ended.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// verdict returns what was found so far.
func (w *World) verdict() Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	verdict := w.laws.found()
	verdict.Trace, verdict.Took, verdict.Granted = w.trace.lines(w.fixture.TraceLines), time.Since(w.began), maps.Clone(w.granted)
	return verdict
}

// object returns an empty object of the kind of a workload, with its name.
func object(w Workload) client.Object {
	var o client.Object
	switch w.Kind {
	case Deployment:
		o = &appsv1.Deployment{}
	case ReplicaSet:
		o = &appsv1.ReplicaSet{}
	case StatefulSet, Group:
		o = &appsv1.StatefulSet{}
	case DaemonSet:
		o = &appsv1.DaemonSet{}
	case Job:
		o = &batchv1.Job{}
	default:
		o = custom(w)
	}
	o.SetNamespace(w.Namespace())
	o.SetName(w.Name)
	return o
}
