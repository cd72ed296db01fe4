package webhookclient

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// Caller makes single calls. Errors are *Failures.
type Caller interface {
	Post(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error)
	Poll(ctx context.Context, endpoint Endpoint, keys []string, taskID string) (webhooktask.PollAnswer, error)

	// CloseIdle closes the idle connections.
	CloseIdle()
}

// Call is one call of a rule: exactly one of Post and Poll is set.
type Call struct {
	// Key is unique among all calls.
	Key string

	// Rule is the rule that the call is made for.
	Rule rule.RuleID

	Post *PostCall
	Poll *PollCall

	// Traced are the traces of the call. A call without traces has the zero value.
	Traced tracing.Call
}

// PostCall requests the approval of pods from a service.
type PostCall struct {
	Endpoint Endpoint
	Request  PostRequest
}

// PollCall requests the result of a task from a service.
type PollCall struct {
	Endpoint Endpoint

	// Keys are the query parameters that carry the id of the task.
	Keys   []string
	TaskID string

	// TraceID is the trace id of the POST. It is not sent; the receiver of the result uses it.
	TraceID string
}

// Result is the result of a call: exactly one of Post, Poll and Failure is set.
type Result struct {
	Call    Call
	Post    *webhooktask.PostAnswer
	Poll    *webhooktask.PollAnswer
	Failure *Failure

	// Took is the duration of the call itself, without its time in the queue.
	Took time.Duration
}

// kind returns the kind of the call, as metrics name it.
func (c Call) kind() string {
	if c.Post != nil {
		return "post"
	}
	return "poll"
}

// bytes estimates the memory of a queued call.
func (c Call) bytes() int {
	const fixed, traced = 512, 256
	size := fixed + traced*len(c.Traced.Of)
	if c.Post == nil {
		return size
	}
	size += len(c.Post.Endpoint.CABundle)
	for _, resource := range c.Post.Request.Resources {
		size += resource.bytes()
	}
	return size
}

// make makes the call. A panic becomes the failure of this call alone.
func (c Call) make(ctx context.Context, caller Caller) (result Result) {
	begin := time.Now()
	defer func() {
		if panicked := recover(); panicked != nil {
			failure := fail(ClassInternal, "the call ended in a panic: %v", panicked)
			failure.Sent, failure.Err = true, fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
			result = Result{Call: c, Failure: failure}
		}
		result.Took = time.Since(begin)
	}()
	ctx = withTraceParent(ctx, c.Traced.TraceParent())
	switch {
	case c.Post != nil:
		answer, err := caller.Post(ctx, c.Post.Endpoint, c.Post.Request)
		if err == nil {
			return Result{Call: c, Post: &answer}
		}
		return Result{Call: c, Failure: AsFailure(err)}
	case c.Poll != nil:
		answer, err := caller.Poll(ctx, c.Poll.Endpoint, c.Poll.Keys, c.Poll.TaskID)
		if err == nil {
			return Result{Call: c, Poll: &answer}
		}
		return Result{Call: c, Failure: AsFailure(err)}
	default:
		return Result{Call: c, Failure: fail(ClassInternal, "the call is neither a POST nor a poll")}
	}
}
