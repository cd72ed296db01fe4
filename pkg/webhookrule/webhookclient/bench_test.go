package webhookclient

import (
	"context"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/test/await"
)

// double replaces services: it answers by host.
type double struct {
	post func(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error)
}

func (d double) Post(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error) {
	return d.post(ctx, endpoint, request)
}

func (d double) Poll(ctx context.Context, endpoint Endpoint, _ []string, _ string) (webhooktask.PollAnswer, error) {
	answer, err := d.post(ctx, endpoint, PostRequest{})
	return webhooktask.PollAnswer{Success: answer.Success}, err
}

func (double) CloseIdle() {}

// bench is a running pool with its results.
type bench struct {
	*Pool
	results  chan Result
	registry *prometheus.Registry
	stop     func()
}

func start(t *testing.T, caller Caller, options PoolOptions) *bench {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{results: make(chan Result, 10_000), registry: registry}
	b.Pool = NewPool(caller, options, metrics, func(result Result) { b.results <- result })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := await.Receive(t, "the pool ends with its context", ended); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

// next returns the next result.
func (b *bench) next(t *testing.T) Result {
	t.Helper()
	return await.Receive(t, "a result", b.results)
}

func (b *bench) submit(t *testing.T, calls ...Call) {
	t.Helper()
	for _, call := range calls {
		if !b.Submit(call) {
			t.Fatalf("call %s was not taken", call.Key)
		}
	}
}

// callOf returns a POST of a rule of a namespace to a host.
func callOf(key, namespace, host string) Call {
	return Call{Key: key, Rule: rule.RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: "web"}, Rule: "approval"},
		Post: &PostCall{Endpoint: Endpoint{URL: "http://" + host + "/"}, Request: PostRequest{TraceID: key}}}
}

func approve(context.Context, Endpoint, PostRequest) (webhooktask.PostAnswer, error) {
	return webhooktask.PostAnswer{Success: true}, nil
}

// hang blocks until the call is cancelled.
func hang(ctx context.Context, _ Endpoint, _ PostRequest) (webhooktask.PostAnswer, error) {
	<-ctx.Done()
	return webhooktask.PostAnswer{}, fail(ClassCanceled, "stopped")
}
