// Package operator puts the manager together: options, scheme, caches, certificates,
// and the one list of controllers and webhooks.
package operator

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// defaultNamespace is where the manifests deploy the manager.
const defaultNamespace = "podops-system"

// leaderElectionID is the name of the lease; the manifests grant rights on it.
const leaderElectionID = "podops-controller-manager"

// Options are the flags of the manager.
type Options struct {
	// Namespace holds the certificate secret, the webhook service and the lease.
	Namespace string

	// WebhookURL is where API servers reach this manager when it runs outside the
	// cluster. The webhook server listens on its host and port. Empty: they reach it
	// through the service, on WebhookPort.
	WebhookURL  string
	WebhookPort int

	// WebhookBindAddress is where the webhook server listens when that is not what
	// WebhookURL says: several managers outside the cluster share a URL then, as
	// replicas inside share the service.
	WebhookBindAddress string

	MetricsAddress string
	ProbeAddress   string

	LeaderElection bool
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration

	// Workers is how many pods, and how many namespaces, are worked on at once.
	Workers int

	// Settle and GateSyncTimeout are those of lifecycle.Options.
	Settle          time.Duration
	GateSyncTimeout time.Duration

	// EvaluationTimeout bounds one evaluation of a built-in rule, which is a batch of
	// pods; PolicyTimeout one of a user's module, which is one pod.
	EvaluationTimeout time.Duration
	PolicyTimeout     time.Duration

	// RuleWebhookAllowCIDR and RuleWebhookAllowHost are lists, separated by commas.
	RuleWebhookAllowCIDR string
	RuleWebhookAllowHost string

	// EnableAdapters is a list of load balancers whose adapters run, separated by commas:
	// demo, haproxy. HAProxyAllow is what haproxy.ParseAllowed reads.
	EnableAdapters string
	HAProxyAllow   string

	// DecisionLog is a file, "-" for standard output; empty: no log.
	DecisionLog       string
	DecisionLogSample float64
	DecisionLogMask   string

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
	flags.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "", "address of the webhook server, e.g. 127.0.0.1:9443, when another one answers at --webhook-url and passes requests on; empty: as --webhook-url or --webhook-port say")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "address of the metrics server; 0 switches it off")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 switches them off")
	flags.BoolVar(&o.LeaderElection, "leader-elect", false, "run controllers only while holding the lease; needed with more than one replica")
	flags.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long others wait before they take an unrenewed lease")
	flags.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew before it gives up")
	flags.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "how long to wait between tries")
	flags.IntVar(&o.Workers, "workers", 10, "how many pods, and how many namespaces, are worked on at once")
	flags.DurationVar(&o.Settle, "settle-time", 2*time.Second, "how long a pod that no service controller protects must have been unready before it is operated on, so that every node has seen its endpoints go")
	flags.DurationVar(&o.GateSyncTimeout, "gate-sync-timeout", time.Minute, "how long an operation waits for the kubelet to make the pod unready")
	flags.DurationVar(&o.EvaluationTimeout, "evaluation-timeout", time.Second, "how long one evaluation of a rule may take")
	flags.DurationVar(&o.PolicyTimeout, "policy-timeout", 100*time.Millisecond, "how long a module of a user may take for one pod")
	flags.StringVar(&o.RuleWebhookAllowCIDR, "rule-webhook-allow-cidr", "", "networks that webhook rules may reach although they are refused otherwise (loopback, link-local, metadata services), separated by commas, e.g. 127.0.0.0/8")
	flags.StringVar(&o.RuleWebhookAllowHost, "rule-webhook-allow-host", "", "hosts that webhook rules may reach whatever they resolve to, separated by commas")
	flags.StringVar(&o.DecisionLog, "decision-log", "", "file to which every evaluation of a rule is appended as a line of JSON, - for standard output; empty: no log")
	flags.Float64Var(&o.DecisionLogSample, "decision-log-sample", 1, "share of the decisions that are logged, from 0 to 1")
	flags.StringVar(&o.DecisionLogMask, "decision-log-mask", "", "paths in the input of rules that are not logged, separated by commas, e.g. pod.annotations,parameters.token; such decisions cannot be replayed")
	o.addAdapterFlags(flags)
	o.Log.BindFlags(flags)
}

// Validate names the flag that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace must not be empty"))
	}
	if o.Workers < 1 {
		errs = append(errs, fmt.Errorf("--workers is %d, want at least 1", o.Workers))
	}
	if o.Settle < 0 {
		errs = append(errs, fmt.Errorf("--settle-time is %s, want 0 or more", o.Settle))
	}
	if o.GateSyncTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--gate-sync-timeout is %s, want more than 0", o.GateSyncTimeout))
	}
	if o.EvaluationTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--evaluation-timeout is %s, want more than 0", o.EvaluationTimeout))
	}
	if o.PolicyTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--policy-timeout is %s, want more than 0", o.PolicyTimeout))
	}
	if _, err := o.guard(); err != nil {
		errs = append(errs, err)
	}
	if err := o.validateAdapters(); err != nil {
		errs = append(errs, err)
	}
	if o.DecisionLogSample < 0 || o.DecisionLogSample > 1 {
		errs = append(errs, fmt.Errorf("--decision-log-sample is %v, want from 0 to 1", o.DecisionLogSample))
	}
	if _, _, err := o.webhookAddress(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// webhookAddress is where the webhook server listens.
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
