package removal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
)

const (
	// withdrawTimeout bounds the withdrawal of requests, and withdrawInterval is the time between two looks at
	// the pods.
	withdrawTimeout, withdrawInterval = 10 * time.Second, 250 * time.Millisecond

	// recordedAfter is the time after which a request has left its record on the pod.
	recordedAfter = time.Second
)

// ErrTimeout is the cause of a context whose time has passed.
var ErrTimeout = errors.New("the time of --timeout has passed")

// API is the API server, as a Remover needs it. Client implements it.
type API interface {
	Request(ctx context.Context, pod Pod) Answer
	Get(ctx context.Context, pod Pod) (*corev1.Pod, error)
	Undo(ctx context.Context, live *corev1.Pod) error
	User(ctx context.Context) (string, error)
}

// Remover removes pods, and shows the progress.
type Remover struct {
	API API

	// Out has one line for each pod and change, and the table of the pods that are left; Messages has what
	// happens when the context ends.
	Out, Messages io.Writer

	Now func() time.Time
}

// Run removes pods, and returns nil once all of them are gone. When the context ends first, or requests were
// rejected for good, it withdraws the requests that are left, and returns an error.
func (r *Remover) Run(ctx context.Context, pods []*corev1.Pod) error {
	began := r.Now()
	plan := NewPlan(pods)
	r.remove(ctx, plan, began)
	left := plan.Left()
	if left == 0 {
		r.printf("%d pods are gone after %s\n", len(pods), elapsed(r.Now().Sub(began)))
		return nil
	}
	why := "requests were rejected"
	if ctx.Err() != nil {
		why = "interrupted"
		if errors.Is(context.Cause(ctx), ErrTimeout) {
			why = ErrTimeout.Error()
		}
		_, _ = fmt.Fprintf(r.Messages, "%s; withdrawing the requests (Ctrl-C ends at once)\n", why)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	r.table(plan, r.withdraw(bounded, plan))
	return fmt.Errorf("%d of %d pods are left: %s", left, len(pods), why)
}

// sent is the answer to what was sent for a pod.
type sent struct {
	index  int
	answer Answer
}

// remove sends what the plan returns until it has ended, or the context has. No request is in flight when it
// returns.
func (r *Remover) remove(ctx context.Context, plan *Plan, began time.Time) {
	answers := make(chan sent, maxRequests)
	timer := time.NewTimer(0)
	defer timer.Stop()
	show := r.progress(plan, began)
	for !plan.Ended() && (ctx.Err() == nil || plan.InFlight()) {
		var wake <-chan time.Time
		if ctx.Err() == nil {
			index, verb, ok, wait := plan.Next(r.Now())
			if ok {
				show(index)
				pod := plan.Removals[index].Pod
				go func() { answers <- sent{index: index, answer: r.send(ctx, pod, verb)} }()
				continue
			}
			if wait > 0 {
				timer.Reset(wait)
				wake = timer.C
			}
		}
		done := ctx.Done()
		if ctx.Err() != nil {
			done = nil
		}
		select {
		case got := <-answers:
			plan.Answer(got.index, got.answer, r.Now())
			show(got.index)
		case <-wake:
		case <-done:
		}
	}
}

// send sends a request for a pod, or reads it.
func (r *Remover) send(ctx context.Context, pod Pod, verb Verb) Answer {
	if verb == Request {
		return r.API.Request(ctx, pod)
	}
	live, err := r.API.Get(ctx, pod)
	switch {
	case err != nil:
		return newAnswer(ctx, err)
	case live == nil:
		return Answer{Kind: Absent}
	case live.DeletionTimestamp != nil:
		return Answer{Kind: Admitted}
	default:
		return Answer{Kind: Present, Reason: "it was to be removed, and does not terminate"}
	}
}

// progress returns a function that prints a removal if it has changed.
func (r *Remover) progress(plan *Plan, began time.Time) func(index int) {
	shown := make([]string, len(plan.Removals))
	return func(index int) {
		removal := plan.Removals[index]
		state := string(removal.Phase)
		if removal.Reason != "" {
			state += ": " + removal.Reason
		}
		if state == shown[index] {
			return
		}
		shown[index] = state
		r.printf("%5s  %s/%s (%d of %d) %s\n", elapsed(r.Now().Sub(began)), removal.Namespace, removal.Name, index+1, len(plan.Removals), state)
	}
}

// withdraw withdraws the requests for the pods that are left, and returns by index what has become of each.
func (r *Remover) withdraw(ctx context.Context, plan *Plan) map[int]string {
	began := r.Now()
	ends, open := map[int]string{}, []int{}
	for i, removal := range plan.Removals {
		if removal.Sent && removal.Phase != Gone {
			open = append(open, i)
			ends[i] = fmt.Sprintf("not withdrawn, lapses within %s", elapsed(deferreddelete.MaxLapse))
		}
	}
	user, err := r.API.User(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(r.Messages, err)
		return ends
	}
	for {
		recorded := r.Now().Sub(began) >= recordedAfter
		var again []int
		for _, i := range open {
			end, ok := r.withdrawOne(ctx, plan.Removals[i].Pod, user, recorded)
			if ok {
				ends[i] = end
			} else {
				again = append(again, i)
			}
		}
		if open = again; len(open) == 0 {
			return ends
		}
		select {
		case <-time.After(withdrawInterval):
		case <-ctx.Done():
			return ends
		}
	}
}

// withdrawOne withdraws the request for a pod; false if it has to look again. recorded is whether the request would
// have left its record by now.
func (r *Remover) withdrawOne(ctx context.Context, pod Pod, user string, recorded bool) (string, bool) {
	live, err := r.API.Get(ctx, pod)
	if err != nil {
		return "", false
	}
	switch RequestRemains(pod, live, user) {
	case Removed:
		return "carried out", true
	case Nothing:
		return "none", recorded
	case Record:
	}
	err = r.API.Undo(ctx, live)
	switch {
	case err == nil:
		return "withdrawn", true
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("lapses within %s (you may not label the pod)", elapsed(RequestLapse(live))), true
	default:
		return "", false
	}
}

// table prints the pods that are left.
func (r *Remover) table(plan *Plan, requests map[int]string) {
	table := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "POD\tSTATE\tREQUEST\tREASON")
	for i, removal := range plan.Removals {
		if removal.Phase == Gone {
			continue
		}
		request := requests[i]
		if request == "" {
			request = "none"
		}
		_, _ = fmt.Fprintf(table, "%s/%s\t%s\t%s\t%s\n", removal.Namespace, removal.Name, removal.Phase, request, removal.Reason)
	}
	_ = table.Flush()
}

func (r *Remover) printf(format string, values ...any) { _, _ = fmt.Fprintf(r.Out, format, values...) }

// elapsed returns a duration to the second.
func elapsed(d time.Duration) string { return d.Round(time.Second).String() }
