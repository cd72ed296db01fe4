package webhookclient

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhooktask"
)

// Caller makes single calls. Errors are *Failures.
type Caller interface {
	Post(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error)
	Poll(ctx context.Context, endpoint Endpoint, keys []string, taskID string) (webhooktask.PollAnswer, error)

	// CloseIdle closes the connections that no call runs on.
	CloseIdle()
}

// Call is one call of a rule: exactly one of Post and Poll is set.
type Call struct {
	// Key is unique among all calls.
	Key string

	// Rule that it is made for.
	Rule rule.RuleID

	Post *PostCall
	Poll *PollCall
}

// PostCall asks a service about pods.
type PostCall struct {
	Endpoint Endpoint
	Request  PostRequest
}

// PollCall asks a service for the result of a task.
type PollCall struct {
	Endpoint Endpoint

	// Keys are the query parameters that carry the id of the task.
	Keys   []string
	TaskID string

	// TraceID of the POST, for the reader of the result. It is not sent.
	TraceID string
}

// Result of a call: exactly one of Post, Poll and Failure is set.
type Result struct {
	Call    Call
	Post    *webhooktask.PostAnswer
	Poll    *webhooktask.PollAnswer
	Failure *Failure

	// Took is the time of the call itself, without its waiting in the queue.
	Took time.Duration
}

// kind of the call, as metrics name it.
func (c Call) kind() string {
	if c.Post != nil {
		return "post"
	}
	return "poll"
}

// bytes estimates the memory that a waiting call takes.
func (c Call) bytes() int {
	const fixed = 512
	if c.Post == nil {
		return fixed
	}
	size := fixed + len(c.Post.Endpoint.CABundle)
	for _, resource := range c.Post.Request.Resources {
		size += resource.bytes()
	}
	return size
}

// make makes the call. A panic is a failure of this call and of no other.
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
