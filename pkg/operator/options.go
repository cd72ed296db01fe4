// Package operator assembles the manager: options, scheme, caches, certificates,
// controllers and webhooks.
package operator

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/state/eventqueue"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// defaultNamespace is the namespace of the manager in the manifests.
const defaultNamespace = "podops-system"

// Options are the flags of the manager.
type Options struct {
	// Namespace holds the certificate secret, the webhook service and the lease.
	Namespace string

	// WebhookURL is where API servers reach this manager when it runs outside the
	// cluster. The webhook server listens on its host and port. Empty: they reach it
	// through the service, on WebhookPort.
	WebhookURL  string
	WebhookPort int

	// WebhookBindAddress is the address of the webhook server when it differs from
	// WebhookURL: several managers outside the cluster then share a URL, as replicas
	// inside share the service.
	WebhookBindAddress string

	MetricsAddress string
	ProbeAddress   string

	// PprofAddress serves profiles of the manager; empty: no profiles.
	PprofAddress string

	LeaderElection bool
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration

	// Workers is the number of pods, and of namespaces, that are reconciled at once.
	Workers int

	// EventRate is the number of events a second that each namespace may have in the long
	// run; 0: no events.
	EventRate float64

	// Settle, GateSyncTimeout and GateSyncPolicy are the fields of lifecycle.Options.
	Settle          time.Duration
	GateSyncTimeout time.Duration
	GateSyncPolicy  string

	// MaxHold is the time for which rules without a maxHold of their own may hold back a
	// deferred delete; 0: no bound. OnMaxHold is the action at its end: Undo or Release.
	MaxHold   time.Duration
	OnMaxHold string

	// DeleteWait is for how long a delete or an eviction of a client waits in admission.
	DeleteWait time.Duration

	// HoldPreemption makes the scheduler wait for the rules of the pods that it removes for pods
	// of higher priority.
	HoldPreemption bool

	// EvaluationTimeout bounds one evaluation of a built-in rule, for a batch of pods;
	// PolicyTimeout is the CPU time for one evaluation of a user's module, for one pod.
	// RoundBudget bounds how long one round evaluates a namespace's rules.
	EvaluationTimeout time.Duration
	PolicyTimeout     time.Duration
	RoundBudget       time.Duration

	// PermitInterval is the least time between two permit batches of one PodTransitionRule or PodDisruptionBudget.
	PermitInterval time.Duration

	// RuleWebhookAllowCIDR and RuleWebhookAllowHost are lists, separated by commas.
	RuleWebhookAllowCIDR string
	RuleWebhookAllowHost string

	// RuleWebhookRejectionRetry is the approximate delay after which the service of a webhook rule
	// is called again after a rejection.
	RuleWebhookRejectionRetry time.Duration

	// EnableAdapters is a list of load balancers whose adapters run, separated by commas:
	// demo, haproxy. haproxy.ParseAllowed parses HAProxyAllow.
	EnableAdapters string
	HAProxyAllow   string

	// DecisionLog is a file, "-" for standard output; empty: no log.
	DecisionLog       string
	DecisionLogSample float64
	DecisionLogMask   string

	Serving ServingOptions

	Traces TraceOptions

	Log zap.Options
}

