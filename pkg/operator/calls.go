package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookserver"
)

// calls makes the calls of webhook rules.
type calls struct {
	guard   webhookclient.Guard
	pool    *webhookclient.Pool
	secrets client.Reader
	deliver func(podtransitionrule.Result)
}

// newCalls adds the pool that makes calls to the manager. What comes of them goes to the
// field deliver, which is set before the manager starts.
func newCalls(mgr manager.Manager, options Options) (*calls, error) {
	guard, err := options.guard()
	if err != nil {
		return nil, err
	}
	cluster := newClusterAddresses(mgr.GetAPIReader(), mgr.GetConfig().Host)
	if err := mgr.Add(cluster); err != nil {
		return nil, fmt.Errorf("adding the addresses of the cluster: %w", err)
	}
	guard.Cluster = cluster
	if server, paces := mgr.GetWebhookServer().(*webhookserver.Server); paces {
		server.Exempt(cluster.Has)
	}
	measured, err := webhookclient.NewMetrics(metrics.Registry)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of webhook rules: %w", err)
	}
	c := &calls{guard: guard, secrets: mgr.GetAPIReader()}
	c.pool = webhookclient.NewPool(
		webhookclient.NewClient(guard, webhookclient.Timeouts{}), webhookclient.PoolOptions{Log: ctrl.Log.WithName("webhook-rules")}, measured,
		func(result webhookclient.Result) { c.deliver(c.resultOf(result)) })
	if err := mgr.Add(poolRunner{c.pool, cluster}); err != nil {
		return nil, fmt.Errorf("adding the pool of calls: %w", err)
	}
	return c, nil
}

// awaitAddresses bounds how long the first calls of a process wait for the addresses of the cluster.
const awaitAddresses = 10 * time.Second

// poolRunner starts the pool once the addresses of the cluster are known.
type poolRunner struct {
	*webhookclient.Pool
	cluster *clusterAddresses
}

// Start implements manager.Runnable.
func (p poolRunner) Start(ctx context.Context) error {
	p.cluster.await(ctx, awaitAddresses)
	return p.Pool.Start(ctx)
}

// guard says which addresses webhook rules may reach besides those that anybody may.
func (o *Options) guard() (webhookclient.Guard, error) {
	var guard webhookclient.Guard
	for text := range strings.SplitSeq(o.RuleWebhookAllowCIDR, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return webhookclient.Guard{}, fmt.Errorf("--rule-webhook-allow-cidr: %q is not a network such as 10.1.0.0/16: %w", text, err)
		}
		guard.AllowCIDRs = append(guard.AllowCIDRs, prefix)
	}
	for host := range strings.SplitSeq(o.RuleWebhookAllowHost, ",") {
		if host = strings.TrimSpace(host); host != "" {
			guard.AllowHosts = append(guard.AllowHosts, host)
		}
	}
	return guard, nil
}

const (
	kindPost = "post"
	kindPoll = "poll"

	// secretTimeout bounds reading the credentials of a rule.
	secretTimeout = 2 * time.Second
)

// Call implements podtransitionrule.Caller.
func (c *calls) Call(ctx context.Context, call podtransitionrule.Call) {
	endpoint, failure := c.endpoint(ctx, call)
	if failure != nil {
		c.deliver(podtransitionrule.Result{Call: call, Failure: failure})
		return
	}
	// A round does not wait for a call, so a call does not end with its round.
	asked := webhookclient.Call{Rule: call.Rule}
	if call.Post != nil {
		asked.Key = call.TraceID + "/" + kindPost
		asked.Post = &webhookclient.PostCall{Endpoint: endpoint, Request: *call.Post}
	} else {
		asked.Key = call.TraceID + "/" + kindPoll
		asked.Poll = &webhookclient.PollCall{Endpoint: endpoint, Keys: call.Poll.Keys, TaskID: call.Poll.TaskID, TraceID: call.TraceID}
	}
	if !c.pool.Submit(asked) && !c.pool.InFlight(asked.Key) {
		c.deliver(podtransitionrule.Result{Call: call, Failure: webhookclient.Busy()})
	}
}

// CircuitOpen implements podtransitionrule.Caller.
func (c *calls) CircuitOpen(rule rule.RuleID, service podtransitionrule.Service) *webhookclient.Failure {
	return c.pool.CircuitOpen(postTo(rule, service))
}

// Admit implements podtransitionrule.Caller.
func (c *calls) Admit(rule rule.RuleID, service podtransitionrule.Service) (probe bool, failure *webhookclient.Failure) {
	return c.pool.Admit(postTo(rule, service))
}

// CountSkipped implements podtransitionrule.Caller.
func (c *calls) CountSkipped(rule rule.RuleID, service podtransitionrule.Service, failure *webhookclient.Failure) {
	c.pool.CountSkipped(postTo(rule, service), failure)
}

func postTo(rule rule.RuleID, service podtransitionrule.Service) webhookclient.Call {
	return webhookclient.Call{Rule: rule, Post: &webhookclient.PostCall{Endpoint: webhookclient.Endpoint{URL: service.URL, CABundle: service.CABundle}}}
}

// Forget implements podtransitionrule.Caller.
func (c *calls) Forget(rule rule.RuleID) { c.pool.Forget(rule) }

// resultOf is a result in the words of the rule controller.
func (c *calls) resultOf(result webhookclient.Result) podtransitionrule.Result {
	call := podtransitionrule.Call{Rule: result.Call.Rule}
	if post := result.Call.Post; post != nil {
		call.TraceID, call.Post = post.Request.TraceID, &post.Request
	} else if poll := result.Call.Poll; poll != nil {
		call.TraceID, call.Poll = poll.TraceID, podtransitionrule.PollOf(poll.TraceID, poll.TaskID, poll.Keys)
	}
	return podtransitionrule.Result{Call: call, Post: result.Post, Poll: result.Poll, Failure: result.Failure}
}

// endpoint is where a call goes, with the credentials of the Secret that the rule names.
func (c *calls) endpoint(ctx context.Context, call podtransitionrule.Call) (webhookclient.Endpoint, *webhookclient.Failure) {
	endpoint := webhookclient.Endpoint{URL: call.Service.URL, CABundle: call.Service.CABundle}
	if call.Service.Secret == "" {
		return endpoint, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: call.Rule.Object.Namespace, Name: call.Service.Secret}
	err := c.secrets.Get(ctx, key, &secret)
	switch {
	case apierrors.IsForbidden(err):
		return webhookclient.Endpoint{}, secretFailure(err, "PodOps may not read the Secret %s: bind it a Role as config/samples/webhook has one, "+
			"or deploy config/components/webhook-secrets", key)
	case err != nil:
		return webhookclient.Endpoint{}, secretFailure(err, "the Secret %s cannot be read", key)
	}
	if !isForServices(secret.Type) {
		return webhookclient.Endpoint{}, secretFailure(errors.New("wrong type"), "the Secret %s is of a type that is for the cluster itself: "+
			"make one of type Opaque or kubernetes.io/tls", key)
	}
	endpoint.Token = string(secret.Data["token"])
	endpoint.ClientCert, endpoint.ClientKey = secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if endpoint.Token == "" && len(endpoint.ClientCert) == 0 {
		return webhookclient.Endpoint{}, secretFailure(errors.New("no known key"), "the Secret %s has neither token nor tls.crt and tls.key", key)
	}
	return endpoint, nil
}

// isForServices: whoever may write rules must not be able to have the credentials of the
// cluster sent to a service of his own.
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
