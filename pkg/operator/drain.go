package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// errDraining is returned to readiness probes once the process has been signalled to end.
var errDraining = errors.New("the manager is shutting down")

// errDidNotEnd reports a manager that still starts or runs some time after its context has ended.
var errDidNotEnd = fmt.Errorf("the manager does not end within %v", endPatience)

// drain ends a manager in two steps. After the signal it is not ready any more, and otherwise
// works as before: it responds to requests, and the leader leads. After a delay, in which the
// endpoints are removed, everything stops.
type drain struct {
	signalled <-chan struct{}
	ended     context.Context
}

// newDrain returns the drain of a manager that ctx signals to end.
func newDrain(ctx context.Context, delay time.Duration) drain {
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-ctx.Done()
		if delay > 0 {
			<-time.After(delay)
		}
		end()
	}()
	return drain{signalled: ctx.Done(), ended: ended}
}

// endPatience is how long a manager may take to end: the time that controller-runtime has its parts end in, and
// some more. With Options.Serving.ShutdownDelay it is below the terminationGracePeriodSeconds of the Deployment.
const endPatience = 30*time.Second + 2*time.Second

// run starts a manager and returns when it has ended, with its error. A manager whose caches are not filled, for
// example without rights to list pods, does not end by its context; run returns an error after endPatience.
func (d drain) run(start func(context.Context) error) error {
	ran := make(chan error, 1)
	go func() { ran <- start(d.ended) }()
	var err error
	select {
	case err = <-ran:
	case <-d.ended.Done():
		select {
		case err = <-ran:
		case <-time.After(endPatience):
			err = errDidNotEnd
		}
	}
	if err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
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
