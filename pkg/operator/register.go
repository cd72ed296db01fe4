package operator

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/controllers/deferreddelete"
	"github.com/podops-dev/podops/pkg/controllers/podlifecycle"
	"github.com/podops-dev/podops/pkg/controllers/podoperation"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/controllers/replicasetscale"
	"github.com/podops-dev/podops/pkg/controllers/surge"
	"github.com/podops-dev/podops/pkg/controllers/uncontrolledpods"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/runtime/loadshed"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/state/ownerscale"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/pkg/telemetry/export"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
	approvalwebhook "github.com/podops-dev/podops/pkg/webhooks/approval"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	podwebhook "github.com/podops-dev/podops/pkg/webhooks/pod"
	policywebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
	rulewebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
	replicasetwebhook "github.com/podops-dev/podops/pkg/webhooks/replicaset"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// eventSource names PodOps in events.
const eventSource = "podops"

func newCertificates(mgr manager.Manager, served *certificates.Serving, measured *certificates.Metrics, options Options) (*certificates.Reconciler, error) {
	certs, err := certificates.New(mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}, certificates.Options{
		Namespace: options.Namespace, WebhookURL: options.WebhookURL, Elected: mgr.Elected(), Serving: served, Metrics: measured,
	})
	if err != nil {
		return nil, fmt.Errorf("making the certificates: %w", err)
	}
	if err := certs.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up certificates: %w", err)
	}
	return certs, nil
}

// assembly is a manager that gets its controllers and webhooks.
type assembly struct {
	manager.Manager

	clientset kubernetes.Interface
	index     ruleIndex
	measured  *Metrics
	options   Options

	// identity is this manager's user name, and known reports whether a review's path has the token of the
	// webhook configuration: by both, webhooks distinguish their clients.
	identity string
	known    func(path string) bool

	// These are made by register.
	recorder events.EventRecorder
	times    lifecycle.Options
	traces   *export.Tracer
	gatherer *podfacts.Gatherer
}

// register registers all controllers and webhooks.
func (a *assembly) register() error {
	options, measured, index, clk := a.options, a.measured, a.index, a.measured.clock
	recorder := a.GetEventRecorder(eventSource)
	times := lifecycle.Options{Settle: options.Settle, GateSyncTimeout: options.GateSyncTimeout, GateSyncPolicy: options.GateSyncPolicy}
	traces, err := newTracer(a.Manager, measured.traces, options)
	if err != nil {
		return err
	}
	times.RecordBegin = traces != nil
	a.recorder, a.times, a.traces = recorder, times, traces
	writer := podwriter.New(podStatusClient{a.GetClient(), a.clientset.CoreV1().RESTClient()}, recorder, clk)
	modules := sandbox.New(sandbox.Options{Workers: workers(containerLimit(), runtime.GOMAXPROCS(0)), Turn: evaluation.FastSlice})
	engine, decisions, err := newEngine(a.Manager, options, modules, traces, measured.decisions)
	if err != nil {
		return err
	}
	config := podtransitionrule.Config{
		Engine: evaluation.NewEngine(engine), Pods: writer, Recorder: recorder, Options: times, Clock: clk,
		Statuses: podtransitionrule.APIStatusWriter{Client: a.GetClient()}, Budgets: podtransitionrule.APIBudgetWriter{Client: a.GetClient()},
		RejectionRetry: options.RuleWebhookRejectionRetry, Prepared: decisions.Prepared, Undo: podtransitionrule.APIUndoer{Client: a.GetClient()},
		ManagerNamespace: options.Namespace, Hold: evaluation.Hold{Max: options.MaxHold, Action: appsv1alpha1.HoldAction(options.OnMaxHold)},
		Workers: options.Workers, RoundBudget: options.RoundBudget, Memory: ruleBytes(memoryLimit()), BatchInterval: options.PermitInterval,
	}
	guard, err := a.registerRules(config)
	if err != nil {
		return err
	}
	drains := podfacts.NewDrains(webhookclient.NewDrainClient(guard), recorder, times, clk)
	a.gatherer = podfacts.New(a.GetClient(), a.GetAPIReader(), drains, clk)
	if err := registerOwners(a.Manager, index, measured.owners, options.Workers, clk); err != nil {
		return err
	}
	if err := a.registerPods(writer); err != nil {
		return err
	}
	if err := a.registerDeferredDeletes(); err != nil {
		return err
	}
	expected, err := registerTraffic(a.Manager, options, clk)
	if err != nil {
		return err
	}
	checker, err := registerPolicies(a.Manager, modules, options.Workers, clk)
	if err != nil {
		return err
	}
	mayRead := policywebhook.NewMayRead(a.clientset.AuthorizationV1().SubjectAccessReviews())
	decoder, gate := admission.NewDecoder(a.GetScheme()), newGate()
	a.serve(workloadHandlers(a.Manager, decoder, gate))
	a.serve(map[string]admission.Handler{
		podwebhook.MutatePath:   gated{podwebhook.NewMutator(decoder, a.identity, times, clk).Expecting(expected).Settling(a.gatherer.Services), gate, largePod},
		podwebhook.ValidatePath: gated{podwebhook.NewValidator(decoder, a.identity, times, clk), gate, largePod},
		rulewebhook.MutatePath:  gated{rulewebhook.NewMutator(decoder), gate, 0},
		rulewebhook.ValidatePath: gated{
			rulewebhook.NewValidator(decoder, a.GetClient(), a.GetAPIReader(), checker, guard.CheckURL), gate, 0,
		},
		policywebhook.ValidatePath: gated{policywebhook.NewValidator(decoder, a.GetClient(), a.GetAPIReader(), checker, mayRead), gate, 0},
		rulewebhook.DeletePath:     rulewebhook.NewDeleteWarner(decoder),
		policywebhook.DeletePath:   policywebhook.NewDeleteGuard(decoder, a.GetClient(), a.GetAPIReader(), mayRead),
	})
	return nil
}

