package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Kind says how requests use connections.
type Kind string

// The kinds of requests.
const (
	KeepAlive Kind = "keep-alive"             // one connection for many requests
	OneShot   Kind = "connection-per-request" // and "Connection: close"
)

// Outcome is what became of one request.
type Outcome struct {
	Kind    Kind
	At      time.Time     // when it was due
	Latency time.Duration // until the last byte, or until it failed
	Path    string
	Status  int    // 0: no answer
	Pod     string // that answered; empty: none has said that it did
	Server  string // of the load balancer, where it says so
	Err     error  // nil: the whole answer of a pod has come
}

// What can become of a request that fails, beside statuses.
var (
	ErrRefused   = errors.New("connection refused")
	ErrReset     = errors.New("connection reset")
	ErrClosed    = errors.New("connection closed before the answer")
	ErrTruncated = errors.New("answer cut off")
	ErrTimeout   = errors.New("timed out")
	ErrBody      = errors.New("body of nobody")
	ErrStatus    = errors.New("status")
)

// cause is the one of a few words that a failure is counted under, so that what is kept
// of failures stays small.
func (o Outcome) cause() string {
	if errors.Is(o.Err, ErrStatus) {
		return fmt.Sprintf("%s %d", ErrStatus, o.Status)
	}
	for _, known := range []error{ErrRefused, ErrReset, ErrClosed, ErrTruncated, ErrTimeout, ErrBody} {
		if errors.Is(o.Err, known) {
			return known.Error()
		}
	}
	return "other"
}

// classify wraps an error of a connection into one of the above. inBody says that the
// head of the answer had come.
func classify(err error, inBody bool) error {
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	case inBody:
		return fmt.Errorf("%w: %w", ErrTruncated, err)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: %w", ErrReset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	default:
		return err
	}
}

// Log writes every outcome as a line of tab-separated values: time, kind, path, status,
// latency in microseconds, pod, server, error. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	out *bufio.Writer
	err error // the first of writing
}

// NewLog returns a log that writes to out. Close writes what is left.
func NewLog(out io.Writer) *Log { return &Log{out: bufio.NewWriterSize(out, 1<<16)} }

// Record writes one line.
func (l *Log) Record(o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := "-"
	if o.Err != nil {
		text = fmt.Sprintf("%q", o.Err.Error())
	}
	_, err := fmt.Fprintf(l.out, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", o.At.UTC().Format(time.RFC3339Nano), o.Kind, o.Path, o.Status,
		o.Latency.Microseconds(), orDash(o.Pod), orDash(o.Server), text)
	if l.err == nil {
		l.err = err
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Close writes what is left, and returns the first error of writing.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.out.Flush(); err != nil && l.err == nil {
		l.err = err
	}
	if l.err != nil {
		return fmt.Errorf("writing outcomes: %w", l.err)
	}
	return nil
}
