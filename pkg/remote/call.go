package remote

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/policy"
)

// Caller makes single calls. Errors are *Failures.
type Caller interface {
	Post(ctx context.Context, endpoint Endpoint, request PostRequest) (PostAnswer, error)
	Poll(ctx context.Context, endpoint Endpoint, keys []string, taskID, traceID string) (PollAnswer, error)

	// CloseIdle closes the connections that no call runs on.
	CloseIdle()
}

// Call is one call of a rule: exactly one of Post and Poll is set.
type Call struct {
	// Key is unique among all calls.
	Key string

	// Rule that it is made for.
	Rule policy.RuleID

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

	// Keys are those of QueryKeys.
	Keys    []string
	TaskID  string
	TraceID string
}

// Result of a call: exactly one of Post, Poll and Failure is set.
type Result struct {
	Call    Call
	Post    *PostAnswer
	Poll    *PollAnswer
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

// host that the call goes to, with its port: the key of breakers and turns. It is "invalid"
// for a URL that cannot be called.
func (c Call) host() string {
	endpoint := Endpoint{}
	switch {
	case c.Post != nil:
		endpoint = c.Post.Endpoint
	case c.Poll != nil:
		endpoint = c.Poll.Endpoint
	}
	parsed, err := ParseURL(endpoint.URL)
	if err != nil || len(parsed.Host) > 260 {
		return "invalid"
	}
	host := strings.ToLower(parsed.Host)
	if parsed.Port() == "" {
		host = strings.TrimSuffix(host, ":")
		if parsed.Scheme == "https" {
			return host + ":443"
		}
		return host + ":80"
	}
	return host
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
		answer, err := caller.Poll(ctx, c.Poll.Endpoint, c.Poll.Keys, c.Poll.TaskID, c.Poll.TraceID)
		if err == nil {
			return Result{Call: c, Poll: &answer}
		}
		return Result{Call: c, Failure: AsFailure(err)}
	default:
		return Result{Call: c, Failure: fail(ClassInternal, "the call is neither a POST nor a poll")}
	}
}
