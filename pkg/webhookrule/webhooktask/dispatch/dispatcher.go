package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// Dispatcher makes the calls of webhook rules in a pool of connections, with the credentials that the rules
// name, and keeps the results in flight. It is safe for concurrent use.
type Dispatcher struct {
	pool     *webhookclient.Pool
	secrets  client.Reader
	inFlight *InFlight
	wake     func(namespace string)
	traces   Tracer
	clock    clock.PassiveClock
}

// Tracer exports the spans of calls. It must not block.
type Tracer interface {
	// Called exports the spans of a call that has ended now. class and message are empty, or describe its failure.
	Called(call tracing.Call, took time.Duration, class, message string)
}

// Config configures a Dispatcher. All fields but Traces must be set.
type Config struct {
	// Client makes the HTTP requests; Pool bounds them, and Metrics count them.
	Client  webhookclient.Caller
	Pool    webhookclient.PoolOptions
	Metrics *webhookclient.Metrics

	// Secrets reads Secrets from the API server: they are not cached.
	Secrets client.Reader

	// InFlight keeps the results.
	InFlight *InFlight

	// Wake queues a round of a namespace, of which a result has arrived.
	Wake  func(namespace string)
	Clock clock.PassiveClock

	// Traces exports the spans of the calls that have traces; nil if no call has.
	Traces Tracer
}

// New returns a Dispatcher. Its calls are made once Pool is started.
func New(c Config) *Dispatcher {
	d := &Dispatcher{secrets: c.Secrets, inFlight: c.InFlight, wake: c.Wake, traces: c.Traces, clock: c.Clock}
	d.pool = webhookclient.NewPool(c.Client, c.Pool, c.Metrics, func(result webhookclient.Result) {
		d.trace(result)
		d.deliver(newResult(result))
	})
	return d
}

// trace exports the spans of a call that has ended.
func (d *Dispatcher) trace(result webhookclient.Result) {
	if !result.Call.Traced.IsTraced() || d.traces == nil {
		return
	}
	var failure webhooktask.Failure
	if result.Failure != nil {
		failure = NewFailure(*result.Failure)
	}
	d.traces.Called(result.Call.Traced, result.Took, failure.Class, failure.Message)
}

// fail delivers the failure of a call that cannot be started.
func (d *Dispatcher) fail(call Call, failure *webhookclient.Failure) {
	d.trace(webhookclient.Result{Call: webhookclient.Call{Traced: call.traced(d.clock.Now())}, Failure: failure})
	d.deliver(Result{Call: call, Failure: failure})
}

// Pool returns the pool that makes the calls, to be started.
func (d *Dispatcher) Pool() *webhookclient.Pool { return d.pool }

// deliver keeps the result of a call for the next round, and queues the namespace.
func (d *Dispatcher) deliver(result Result) {
	d.inFlight.Deliver(result, d.clock.Now())
	d.wake(result.Call.Rule.Ruleset.Namespace)
}

const (
	kindPost = "post"
	kindPoll = "poll"

	// secretTimeout bounds reading the credentials of a rule.
	secretTimeout = 2 * time.Second
)

// Call starts a call. It never blocks but for reading the Secret of the rule; a call that cannot be started
// has a failure as its result.
func (d *Dispatcher) Call(ctx context.Context, call Call) {
	endpoint, failure := d.endpoint(ctx, call)
	if failure != nil {
		d.fail(call, failure)
		return
	}
	// No round waits for a call, so the pool has a context of its own.
	made := webhookclient.Call{Rule: call.Rule, Traced: call.traced(d.clock.Now())}
	if call.Post != nil {
		made.Key = call.TraceID + "/" + kindPost
		made.Post = &webhookclient.PostCall{Endpoint: endpoint, Request: *call.Post}
	} else {
		made.Key = call.TraceID + "/" + kindPoll
		made.Poll = &webhookclient.PollCall{Endpoint: endpoint, Keys: call.Poll.Keys, TaskID: call.Poll.TaskID, TraceID: call.TraceID}
	}
	if !d.pool.Submit(made) && !d.pool.InFlight(made.Key) {
		d.fail(call, webhookclient.Busy())
	}
}

