package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
)

const (
	defaultCheckTimeout = 10 * time.Second
	attemptTimeout      = 4 * time.Second
	attemptInterval     = 250 * time.Millisecond
)

// check returns nil when a member is healthy and has the version.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		resolver hosts.Resolver
		target   string
		version  string
		timeout  time.Duration
	)
	flags := flag.NewFlagSet("kvstore check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&target, "url", "", "`URL` of the member, http://HOST:PORT")
	flags.StringVar(&version, "version", "", "version that the member has to report; default: any")
	flags.DurationVar(&timeout, "timeout", defaultCheckTimeout, "how long the check is repeated until it succeeds")
	resolverVar(flags, &resolver)
	if err := parse(flags, args); err != nil {
		return err
	}
	host, port, err := hostOf(target)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	return checkUntil(ctx, client.New(resolver, port), host, version, stdout)
}

// checkUntil repeats the check until it succeeds or ctx ends. The error is the error of the
// last check that was not cut short by the end of ctx, if any.
func checkUntil(ctx context.Context, c *client.Client, host, version string, stdout io.Writer) error {
	var err error
	for {
		last := checkOnce(ctx, c, host, version)
		if last == nil {
			fmt.Fprintf(stdout, "%s is healthy\n", host)
			return nil
		}
		if err == nil || ctx.Err() == nil {
			err = last
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w", host, err)
		case <-time.After(attemptInterval):
		}
	}
}

func checkOnce(ctx context.Context, c *client.Client, host, version string) error {
	ctx, stop := context.WithTimeout(ctx, attemptTimeout)
	defer stop()
	a, err := c.Check(ctx, host, "/healthz")
	if err != nil {
		return err
	}
	if version != "" && a.Version != version {
		return fmt.Errorf("it has version %q, not %q", a.Version, version)
	}
	return nil
}

// hostOf returns host and port of the URL of a member.
func hostOf(text string) (host string, port int, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", 0, fmt.Errorf("reading the URL of the member: %w", err)
	}
	host, number, err := net.SplitHostPort(u.Host)
	if err != nil || u.Scheme != "http" {
		return "", 0, errors.New("the URL of a member is http://HOST:PORT")
	}
	port, err = strconv.Atoi(number)
	if err != nil {
		return "", 0, fmt.Errorf("reading the port of the member: %w", err)
	}
	return host, port, nil
}
