package operator

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/controllers/heldpod"
	"github.com/podops-dev/podops/pkg/controllers/podlifecycle"
	"github.com/podops-dev/podops/pkg/controllers/podstatus"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	podwebhook "github.com/podops-dev/podops/pkg/webhooks/pod"
	policywebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
	rulewebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// eventSource names PodOps in events.
const eventSource = "podops"

func newCertificates(mgr manager.Manager, options Options) (*certificates.Reconciler, error) {
	certs, err := certificates.New(mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}, certificates.Options{
		Namespace: options.Namespace, WebhookURL: options.WebhookURL, Elected: mgr.Elected(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the certificates: %w", err)
	}
	if err := certs.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up certificates: %w", err)
	}
	return certs, nil
}

// register is the one list of controllers and webhooks.
func register(mgr manager.Manager, clientset kubernetes.Interface, identity string, options Options) error {
	clk := clock.RealClock{}
	recorder := mgr.GetEventRecorder(eventSource)
	times := lifecycle.Options{Settle: options.Settle, GateSyncTimeout: options.GateSyncTimeout}
	writer := podstatus.New(mgr.GetClient(), recorder, clk)
	policies, decisions, err := newEngine(mgr, options)
	if err != nil {
		return err
	}
	measured, err := podtransitionrule.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering the metrics of rules: %w", err)
	}
	notifier := podtransitionrule.NewNotifier()
	index := facts.NewIndex(notifier.Notify)
	caller, err := newCalls(mgr, options)
	if err != nil {
		return err
	}
	config := podtransitionrule.Config{
		Index: index, Engine: policies, Pods: writer, Statuses: podtransitionrule.APIStatusWriter{Client: mgr.GetClient()},
		Recorder: recorder, Options: times, Metrics: measured, Clock: clk,
		Caller: caller, Wake: notifier.Notify,
	}
	if decisions != nil {
		config.Prepared = decisions.Prepared
	}
	rules := podtransitionrule.New(config)
	caller.deliver = rules.Deliver
	if err := rules.SetupWithManager(mgr, notifier, clientset, options.Workers); err != nil {
		return fmt.Errorf("setting up rules: %w", err)
	}
	pods := podlifecycle.New(mgr.GetClient(), mgr.GetAPIReader(), writer, recorder, times, clk)
	if err := pods.SetupWithManager(mgr, options.Workers); err != nil {
		return fmt.Errorf("setting up lifecycles: %w", err)
	}
	begin, err := registerHeldPods(mgr, times, options.Workers, clk)
	if err != nil {
		return err
	}

	admitted := &resourceconsist.Admission{}
	if err := registerAdapters(mgr, options, resourceconsist.WithAdmission(admitted)); err != nil {
		return err
	}
	checker, err := registerPolicies(mgr, policies, options.Workers, clk)
	if err != nil {
		return err
	}
	decoder := admission.NewDecoder(mgr.GetScheme())
	serve(mgr, map[string]admission.Handler{
		podwebhook.MutatePath:      podwebhook.NewMutator(decoder, identity, times, clk).Expecting(admitted.ExpectedFinalizers),
		podwebhook.ValidatePath:    podwebhook.NewValidator(decoder, identity, times, clk),
		podwebhook.DeletePath:      podwebhook.NewDeleteHolder(decoder, mgr.GetClient(), begin),
		rulewebhook.MutatePath:     rulewebhook.NewMutator(decoder),
		rulewebhook.ValidatePath:   rulewebhook.NewValidator(decoder, mgr.GetClient(), mgr.GetAPIReader(), checker, caller.guard.CheckURL),
		policywebhook.ValidatePath: policywebhook.NewValidator(decoder, mgr.GetClient(), checker),
		policywebhook.DeletePath:   policywebhook.NewDeleteGuard(decoder, mgr.GetClient(), mgr.GetAPIReader()),
	})
	return nil
}

// serve has the webhook server answer with a handler at each path.
func serve(mgr manager.Manager, handlers map[string]admission.Handler) {
	for path, handler := range handlers {
		var served http.Handler = &admission.Webhook{Handler: handler}
		mgr.GetWebhookServer().Register(path, served)
	}
}

func registerHeldPods(mgr manager.Manager, times lifecycle.Options, workers int, clk clock.Clock) (*heldpod.Begin, error) {
	// The index is asked for before the cache starts, hence no context to end it.
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, heldpod.ControllerUIDField, heldpod.IndexByController)
	if err != nil {
		return nil, fmt.Errorf("indexing pods by controller: %w", err)
	}
	begin := heldpod.NewBegin(mgr.GetClient(), clk)
	if err := begin.SetupWithManager(mgr, workers); err != nil {
		return nil, fmt.Errorf("setting up held deletes: %w", err)
	}
	keeper := heldpod.NewKeeper(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(eventSource), times, clk)
	if err := keeper.SetupWithManager(mgr, workers); err != nil {
		return nil, fmt.Errorf("setting up promises: %w", err)
	}
	return begin, nil
}
