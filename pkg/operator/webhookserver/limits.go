package webhookserver

import (
	"errors"
	"fmt"
	"time"
)

// Limits bound the resources of all clients together, and those of one source address.
type Limits struct {
	// Connections that are open at once. An API server opens one HTTP/2 connection for
	// each webhook, seven in all. Each takes up to 200 KiB.
	Connections          int
	ConnectionsPerSource int

	// ReviewBytes is the largest review: the API server accepts objects of up to 3 MiB, and
	// an update contains two of them.
	ReviewBytes int64

	// PendingBytes bounds all reviews that are read, wait or run. A review takes about seven
	// times its size until its response: the body, its copy, the two objects in it, and their
	// decoded forms.
	PendingBytes          int64
	PendingBytesPerSource int64

	// Running reviews at once, separately for Slow and all other paths. Others wait.
	Running int

	// RunningWaits is the number of reviews at once on Waiting paths; 0 is for a server without
	// such paths.
	RunningWaits int

	// WaitingPerSource is the number of reviews that may wait; the server responds to more with
	// 503.
	WaitingPerSource int

	// ConnectionsPerSecond is the rate of new connections from a source that is not exempt (Server.Exempt).
	// A connection beyond it is closed: its TLS handshake takes about a millisecond of CPU time.
	ConnectionsPerSecond int

	// ReviewsPerSecond and BytesPerSecond are the rates of a source that is neither verified nor exempt.
	// A review beyond them waits.
	ReviewsPerSecond int
	BytesPerSecond   int64

	// ReadTimeout is for a TLS handshake, and for a request from its first byte to its last.
	// ReviewTimeout is for a whole review; the timeout of the API server applies if it is
	// shorter. IdleTimeout is for connections without a request.
	ReadTimeout   time.Duration
	ReviewTimeout time.Duration
	IdleTimeout   time.Duration
}

// DefaultLimits returns limits that keep the server below 400 MiB under every load.
func DefaultLimits() Limits {
	return Limits{
		Connections: 400, ConnectionsPerSource: 100,
		ReviewBytes:  7 << 20,
		PendingBytes: 32 << 20, PendingBytesPerSource: 16 << 20,
		Running: 32, RunningWaits: 256, WaitingPerSource: 1000,
		ConnectionsPerSecond: 25,
		ReviewsPerSecond:     500, BytesPerSecond: 8 << 20,
		ReadTimeout: 5 * time.Second, ReviewTimeout: 15 * time.Second,
		// The API server closes a connection after 90 s, and must be the first: it may send a review on one that is being closed.
		IdleTimeout: 2 * time.Minute,
	}
}

// pacing returns the rates of a source.
func (l Limits) pacing() pacing {
	return pacing{
		connections: float64(l.ConnectionsPerSecond), reviews: float64(l.ReviewsPerSecond), bytes: float64(l.BytesPerSecond),
	}
}

// overheadBytes is the size of a review besides its body: goroutine, headers and
// buffers.
const overheadBytes = 8 << 10

const (
	// maxHeaderBytes bounds the headers, of which an API server sends a few hundred bytes.
	maxHeaderBytes = 16 << 10

	// receiveBuffer is the number of bytes that an HTTP/2 connection may send ahead of the reader.
	receiveBuffer = 128 << 10

	// maxStreams bounds the simultaneous requests of one HTTP/2 connection. A client with more
	// opens another connection.
	maxStreams = 100
)

// Validate returns an error for limits that contradict each other.
func (l Limits) Validate() error {
	if l.ConnectionsPerSource < 1 || l.Connections < l.ConnectionsPerSource {
		return fmt.Errorf("%d connections, of which %d for each source", l.Connections, l.ConnectionsPerSource)
	}
	if l.ReviewBytes < 1 || l.PendingBytesPerSource < l.ReviewBytes+overheadBytes || l.PendingBytes < l.PendingBytesPerSource {
		return fmt.Errorf("%d bytes pending, %d for each source, do not fit a review of %d bytes",
			l.PendingBytes, l.PendingBytesPerSource, l.ReviewBytes)
	}
	if l.Running < 1 || l.RunningWaits < 0 || l.WaitingPerSource < 1 {
		return errors.New("no review may run or wait")
	}
	if l.ConnectionsPerSecond < 1 || l.ReviewsPerSecond < 1 || l.BytesPerSecond < 1 {
		return fmt.Errorf("%d connections, %d reviews and %d bytes a second", l.ConnectionsPerSecond, l.ReviewsPerSecond, l.BytesPerSecond)
	}
	if l.ReadTimeout <= 0 || l.ReviewTimeout <= 0 || l.IdleTimeout <= 0 {
		return errors.New("timeouts must be more than 0")
	}
	return nil
}
