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

// Kind is how requests use connections.
type Kind string

// The kinds of requests.
const (
	KeepAlive Kind = "keep-alive"             // one connection for many requests
	OneShot   Kind = "connection-per-request" // and "Connection: close"
)

// Outcome is the outcome of one request.
type Outcome struct {
	Kind    Kind
	At      time.Time     // when it was due
	Latency time.Duration // until the last byte, or until it failed
	Path    string
	Status  int    // 0: no answer
	Pod     string // that answered; empty: the answer names no pod
	Server  string // at the load balancer, if the answer names it
	Err     error  // nil: the whole answer of a pod has arrived
}

// Failures of requests, besides statuses.
var (
	ErrRefused   = errors.New("connection refused")
	ErrReset     = errors.New("connection reset")
	ErrClosed    = errors.New("connection closed before the answer")
	ErrTruncated = errors.New("answer cut off")
	ErrTimeout   = errors.New("timed out")
	ErrBody      = errors.New("body of no pod")
	ErrStatus    = errors.New("status")
)

// cause returns the cause under which a failure is counted; the number of causes is small.
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

// classify wraps an error of a connection into one of the above. inBody is true after the
// head of the answer.
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
	err error // the first write error
}

// NewLog returns a log that writes to out. Close flushes it.
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

// Close flushes the log, and returns the first write error.
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
