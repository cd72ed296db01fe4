package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// errDraining is returned to readiness probes once the process has been signalled to end.
var errDraining = errors.New("the manager is shutting down")

// drain ends a manager in two steps. After the signal it is not ready any more, and otherwise
// works as before: it responds to requests, and the leader leads. After a delay, in which the
// endpoints are removed, everything stops.
type drain struct {
	signalled <-chan struct{}
	ended     context.Context
}

// newDrain returns the drain of a manager that ctx signals to end.
func newDrain(ctx context.Context, delay time.Duration, clk clock.Clock) drain {
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-ctx.Done()
		if delay > 0 {
			<-clk.After(delay)
		}
		end()
	}()
	return drain{signalled: ctx.Done(), ended: ended}
}

// begun reports whether the manager has been signalled to end.
func (d drain) begun() bool {
	select {
	case <-d.signalled:
		return true
	default:
		return false
	}
}

// Ready implements a readiness check, which fails after the signal to end.
func (d drain) Ready(*http.Request) error {
	if d.begun() {
		return errDraining
	}
	return nil
}
