package haproxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
)

// Allowed holds the Runtime APIs that Services may name. Without it, a user who may edit a
// Service could make the manager connect to any host that the manager can reach. The zero
// value allows nothing.
type Allowed struct {
	endpoints []runtimeapi.Endpoint
	folders   []string // with a slash at the end
	networks  []netip.Prefix
}

// ParseAllowed parses a list, separated by commas: Runtime APIs as Services name them, a
// folder of sockets (unix:/run/haproxy/), or a network (10.0.4.0/24), any port of it.
func ParseAllowed(list string) (Allowed, error) {
	var allowed Allowed
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			allowed.networks = append(allowed.networks, prefix.Masked())
			continue
		}
		folder, isFolder := strings.CutSuffix(entry, "/")
		endpoint, err := runtimeapi.ParseEndpoint(folder)
		switch {
		case err != nil || isFolder && endpoint.Network != "unix":
			return Allowed{}, fmt.Errorf("%q is neither tcp:<host>:<port>, unix:<path>, unix:<folder>/ nor a network", entry)
		case isFolder:
			allowed.folders = append(allowed.folders, endpoint.Address+"/")
		default:
			allowed.endpoints = append(allowed.endpoints, endpoint)
		}
	}
	return allowed, nil
}

// check returns an error for a Runtime API that is not allowed. It never resolves a name:
// only the same name can allow it.
func (a Allowed) check(endpoint runtimeapi.Endpoint) error {
	if slices.Contains(a.endpoints, endpoint) {
		return nil
	}
	if endpoint.Network == "unix" {
		if slices.ContainsFunc(a.folders, func(folder string) bool { return strings.HasPrefix(endpoint.Address, folder) }) {
			return nil
		}
		return a.refusal(endpoint)
	}
	host, _, err := net.SplitHostPort(endpoint.Address)
	if err != nil {
		return a.refusal(endpoint)
	}
	address, err := netip.ParseAddr(host)
	if err != nil || !slices.ContainsFunc(a.networks, func(network netip.Prefix) bool { return network.Contains(address.Unmap()) }) {
		return a.refusal(endpoint)
	}
	return nil
}

func (Allowed) refusal(endpoint runtimeapi.Endpoint) error {
	return fmt.Errorf("the manager may not talk to %s: an administrator can allow it with --haproxy-allow", endpoint)
}
