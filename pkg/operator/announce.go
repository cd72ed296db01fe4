package operator

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// announceInterval is the interval at which an announcement checks whether the manager is ready.
const announceInterval = 200 * time.Millisecond

// announcement logs once that rules are enforced: this replica leads, and is ready. For a user
// who starts a manager in a shell it is the last line of the start.
type announcement struct {
	log    logr.Logger
	checks []healthz.Checker
	where  string // the address at which API servers find the webhooks
}

// Start implements manager.Runnable. The manager starts it on the leader.
func (a announcement) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, announceInterval, true, func(ctx context.Context) (bool, error) {
		return a.isReady(ctx), nil
	})
	if err == nil {
		a.log.Info("ready: rules are enforced", "webhooks", a.where)
	}
	return nil // The end of the manager ends the wait too.
}

// isReady reports whether every check of /readyz passes. It calls them in this process: the
// request is the argument of a healthz.Checker, and goes to no server.
func (a announcement) isReady(ctx context.Context) bool {
	request := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/readyz"}}).WithContext(ctx)
	return !slices.ContainsFunc(a.checks, func(check healthz.Checker) bool { return check(request) != nil })
}