// CircuitOpen returns the failure that a POST of a rule would have because the circuit breaker of the
// service is open; nil when the POST would be made. It changes nothing.
func (d *Dispatcher) CircuitOpen(rule rule.RuleID, service Service) *webhookclient.Failure {
	return d.pool.CircuitOpen(postTo(rule, service))
}

// Admit is called before POSTs of a rule are recorded. It returns the failure of CircuitOpen, or reports
// that the next POST is the probe of a half-open circuit breaker, which is reserved for that POST.
func (d *Dispatcher) Admit(rule rule.RuleID, service Service) (probe bool, failure *webhookclient.Failure) {
	return d.pool.Admit(postTo(rule, service))
}

// CountSkipped counts a POST of a rule that was not made because the circuit breaker is open.
func (d *Dispatcher) CountSkipped(rule rule.RuleID, service Service, failure *webhookclient.Failure) {
	d.pool.CountSkipped(postTo(rule, service), failure)
}

func postTo(rule rule.RuleID, service Service) webhookclient.Call {
	return webhookclient.Call{Rule: rule, Post: &webhookclient.PostCall{Endpoint: webhookclient.Endpoint{URL: service.URL, CABundle: service.CABundle}}}
}

// Forget drops the calls of a deleted rule.
func (d *Dispatcher) Forget(rule rule.RuleID) { d.pool.Forget(rule) }

// newResult returns a result with the call that the rule made.
func newResult(result webhookclient.Result) Result {
	call := Call{Rule: result.Call.Rule}
	if post := result.Call.Post; post != nil {
		call.TraceID, call.Post = post.Request.TraceID, &post.Request
	} else if poll := result.Call.Poll; poll != nil {
		call.TraceID, call.Poll = poll.TraceID, &webhooktask.Poll{TraceID: poll.TraceID, TaskID: poll.TaskID, Keys: poll.Keys}
	}
	return Result{Call: call, Post: result.Post, Poll: result.Poll, Failure: result.Failure}
}

// endpoint returns the destination of a call, with the credentials of the Secret that the rule names.
func (d *Dispatcher) endpoint(ctx context.Context, call Call) (webhookclient.Endpoint, *webhookclient.Failure) {
	endpoint := webhookclient.Endpoint{URL: call.Service.URL, CABundle: call.Service.CABundle}
	if call.Service.Secret == "" {
		return endpoint, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: call.Rule.Ruleset.Namespace, Name: call.Service.Secret}
	err := d.secrets.Get(ctx, key, &secret)
	switch {
	case apierrors.IsForbidden(err):
		return webhookclient.Endpoint{}, secretFailure(err, "PodOps may not read the Secret %s: bind it a Role as in config/samples/webhook, "+
			"or deploy config/components/webhook-secrets", key)
	case err != nil:
		return webhookclient.Endpoint{}, secretFailure(err, "the Secret %s cannot be read", key)
	}
	if !isForServices(secret.Type) {
		return webhookclient.Endpoint{}, secretFailure(errors.New("wrong type"), "the Secret %s is of a type for credentials of the cluster itself: "+
			"create one of type Opaque or kubernetes.io/tls", key)
	}
	endpoint.Token = string(secret.Data["token"])
	endpoint.ClientCert, endpoint.ClientKey = secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if endpoint.Token == "" && len(endpoint.ClientCert) == 0 {
		return webhookclient.Endpoint{}, secretFailure(errors.New("no known key"), "the Secret %s has neither token nor tls.crt and tls.key", key)
	}
	return endpoint, nil
}

// isForServices reports whether credentials of a type of Secret may leave the cluster: a user who may write
// rules must not be able to send the credentials of the cluster to a service.
func isForServices(kind corev1.SecretType) bool {
	switch kind {
	case corev1.SecretTypeOpaque, corev1.SecretTypeTLS, corev1.SecretTypeBasicAuth, "":
		return true
	default:
		return false
	}
}

func secretFailure(err error, format string, args ...any) *webhookclient.Failure {
	return &webhookclient.Failure{Class: webhookclient.ClassSecret, Message: fmt.Sprintf(format, args...), Err: err}
}