// AddFlags registers the options with their defaults.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = defaultNamespace
	}
	flags.StringVar(&o.Namespace, "namespace", namespace, "namespace of the certificate secret, the webhook service and the lease; default $POD_NAMESPACE")
	flags.StringVar(&o.WebhookURL, "webhook-url", "", "where API servers reach this manager when it runs outside the cluster, e.g. https://127.0.0.1:9443; empty: through the service")
	flags.IntVar(&o.WebhookPort, "webhook-port", 9443, "port of the webhook server; taken from --webhook-url when that is set")
	flags.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "", "address of the webhook server, e.g. 127.0.0.1:9443, when another server at --webhook-url forwards requests to it; empty: as --webhook-url or --webhook-port say")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address of the metrics server; 0 switches it off")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 switches them off")
	flags.StringVar(&o.PprofAddress, "pprof-bind-address", "", "loopback address that serves profiles of the manager at /debug/pprof/, e.g. 127.0.0.1:6060; empty: no profiles")
	flags.BoolVar(&o.LeaderElection, "leader-elect", false, "run controllers only while holding the lease; needed with more than one replica")
	flags.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long other replicas wait before they take an unrenewed lease")
	flags.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew before it gives up")
	flags.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "how long to wait between tries")
	flags.IntVar(&o.Workers, "workers", 10, "how many pods, and how many namespaces, are reconciled at once")
	flags.Float64Var(&o.EventRate, "event-rate", eventqueue.DefaultRate, "how many events a second each namespace may have in the long run; 0 records no events")
	flags.DurationVar(&o.Settle, "settle-time", 2*time.Second, "time for which a pod that a Service selects must have been unready before it is operated on, so that every node has removed its endpoints; the annotation "+appsv1alpha1.SettleTimeAnnotationKey+" of a pod overrides it")
	flags.DurationVar(&o.GateSyncTimeout, "gate-sync-timeout", time.Minute, "how long an operation waits for the kubelet to make the pod unready, and a pod counts as available before the kubelet makes it Ready")
	flags.StringVar(&o.GateSyncPolicy, "gate-sync-policy", appsv1alpha1.GateSyncContinue, "whether operations continue when the kubelet has not made the pod unready within the gate sync timeout (Continue) or wait until it does (Hold); the annotation "+appsv1alpha1.GateSyncPolicyAnnotationKey+" of a pod overrides it")
	flags.DurationVar(&o.MaxHold, "max-hold", 0, "for how long rules and PodDisruptionBudgets may hold back a delete or an eviction that PodOps defers, from 1s, unless the PodTransitionRule has a maxHold; 0s: no bound")
	flags.StringVar(&o.OnMaxHold, "on-max-hold", string(appsv1alpha1.HoldUndo), "action when such a hold has lasted for its bound, unless the PodTransitionRule has an onMaxHold: the operation is cancelled (Undo), or the pod passes (Release)")
	flags.DurationVar(&o.DeleteWait, "delete-wait", 10*time.Second, "time for which a delete or an eviction of a client, such as kubectl delete and kubectl drain, waits in admission for its pod to be prepared; from 1s to 13s")
	flags.BoolVar(&o.HoldPreemption, "hold-preemption", false, "whether the scheduler, too, waits for the rules of a pod that it removes for a pod of higher priority")
	flags.DurationVar(&o.EvaluationTimeout, "evaluation-timeout", 10*time.Second, "how long one evaluation of a rule may take")
	flags.DurationVar(&o.PolicyTimeout, "policy-timeout", 100*time.Millisecond, "how much CPU time a module of a user may use for one pod")
	flags.DurationVar(&o.RoundBudget, "round-budget", 2*time.Second, "how long the rules of one namespace may be compiled and evaluated before other namespaces get their turn")
	flags.DurationVar(&o.PermitInterval, "permit-interval", podtransitionrule.DefaultBatchInterval, "interval between permit batches of one PodTransitionRule or PodDisruptionBudget, of which four may come within one interval after a rest; each batch writes its record once; 0s writes it for every permit; at most 1m")
	flags.StringVar(&o.RuleWebhookAllowCIDR, "rule-webhook-allow-cidr", "", "networks that webhook rules may reach although they are rejected otherwise (loopback, link-local, metadata services), separated by commas, e.g. 127.0.0.0/8")
	flags.StringVar(&o.RuleWebhookAllowHost, "rule-webhook-allow-host", "", "hosts that webhook rules may reach at any address that they resolve to, separated by commas")
	flags.DurationVar(&o.RuleWebhookRejectionRetry, "rule-webhook-rejection-retry", webhooktask.DefaultRejectionRetry, "about how long after a rejection the service of a webhook rule is called again; from 1s to 10m")
	flags.StringVar(&o.DecisionLog, "decision-log", "", "file to which every evaluation of a rule is appended as a line of JSON, - for standard output; empty: no log")
	flags.Float64Var(&o.DecisionLogSample, "decision-log-sample", 1, "share of the decisions that are logged, from 0 to 1")
	flags.StringVar(&o.DecisionLogMask, "decision-log-mask", "", "paths in the input of rules that are not logged, separated by commas, e.g. pod.annotations,parameters.token; such decisions cannot be replayed")
	o.Serving.addFlags(flags)
	o.Traces.addFlags(flags)
	o.addAdapterFlags(flags)
	o.Log.BindFlags(flags)
}

