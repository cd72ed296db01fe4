package webhookclient

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Guard decides which addresses rules may reach. Private networks are allowed, since services run
// in them; the node itself, link-local addresses and the metadata services of clouds are not.
//
// The guard checks the address that is about to be dialled, after the name was resolved: a name
// that resolves to another address at the second lookup gains nothing.
type Guard struct {
	// AllowCIDRs are addresses that may be reached although they are forbidden by default.
	AllowCIDRs []netip.Prefix

	// Cluster returns the addresses of the cluster itself, which are forbidden, too; nil: no
	// further address is.
	Cluster Cluster

	// AllowHosts are hosts, as URLs have them and without a port, that may be reached at any
	// address.
	AllowHosts []string
}

// Cluster has the addresses of nodes and the API server.
type Cluster interface {
	// Owner returns the role of an address in the cluster, such as "of a node of the cluster"; ""
	// for all others. An error means that the addresses are not known yet.
	Owner(address netip.Addr) (string, error)
}

// forbidden returns the forbidden addresses that netip has no method for, each with the reason.
func forbidden() []struct {
	prefix netip.Prefix
	why    string
} {
	return []struct {
		prefix netip.Prefix
		why    string
	}{
		{netip.MustParsePrefix("0.0.0.0/8"), "this host"},
		{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
		{netip.MustParsePrefix("fec0::/10"), "site-local"},
		// The IPv4 address inside it depends on the network.
		{netip.MustParsePrefix("64:ff9b:1::/48"), "a NAT64 prefix of the local network"},
		{netip.MustParsePrefix("100.100.100.200/32"), "a metadata service"},
		{netip.MustParsePrefix("168.63.129.16/32"), "a metadata service"},
		{netip.MustParsePrefix("192.0.0.192/32"), "a metadata service"},
		{netip.MustParsePrefix("fd00:ec2::254/128"), "a metadata service"},
		{netip.MustParsePrefix("fd20:ce::254/128"), "a metadata service"},
	}
}

// mayNotReach is the end of messages about forbidden addresses, with the flags that allow them.
const mayNotReach = "which webhook rules and drain endpoints may not reach: an administrator can allow it with " +
	"--rule-webhook-allow-cidr or --rule-webhook-allow-host"

// Check returns a *Failure of ClassAddressForbidden if rules may not reach an address, and of
// ClassInternal if that is not known yet.
func (g Guard) Check(address netip.Addr) error {
	address = address.WithZone("")
	for _, form := range []netip.Addr{address, address.Unmap()} {
		if slices.ContainsFunc(g.AllowCIDRs, func(prefix netip.Prefix) bool { return prefix.Contains(form) }) {
			return nil
		}
	}
	if why := whyForbidden(address); why != "" {
		return fail(ClassAddressForbidden, "address %s is %s, %s", address, why, mayNotReach)
	}
	return g.checkCluster(address)
}

// checkCluster rejects the addresses of the cluster itself, in each of their forms.
func (g Guard) checkCluster(address netip.Addr) error {
	if g.Cluster == nil {
		return nil
	}
	forms := []netip.Addr{address.Unmap()}
	if inner, _, has := embedded(address); has {
		forms = append(forms, inner)
	}
	for _, form := range forms {
		owner, err := g.Cluster.Owner(form)
		if err != nil {
			return fail(ClassInternal, "the addresses of the cluster, which rules may not reach, are not known: %v", err)
		}
		if owner != "" {
			return fail(ClassAddressForbidden, "address %s is %s, %s", address, owner, mayNotReach)
		}
	}
	return nil
}

// whyForbidden returns why an address is forbidden; "" for an allowed address.
func whyForbidden(address netip.Addr) string {
	switch {
	case !address.IsValid():
		return "not an address"
	case address.IsUnspecified():
		return "unspecified"
	case address.IsLoopback():
		return "a loopback address"
	case address.IsLinkLocalUnicast(), address.IsLinkLocalMulticast(), address.IsInterfaceLocalMulticast():
		return "link-local"
	case address.IsMulticast():
		return "a multicast address"
	}
	for _, entry := range forbidden() {
		if entry.prefix.Contains(address) {
			return entry.why
		}
	}
	if inner, form, has := embedded(address); has {
		if why := whyForbidden(inner); why != "" {
			return fmt.Sprintf("%s in its %s form", why, form)
		}
	}
	return ""
}

// embedded returns the IPv4 address that a router, or this machine, derives from an IPv6 address.
func embedded(address netip.Addr) (inner netip.Addr, form string, has bool) {
	if address.Is4() {
		return netip.Addr{}, "", false
	}
	if address.Is4In6() {
		return address.Unmap(), "IPv4-mapped", true
	}
	b := address.As16()
	v4 := func(bytes []byte) netip.Addr { return netip.AddrFrom4([4]byte(bytes)) }
	within := func(prefix string) bool { return netip.MustParsePrefix(prefix).Contains(address) }
	switch {
	case within("64:ff9b::/96"):
		return v4(b[12:16]), "NAT64", true
	case within("2002::/16"):
		return v4(b[2:6]), "6to4", true
	case within("2001::/32"):
		return v4([]byte{^b[12], ^b[13], ^b[14], ^b[15]}), "Teredo", true
	case within("::/96"):
		return v4(b[12:16]), "IPv4-compatible", true
	}
	return netip.Addr{}, "", false
}

// checkHost rejects addresses in unusual notation: 2130706433, 0x7f000001, 0177.1 and 127.1 are
// 127.0.0.1 to some resolvers and a name to others. A host whose last label is a number must be an
// address in the usual notation.
func checkHost(host string) error {
	for _, char := range host {
		if char > 127 {
			return fail(ClassConfiguration, "host %q of the url has characters beyond ASCII: write it in punycode", host)
		}
	}
	if strings.Contains(host, ":") {
		if address, err := netip.ParseAddr(host); err != nil || address.Zone() != "" {
			return fail(ClassAddressForbidden, "host %q of the url is not an address that may be used", host)
		}
		return nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	last := labels[len(labels)-1]
	if !isNumber(last) {
		return nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return fail(ClassAddressForbidden, "host %q of the url is a number but not an IPv4 address: write it as four decimal numbers", host)
	}
	return nil
}

// isNumber reports whether a label is decimal, octal or hexadecimal.
func isNumber(label string) bool {
	if digits, hex := strings.CutPrefix(strings.ToLower(label), "0x"); hex {
		_, err := strconv.ParseUint("0"+digits, 16, 64)
		return err == nil || len(digits) > 15
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// dial connects to host:port if the guard allows it.
func (g Guard) dial(ctx context.Context, dialer net.Dialer, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fail(ClassConfiguration, "reading the host of the url: %v", err)
	}
	if !g.allowsHost(host) {
		dialer.ControlContext = g.control
	}
	return dialer.DialContext(ctx, network, address)
}

// checkName rejects the names that always resolve to loopback addresses, unless one of these is
// allowed. Any other name may resolve to any address.
func (g Guard) checkName(host string) error {
	name := plainName(host)
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		return nil
	}
	for _, loopback := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if g.Check(loopback) == nil {
			return nil
		}
	}
	return fail(ClassAddressForbidden, "host %q is a loopback address, %s", cut(host, 253), mayNotReach)
}

// allowsHost reports whether a host may be reached at any address.
func (g Guard) allowsHost(host string) bool {
	return slices.ContainsFunc(g.AllowHosts, func(allowed string) bool { return plainName(allowed) == plainName(host) })
}

// plainName returns a host in the form in which hosts are compared.
func plainName(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// control runs between resolving and connecting, for each address that is tried.
func (g Guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	resolved, err := netip.ParseAddrPort(address)
	if err != nil {
		return fail(ClassAddressForbidden, "address %q cannot be checked: %v", address, err)
	}
	return g.Check(resolved.Addr())
}
