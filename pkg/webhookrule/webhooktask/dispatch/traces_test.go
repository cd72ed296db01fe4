package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/test/await"
)

// approving is a service that approves every POST and answers no poll.
type approving struct{}

func (approving) Post(context.Context, webhookclient.Endpoint, webhookclient.PostRequest) (webhooktask.PostAnswer, error) {
	return webhooktask.PostAnswer{Success: true}, nil
}

func (approving) Poll(context.Context, webhookclient.Endpoint, []string, string) (webhooktask.PollAnswer, error) {
	return webhooktask.PollAnswer{}, late()
}

func late() *webhookclient.Failure {
	return &webhookclient.Failure{Class: webhookclient.ClassTimeout, Message: "the service did not answer in time"}
}

func (approving) CloseIdle() {}

// called is a call with spans.
type called struct{ Name, Server, Class string }

type calls chan called

func (c calls) Called(call tracing.Call, _ time.Duration, class, _ string) {
	c <- called{call.Spans(time.Time{}, time.Time{}, "", "")[0].Name, call.Server, class}
}

// TestCallsHaveSpans shows that each call about a lifecycle with a trace has a span, with its failure, also when it
// cannot be started; and that no other call has.
func TestCallsHaveSpans(t *testing.T) {
	metrics, err := webhookclient.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	spans, delivered := make(calls, 8), make(chan string, 8)
	d := New(Config{
		Client: approving{}, Metrics: metrics, Secrets: fake.NewClientBuilder().Build(), InFlight: NewInFlight(),
		Wake: func(namespace string) { delivered <- namespace }, Clock: clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0)), Traces: spans,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Pool().Start(ctx) }()
	id := rule.RuleID{Ruleset: types.NamespacedName{Namespace: "shop", Name: "web"}, Rule: "approval"}
	of := []tracing.Lifecycle{{Namespace: "shop", ID: "me", Trace: trace.TraceID{1}}}
	service := Service{URL: "http://approvals.shop:8080/approve"}
	for _, call := range []Call{
		{Rule: id, TraceID: "1", Service: service, Stage: appsv1alpha1.StagePreCheck, Post: &webhookclient.PostRequest{TraceID: "1"}, Of: of},
		{Rule: id, TraceID: "2", Service: service, Stage: appsv1alpha1.StagePreCheck, Poll: &webhooktask.Poll{TraceID: "2"}, Of: of},
		{Rule: id, TraceID: "3", Service: Service{URL: service.URL, Secret: "missing"}, Stage: appsv1alpha1.StagePreCheck, Post: &webhookclient.PostRequest{TraceID: "3"}, Of: of},
		{Rule: id, TraceID: "4", Service: service, Stage: appsv1alpha1.StagePreCheck, Post: &webhookclient.PostRequest{TraceID: "4"}},
	} {
		d.Call(ctx, call)
		await.Receive(t, "the result of call "+call.TraceID, delivered)
	}
	cancel()
	if err := await.Receive(t, "the pool ends", ended); err != nil {
		t.Fatal(err)
	}
	close(spans)
	var got []called
	for span := range spans {
		got = append(got, span)
	}
	want := []called{
		{tracing.NamePost, "approvals.shop", ""}, {tracing.NamePoll, "approvals.shop", NewFailure(*late()).Class},
		{tracing.NamePost, "approvals.shop", string(webhookclient.ClassSecret)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls with spans differ (-want +got):\n%s", diff)
	}
}
