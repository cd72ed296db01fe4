package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const (
	// defaultTimeout bounds one command. HAProxy answers in microseconds; what takes
	// longer is a host that is gone.
	defaultTimeout = 5 * time.Second

	// atOnce is how many commands one client has under way. HAProxy takes 10 connections
	// to a stats socket unless told otherwise, and people want to look, too.
	atOnce = 4

	// maxAnswerBytes fits more than ten thousand servers of one backend.
	maxAnswerBytes = 16 << 20
)

// Client talks to one Runtime API. It is safe for concurrent use.
type Client struct {
	endpoint Endpoint
	timeout  time.Duration
	dialer   net.Dialer
	turns    chan struct{}
}

// New makes a client. A timeout of 0 is 5 seconds for each command. Nothing is dialled yet.
func New(endpoint Endpoint, timeout time.Duration) *Client {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &Client{endpoint: endpoint, timeout: timeout, turns: make(chan struct{}, atOnce)}
}

// run sends one command and returns the whole answer. The command must be made of
// validated words only: a newline or a semicolon in it would be a second command.
func (c *Client) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a turn at %s: %w", c.endpoint, ctx.Err())
	}
	answer, err := c.exchange(ctx, command)
	if err != nil {
		// A deadline of the connection is the deadline of the context; say which it was.
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return "", fmt.Errorf("sending %q to HAProxy at %s: %w", command, c.endpoint, err)
	}
	return answer, nil
}

func (c *Client) exchange(ctx context.Context, command string) (string, error) {
	conn, err := c.dialer.DialContext(ctx, c.endpoint.Network, c.endpoint.Address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	// Closing unblocks reads and writes when the context ends, for whatever reason.
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
		return "", fmt.Errorf("the answer is longer than %d bytes", maxAnswerBytes)
	case len(answer) == 0:
		// HAProxy always sends a newline at least: it closed before it understood.
		return "", io.ErrUnexpectedEOF
	}
	return string(answer), nil
}

// expect runs a command whose answer to success is known, and takes every other answer
// for an error: HAProxy has no codes, only text.
func (c *Client) expect(ctx context.Context, want, command string) error {
	answer, err := c.run(ctx, command)
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(answer); text != want {
		return refusal(command, text)
	}
	return nil
}
