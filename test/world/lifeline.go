package world

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// lifeline is the connection of a process: it ends with the process, requests in flight included.
type lifeline struct {
	next  http.RoundTripper
	alive context.Context
	muted <-chan struct{} // closed shortly before the process ends
}

// muting is the time from the last event of watches that a process receives until its end. The watches of metadata
// (watch.Filter) lose a goroutine for each event that is underway when their reader ends, and a bubble with lost
// goroutines fails.
const muting = 50 * time.Millisecond

var errDead = errors.New("the process of the client has ended")

// RoundTrip implements http.RoundTripper.
func (l lifeline) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.alive.Err() != nil {
		return nil, errDead
	}
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(l.alive, cancel)
	response, err := l.next.RoundTrip(r.WithContext(ctx))
	if err == nil && r.URL.Query().Get("watch") != "" {
		response.Body = &mutedBody{response.Body, l.muted, ctx}
	}
	return response, err
}

// mutedBody is the body of a watch, which delivers nothing once it is muted, until it ends.
type mutedBody struct {
	io.ReadCloser
	muted <-chan struct{}
	ended context.Context
}

// Read implements io.Reader.
func (b *mutedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.muted:
		<-b.ended.Done()
		return 0, io.EOF
	default:
		return n, err
	}
}
