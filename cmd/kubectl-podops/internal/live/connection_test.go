package live

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

// transport answers with one status or error.
type transport struct {
	status int
	err    error
}

func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	if t.err != nil {
		return nil, t.err
	}
	return &http.Response{StatusCode: t.status, Status: http.StatusText(t.status)}, nil
}

// TestConnection shows that a watch reports that the API server does not answer from the first request that fails to the
// first request that succeeds, and reports each of the two once.
func TestConnection(t *testing.T) {
	begin := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	now, changes := begin, 0
	c := &connection{now: func() time.Time { return now }, changed: func() { changes++ }}
	for second, step := range []struct {
		name    string
		answer  transport
		want    string
		changes int
	}{
		{"it answers", transport{status: http.StatusOK}, "", 0},
		{"a watch that is too old is an answer", transport{status: http.StatusGone}, "", 0},
		{"the verb ends a request", transport{err: context.Canceled}, "", 0},
		{"it is away", transport{err: errors.New("connection refused")},
			"no changes since 10:00:03: the API server does not answer the watch: connection refused", 1},
		{"it is still away", transport{err: errors.New("no route")},
			"no changes since 10:00:03: the API server does not answer the watch: no route", 1},
		{"it is back", transport{status: http.StatusOK}, "", 2},
		{"the credentials have expired", transport{status: http.StatusUnauthorized},
			"no changes since 10:00:06: the API server does not answer the watch: Unauthorized", 3},
		{"etcd is away", transport{status: http.StatusServiceUnavailable},
			"no changes since 10:00:06: the API server does not answer the watch: Service Unavailable", 3},
	} {
		now = begin.Add(time.Duration(second) * time.Second)
		if _, err := (observed{step.answer, c}).RoundTrip(&http.Request{}); !errors.Is(err, step.answer.err) { //nolint:bodyclose // There is no body.
			t.Errorf("%s: the transport returned %v", step.name, err)
		}
		got := ""
		if err := c.state(); err != nil {
			got = err.Error()
		}
		if got != step.want || changes != step.changes {
			t.Errorf("%s: got %q after %d changes, want %q after %d", step.name, got, changes, step.want, step.changes)
		}
	}
}