// workloadHandlers returns the webhooks of workloads, and of decisions about them, by path.
func workloadHandlers(mgr manager.Manager, decoder admission.Decoder, gate *loadshed.Gate) map[string]admission.Handler {
	cached, live := replicasetpods.Reader{Reader: mgr.GetClient()}, replicasetpods.Reader{Reader: mgr.GetAPIReader()}
	return map[string]admission.Handler{
		replicasetwebhook.MutatePath:           gated{replicasetwebhook.NewMutator(decoder, cached, live), gate, largePod},
		approvalwebhook.AuthorMutatePath:       gated{approvalwebhook.NewAuthorMutator(decoder), gate, largePod},
		approvalwebhook.ApproverMutatePath:     gated{approvalwebhook.NewApproverMutator(decoder), gate, 0},
		replicasetwebhook.DeploymentMutatePath: gated{replicasetwebhook.NewDeploymentMutator(decoder, mgr.GetClient()), gate, largePod},
	}
}

// serve registers the handlers with the webhook server by path. The paths that begin as TokenPaths end with a
// token in the webhook configuration: known reports whether the sender of a review can read that.
func (a *assembly) serve(handlers map[string]admission.Handler) {
	for path, handler := range handlers {
		served := review.New(handler)
		a.GetWebhookServer().Register(path, served)
		if strings.HasPrefix(path, certificates.TokenPaths) {
			a.GetWebhookServer().Register(path+"/", withToken(served, a.known))
		}
	}
}

// serveDeferrers registers the webhooks of deletes and evictions. Requests that wait read their pods many times a second.
func (a *assembly) serveDeferrers(starter podwebhook.Deferrer) {
	config := podwebhook.DeferConfig{
		Decoder: admission.NewDecoder(a.GetScheme()), Reader: sharedPods{a.GetClient(), a.index.Pod}, APIReader: a.GetAPIReader(),
		Deferrer: starter, Waits: podwebhook.NewWaits(a.options.DeleteWait, a.measured.clock), Reviews: a.measured.reviews,
		Identity: a.identity, HoldPreemption: a.options.HoldPreemption,
	}
	a.serve(map[string]admission.Handler{
		podwebhook.DeletePath:   podwebhook.NewDeleteDeferrer(config),
		podwebhook.EvictionPath: podwebhook.NewEvictionDeferrer(config),
	})
}

// withToken serves reviews, and records whether the path has a token of the webhook configuration.
func withToken(served http.Handler, known func(path string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known(r.URL.Path) {
			r = r.WithContext(clientauth.WithVerified(r.Context(), true))
		}
		served.ServeHTTP(w, r)
	})
}

// registerRules registers the controller of rules, with the index that it reads pods from and the
// dispatcher of its calls. It returns the guard of the addresses that rules may call.
func (a *assembly) registerRules(config podtransitionrule.Config) (webhookclient.Guard, error) {
	index, traces := a.index, a.traces
	guard, cluster, err := newGuard(a.Manager, a.options)
	if err != nil {
		return webhookclient.Guard{}, err
	}
	config.Index, config.InFlight = index.Index, dispatch.NewInFlight()
	calls := dispatch.Config{InFlight: config.InFlight, Wake: index.notifier.Notify, Clock: config.Clock, Metrics: a.measured.calls}
	if traces != nil {
		index.Trace(traces)
		calls.Traces, config.Traced = traces, traces.Lifecycles
	}
	caller, err := addDispatcher(a.Manager, guard, cluster, calls)
	if err != nil {
		return webhookclient.Guard{}, err
	}
	config.Metrics, config.Caller, config.Wake = a.measured.rules, caller, index.notifier.Notify
	if err := podtransitionrule.New(config).SetupWithManager(a.Manager, index.notifier); err != nil {
		return webhookclient.Guard{}, fmt.Errorf("setting up rules: %w", err)
	}
	return guard, nil
}

