package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// connection has whether the API server answers the requests of the watches: informers repeat requests that
// fail, and their objects are then as old as the last answer.
type connection struct {
	now     func() time.Time
	changed func()

	mu    sync.Mutex
	since time.Time // zero while the API server answers
	err   error
}

// observed is a transport whose answers a connection observes.
type observed struct {
	next       http.RoundTripper
	connection *connection
}

// RoundTrip sends a request.
func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	o.connection.observe(response, err)
	return response, err
}

func (c *connection) observe(response *http.Response, err error) {
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		c.lost(err)
	case response.StatusCode >= http.StatusInternalServerError, response.StatusCode == http.StatusUnauthorized,
		response.StatusCode == http.StatusForbidden:
		c.lost(errors.New(response.Status))
	default:
		c.answered()
	}
}

func (c *connection) lost(err error) {
	c.mu.Lock()
	first := c.since.IsZero()
	if first {
		c.since = c.now()
	}
	c.err = err
	c.mu.Unlock()
	if first {
		c.changed()
	}
}

func (c *connection) answered() {
	c.mu.Lock()
	was := c.since
	c.since, c.err = time.Time{}, nil
	c.mu.Unlock()
	if !was.IsZero() {
		c.changed()
	}
}

// state returns an error while the API server does not answer.
func (c *connection) state() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return nil
	}
	return fmt.Errorf("no changes since %s: the API server does not answer the watch: %w", c.since.Format(time.TimeOnly), c.err)
}
