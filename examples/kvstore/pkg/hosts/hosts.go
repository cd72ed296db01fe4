// Package hosts resolves the names of members: with the DNS, or with a file where the DNS
// does not have them.
package hosts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
)

// maxFileBytes bounds the file.
const maxFileBytes = 1 << 20

// ErrUnknown means that a name has no address at the moment: its pod does not exist.
var ErrUnknown = errors.New("unknown host")

// Resolver resolves names. The zero Resolver uses the DNS.
type Resolver struct {
	// File is in the format of /etc/hosts. It is read for each name, since the addresses
	// of pods change. Names that it lacks are unknown. Empty: the DNS resolves names.
	File string
}

// Lookup returns the addresses of a host, at least one. An address is its own.
func (r Resolver) Lookup(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	if r.File == "" {
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return addresses, nil
	}
	file, err := os.Open(r.File)
	if err != nil {
		return nil, fmt.Errorf("%w: opening the file of hosts: %w", ErrUnknown, err)
	}
	defer file.Close()
	addresses, err := find(io.LimitReader(file, maxFileBytes), host)
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrUnknown, r.File, err)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%w: %s is not in %s", ErrUnknown, host, r.File)
	}
	return addresses, nil
}

// find returns the addresses of a host in a file of hosts, in its order.
func find(file io.Reader, host string) ([]string, error) {
	var addresses []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) > 1 && slices.Contains(words[1:], host) {
			addresses = append(addresses, words[0])
		}
	}
	return addresses, lines.Err()
}

// Dial connects to an address of the form host:port. The addresses of the host are tried in
// order.
func (r Resolver) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", address, err)
	}
	addresses, err := r.Lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	var (
		dialer net.Dialer
		errs   []error
	)
	for _, ip := range addresses {
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(ip, port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
