package runtimeapi

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxSocketPath is the maximum length of a socket's path on Linux.
const maxSocketPath = 107

// Endpoint is the address of a Runtime API. It is comparable.
type Endpoint struct {
	Network string // "unix" or "tcp"
	Address string // a path, or host and port
}

// String returns the form that ParseEndpoint parses.
func (e Endpoint) String() string { return e.Network + ":" + e.Address }

// ParseEndpoint parses "unix:/run/haproxy/admin.sock" or "tcp:10.0.0.4:9999"; without a
// prefix, a text that starts with a slash is a path. Paths must be absolute and clean,
// ports numbers. Two texts of the same address give one Endpoint, except for host names.
func ParseEndpoint(text string) (Endpoint, error) {
	network, address, hasNetwork := strings.Cut(text, ":")
	if !hasNetwork || (network != "unix" && network != "tcp") {
		network, address = "tcp", text
		if strings.HasPrefix(text, "/") {
			network = "unix"
		}
	}
	if network == "unix" {
		return parsePath(text, address)
	}
	return parseHostPort(text, address)
}

func parsePath(text, address string) (Endpoint, error) {
	switch {
	case !path.IsAbs(address) || path.Clean(address) != address || strings.ContainsRune(address, 0):
		return Endpoint{}, fmt.Errorf("%q is not an absolute path without . and .., e.g. unix:/run/haproxy/admin.sock", clip(text))
	case len(address) > maxSocketPath:
		return Endpoint{}, fmt.Errorf("%q is longer than the %d bytes that the path of a socket may have", clip(text), maxSocketPath)
	}
	return Endpoint{Network: "unix", Address: address}, nil
}

func parseHostPort(text, address string) (Endpoint, error) {
	host, digits, err := net.SplitHostPort(address)
	if err == nil && (host == "" || len(host) > 253 || strings.ContainsAny(host, " \t\r\n/;")) {
		err = fmt.Errorf("%q is not a host", clip(host))
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q is neither tcp:<host>:<port> nor unix:<path>: %w", clip(text), err)
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 {
		return Endpoint{}, fmt.Errorf("%q: the port must be a number from 1 to 65535", clip(text))
	}
	return Endpoint{Network: "tcp", Address: net.JoinHostPort(host, strconv.FormatUint(port, 10))}, nil
}

// maxShown bounds a value in a message, in bytes.
const maxShown = 200

func clip(value string) string { return text.Cut(value, maxShown) }