// registerOwners registers the reader of owner scales, for every controller of pods in the index, and the count of owned
// pods without the control label.
func registerOwners(mgr manager.Manager, index ruleIndex, measured *ownerscale.Metrics, workers int, clk clock.WithTicker) error {
	api, err := ownerscale.NewClient(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("making the client of owners: %w", err)
	}
	reader := ownerscale.NewReader(api, index, measured, clk)
	index.WatchControllers(reader.Refer)
	if err := mgr.Add(reader); err != nil {
		return fmt.Errorf("adding the reader of owners: %w", err)
	}
	others := uncontrolledpods.New(replicasetpods.Reader{Reader: mgr.GetClient()}, mgr.GetAPIReader(), index, clk)
	if err := others.SetupWithManager(mgr, workers); err != nil {
		return fmt.Errorf("setting up the count of pods without the control label: %w", err)
	}
	return nil
}

// registerPods registers the controllers of pods' lifecycles, and of PodOperations.
func (a *assembly) registerPods(writer *podwriter.Writer) error {
	measured, workers := a.measured, a.options.Workers
	pods := podlifecycle.New(podlifecycle.Config{
		Reader: sharedPods{a.GetClient(), a.index.Pod}, APIReader: a.GetAPIReader(), Writer: writer, Recorder: a.recorder,
		Facts: a.gatherer, Problems: measured.problems, Metrics: measured.traffic, Options: a.times, Clock: measured.clock,
	})
	// The index is registered before the cache starts, so no context can end it.
	if err := pods.SetupWithManager(context.Background(), a.Manager, workers); err != nil {
		return fmt.Errorf("setting up lifecycles: %w", err)
	}
	if err := podoperation.New(a.GetClient(), a.GetAPIReader(), a.recorder, measured.clock).SetupWithManager(a.Manager, workers); err != nil {
		return fmt.Errorf("setting up operations: %w", err)
	}
	return nil
}

// registerDeferredDeletes registers the webhooks of deletes and evictions, the controllers that begin,
// finish and cancel deferred deletes and evictions, and the report of pods that are removed past their
// rules.
func (a *assembly) registerDeferredDeletes() error {
	measured, recorder, workers, clk := a.measured, a.recorder, a.options.Workers, a.measured.clock
	// The indexes and informers are registered before the cache starts, so no context can end it.
	for _, kind := range []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}} {
		err := a.GetFieldIndexer().IndexField(context.Background(), kind, replicasetpods.ControllerUIDField, replicasetpods.IndexByController)
		if err != nil {
			return fmt.Errorf("indexing %T by controller: %w", kind, err)
		}
	}
	// Webhooks of every replica read these kinds: the first review must not wait for a list.
	for _, kind := range []client.Object{&appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &policyv1.PodDisruptionBudget{}, &corev1.Namespace{}} {
		if _, err := a.GetCache().GetInformer(context.Background(), kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	repeats := observation.NewTracker(clk)
	starter := deferreddelete.NewStarter(a.GetClient(), recorder, measured.deletes, repeats, clk)
	if err := starter.SetupWithManager(a.Manager, workers); err != nil {
		return fmt.Errorf("setting up the start of deferred deletes: %w", err)
	}
	unwanted := deferreddelete.NewReplicaSetDeletes(a.GetClient(), recorder, measured.deletes, clk)
	scales := replicasetscale.New(a.GetClient(), unwanted, recorder, measured.scales, clk)
	if err := scales.SetupWithManager(a.Manager, workers); err != nil {
		return fmt.Errorf("setting up scales of ReplicaSets: %w", err)
	}
	if err := replicasetscale.NewReleased(a.GetClient(), recorder).SetupWithManager(a.Manager, workers); err != nil {
		return fmt.Errorf("setting up pods that were released by ReplicaSets: %w", err)
	}
	if err := surge.New(a.GetClient(), recorder, clk).SetupWithManager(a.Manager, workers); err != nil {
		return fmt.Errorf("setting up surges: %w", err)
	}
	pending := deferreddelete.NewPendingDeletes(deferreddelete.PendingConfig{
		Client: a.GetClient(), APIReader: a.GetAPIReader(), Recorder: recorder, Metrics: measured.deletes, Facts: a.gatherer, Options: a.times,
		Repeats: repeats, Clock: clk,
	})
	if err := pending.SetupWithManager(a.Manager, workers); err != nil {
		return fmt.Errorf("setting up pending deletes: %w", err)
	}
	if err := a.Add(deferreddelete.NewUnguarded(a.GetCache(), recorder, measured.deletes)); err != nil {
		return fmt.Errorf("adding the report of unguarded deletes: %w", err)
	}
	a.serveDeferrers(starter)
	return nil
}