// Validate returns an error that names each invalid flag.
func (o *Options) Validate() error {
	_, guard := o.guard()
	_, _, address := o.webhookAddress()
	return errors.Join(
		check(o.Namespace != "", "--namespace must not be empty"),
		check(o.Workers >= 1, "--workers is %d, want at least 1", o.Workers),
		check(o.EventRate >= 0 && !math.IsInf(o.EventRate, 1), "--event-rate is %v, want a number from 0", o.EventRate),
		check(o.Settle >= 0, "--settle-time is %s, want 0 or more", o.Settle),
		check(o.GateSyncTimeout > 0, "--gate-sync-timeout is %s, want more than 0", o.GateSyncTimeout),
		check(o.GateSyncPolicy == appsv1alpha1.GateSyncContinue || o.GateSyncPolicy == appsv1alpha1.GateSyncHold,
			"--gate-sync-policy is %q, want %s or %s", o.GateSyncPolicy, appsv1alpha1.GateSyncContinue, appsv1alpha1.GateSyncHold),
		check(o.MaxHold == 0 || o.MaxHold >= time.Second, "--max-hold is %s, want 0s or at least 1s", o.MaxHold),
		check(o.OnMaxHold == string(appsv1alpha1.HoldUndo) || o.OnMaxHold == string(appsv1alpha1.HoldRelease),
			"--on-max-hold is %q, want %s or %s", o.OnMaxHold, appsv1alpha1.HoldUndo, appsv1alpha1.HoldRelease),
		check(o.DeleteWait >= time.Second && o.DeleteWait <= deferreddelete.MaxWait,
			"--delete-wait is %s, want from 1s to %s", o.DeleteWait, deferreddelete.MaxWait),
		check(o.EvaluationTimeout > 0, "--evaluation-timeout is %s, want more than 0", o.EvaluationTimeout),
		check(o.PolicyTimeout > 0, "--policy-timeout is %s, want more than 0", o.PolicyTimeout),
		check(o.RuleWebhookRejectionRetry >= time.Second && o.RuleWebhookRejectionRetry <= 10*time.Minute,
			"--rule-webhook-rejection-retry is %s, want from 1s to 10m", o.RuleWebhookRejectionRetry),
		check(o.RoundBudget >= 10*o.PolicyTimeout,
			"--round-budget is %s, want at least 10 times --policy-timeout, which is %s: no pod would be reached", o.RoundBudget, o.PolicyTimeout),
		check(o.PermitInterval >= 0 && o.PermitInterval <= time.Minute,
			"--permit-interval is %s, want from 0s to 1m", o.PermitInterval),
		guard,
		o.validateServing(),
		o.validateAdapters(),
		o.Traces.validate(),
		check(o.DecisionLogSample >= 0 && o.DecisionLogSample <= 1, "--decision-log-sample is %v, want from 0 to 1", o.DecisionLogSample),
		address,
	)
}

// check returns nil for a valid flag, or else an error with this text.
func check(valid bool, format string, args ...any) error {
	if valid {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// webhookAddress returns the address of the webhook server.
func (o *Options) webhookAddress() (host string, port int, err error) {
	text, name, form := o.WebhookBindAddress, "--webhook-bind-address", "<host>:<port>"
	switch {
	case text != "":
	case o.WebhookURL == "":
		return "", o.WebhookPort, nil
	default:
		parsed, err := url.Parse(o.WebhookURL)
		if err != nil {
			return "", 0, fmt.Errorf("--webhook-url: %w", err)
		}
		text, name, form = parsed.Host, "--webhook-url", "https://<host>:<port>"
	}
	host, digits, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s is %q, want %s", name, text, form)
	}
	return host, port, nil
}
