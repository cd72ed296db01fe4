package runtimeapi

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// MaxWeight is the largest weight of a server. 0 takes no new traffic.
const MaxWeight = 256

// State is the administrative state of a server.
type State string

// The states of a server.
const (
	// StateReady takes traffic, once its check, if any, passes.
	StateReady State = "ready"
	// StateDrain takes no new traffic except from sticky sessions, finishes its
	// requests, and is still checked.
	StateDrain State = "drain"
	// StateMaint takes no traffic at all and is not checked.
	StateMaint State = "maint"
)

// NewServer is a server to add. It is in maintenance until its state is set.
type NewServer struct {
	Name    string
	Address netip.AddrPort
	Weight  int

	// CheckEvery is the interval at which HAProxy checks the server, as its backend
	// configures ("option httpchk" and the like). 0: it does not check.
	CheckEvery time.Duration
}

// checkName accepts the names that HAProxy allows for a proxy or a server. They contain no
// character that ends a word or a command.
func checkName(what, name string) error {
	const longest = 400
	allowed := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.:-", r)
	}
	if name == "" || len(name) > longest || strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }) {
		return fmt.Errorf("%s %q: want 1 to %d letters, digits, dots, colons, dashes and underscores", what, clip(name), longest)
	}
	return nil
}

// CheckBackend returns an error for an invalid name of a backend.
func CheckBackend(name string) error { return checkName("backend", name) }

// CheckServer returns an error for an invalid name of a server.
func CheckServer(name string) error { return checkName("server", name) }

func target(backend, server string) (string, error) {
	if err := CheckBackend(backend); err != nil {
		return "", err
	}
	if err := CheckServer(server); err != nil {
		return "", err
	}
	return backend + "/" + server, nil
}

// Add adds a server, in maintenance and not yet checked. It returns ErrExists or
// ErrNoBackend.
func (c *Client) Add(ctx context.Context, backend string, server NewServer) error {
	name, err := target(backend, server.Name)
	if err != nil {
		return err
	}
	if err := checkAddress(server.Address); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	if err := checkWeight(server.Weight); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	command := fmt.Sprintf("add server %s %s weight %d", name, server.Address, server.Weight)
	if server.CheckEvery > 0 {
		command += " check inter " + strconv.FormatInt(max(server.CheckEvery.Milliseconds(), 1), 10) + "ms"
	}
	return c.expectOr(ctx, "New server registered.", ErrExists, command)
}

// SetState sets the state of a server. Setting it again changes nothing. It returns
// ErrNoServer.
func (c *Client) SetState(ctx context.Context, backend, server string, state State) error {
	name, err := target(backend, server)
	if err != nil {
		return err
	}
	switch state {
	case StateReady, StateDrain, StateMaint:
		return c.expectNothing(ctx, fmt.Sprintf("set server %s state %s", name, state))
	default:
		return fmt.Errorf("server %s: %q is not a state", name, clip(string(state)))
	}
}

// SetWeight changes the share of the traffic that a server gets. It returns ErrNoServer.
func (c *Client) SetWeight(ctx context.Context, backend, server string, weight int) error {
	name, err := target(backend, server)
	if err != nil {
		return err
	}
	if err := checkWeight(weight); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	return c.expectNothing(ctx, fmt.Sprintf("set server %s weight %d", name, weight))
}

// SetAddress changes the address of a server, which should be in maintenance. It returns
// ErrNoServer.
func (c *Client) SetAddress(ctx context.Context, backend, server string, address netip.AddrPort) error {
	name, err := target(backend, server)
	if err != nil {
		return err
	}
	if err := checkAddress(address); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	command := fmt.Sprintf("set server %s addr %s port %d", name, address.Addr(), address.Port())
	answer, err := c.run(ctx, command)
	if err != nil {
		return err
	}
	// HAProxy answers with a sentence that names the change, or states that no change was needed.
	if text := strings.TrimSpace(answer); !strings.Contains(text, "changed from") && !strings.Contains(text, "no need to change") {
		return refusal(command, text)
	}
	return nil
}

// EndSessions cuts the requests of a server. It returns ErrNoServer.
func (c *Client) EndSessions(ctx context.Context, backend, server string) error {
	name, err := target(backend, server)
	if err != nil {
		return err
	}
	return c.expectNothing(ctx, "shutdown sessions server "+name)
}

// EnableCheck starts the checks of a server that was added with CheckEvery. It returns
// ErrNoServer.
func (c *Client) EnableCheck(ctx context.Context, backend, server string) error {
	name, err := target(backend, server)
	if err != nil {
		return err
	}
	return c.expectNothing(ctx, "enable health "+name)
}

// Delete removes a server that is in maintenance. It returns ErrBusy or ErrNoServer.
func (c *Client) Delete(ctx context.Context, backend, server string) error {
	name, err := target(backend, server)
	if err != nil {
		return err
	}
	return c.expectOr(ctx, "Server deleted.", ErrNoServer, "del server "+name)
}

func checkAddress(address netip.AddrPort) error {
	if !address.IsValid() || address.Port() == 0 || address.Addr().Zone() != "" {
		return fmt.Errorf("%q is not an address with a port", address)
	}
	return nil
}

func checkWeight(weight int) error {
	if weight < 0 || weight > MaxWeight {
		return fmt.Errorf("weight is %d, want 0 to %d", weight, MaxWeight)
	}
	return nil
}
