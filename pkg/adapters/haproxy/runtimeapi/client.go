package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// defaultTimeout bounds one command. HAProxy answers in microseconds; a host that takes
	// longer is down.
	defaultTimeout = 5 * time.Second

	// atOnce is the number of commands that one client runs at once. HAProxy accepts 10
	// connections to a stats socket by default, and administrators need some of them.
	atOnce = 4

	// tries is the number of times that a command is sent when its connection
	// fails. Commands are idempotent, so sending a command twice is safe.
	tries = 4

	// firstPause is the pause between the first two tries, doubled between the next two.
	firstPause = 10 * time.Millisecond

	// maxAnswerBytes fits more than ten thousand servers of one backend.
	maxAnswerBytes = 16 << 20
)

// Client is a client of one Runtime API. It is safe for concurrent use.
type Client struct {
	endpoint Endpoint
	timeout  time.Duration
	dialer   net.Dialer
	turns    chan struct{}
}

// New returns a client. A timeout of 0 is 5 seconds for each command. It does not connect
// yet.
func New(endpoint Endpoint, timeout time.Duration) *Client {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &Client{endpoint: endpoint, timeout: timeout, turns: make(chan struct{}, atOnce)}
}

// run sends one command and returns the whole answer. The command must consist of validated
// words only: a newline or a semicolon in it would be a second command.
func (c *Client) run(ctx context.Context, command string) (string, error) {
	answer, _, err := c.send(ctx, command)
	return answer, err
}

// send is run, and reports whether the command may have been executed more than once: it is
// sent again when a connection fails before the answer arrives.
func (c *Client) send(ctx context.Context, command string) (answer string, repeated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return "", false, fmt.Errorf("waiting for a turn at %s: %w", c.endpoint, ctx.Err())
	}
	try, pauses := 0, wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: tries}
	// The error of a context that ends in a pause is returned below.
	_ = pauses.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) {
		try++
		answer, err = c.exchange(ctx, command)
		return err == nil || try == tries || errors.Is(err, errTooLong), nil
	})
	if err == nil {
		return answer, try > 1, nil
	}
	// A deadline of the connection is the deadline of the context; the error names the
	// context's.
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return "", true, fmt.Errorf("sending %q to HAProxy at %s: %w", command, c.endpoint, err)
}

// errTooLong is the error of an answer above maxAnswerBytes, which is not retried.
var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswerBytes)

func (c *Client) exchange(ctx context.Context, command string) (string, error) {
	conn, err := c.dialer.DialContext(ctx, c.endpoint.Network, c.endpoint.Address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	// Closing unblocks reads and writes when the context ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswerBytes+1))
	switch {
	case err != nil:
		return "", err
	case len(answer) > maxAnswerBytes:
		return "", errTooLong
	case len(answer) == 0:
		// HAProxy always sends at least a newline: it closed the connection before it read
		// the command.
		return "", io.ErrUnexpectedEOF
	}
	return string(answer), nil
}

// expectNothing runs a command that HAProxy answers with an empty line, and returns an
// error for every other answer: HAProxy has no error codes, only text.
func (c *Client) expectNothing(ctx context.Context, command string) error {
	return c.expectOr(ctx, "", nil, command)
}

// expectOr runs a command that HAProxy answers with the text want. done is the error of a
// command that was executed before: after a failed connection it counts as a success.
func (c *Client) expectOr(ctx context.Context, want string, done error, command string) error {
	answer, repeated, err := c.send(ctx, command)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(answer)
	if text == want {
		return nil
	}
	err = refusal(command, text)
	if repeated && done != nil && errors.Is(err, done) {
		return nil
	}
	return err
}
