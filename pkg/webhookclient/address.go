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

// Guard says which addresses rules may reach. Private networks are among them, since
// services live there; what is refused is PodOps' own machine, its neighbours on the link,
// and the places where clouds keep credentials.
//
// It is asked with the address that is about to be dialled, after the name was resolved: a
// name that resolves to something else the second time gains nothing.
type Guard struct {
	// AllowCIDRs are addresses that may be reached although they are refused otherwise.
	AllowCIDRs []netip.Prefix

	// Cluster knows the addresses of the cluster itself, which are refused, too; nil: none is.
	Cluster Cluster

	// AllowHosts are hosts, as they stand in URLs and without a port, that may be reached
	// whatever they resolve to.
	AllowHosts []string
}

// Cluster knows the addresses of the nodes and of the API server.
type Cluster interface {
	// Owner returns what an address is in the cluster, such as "of a node of the cluster"; ""
	// for all others. An error means that this is not known yet.
	Owner(address netip.Addr) (string, error)
}

// refused are addresses with a reason of their own. The rest is said by netip.
func refused() []struct {
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
		// Which IPv4 address is in it, only the network knows.
		{netip.MustParsePrefix("64:ff9b:1::/48"), "a NAT64 prefix of the local network"},
		{netip.MustParsePrefix("100.100.100.200/32"), "a metadata service"},
		{netip.MustParsePrefix("168.63.129.16/32"), "a metadata service"},
		{netip.MustParsePrefix("192.0.0.192/32"), "a metadata service"},
		{netip.MustParsePrefix("fd00:ec2::254/128"), "a metadata service"},
		{netip.MustParsePrefix("fd20:ce::254/128"), "a metadata service"},
	}
}

// mayNotReach ends the sentence about an address with the way out: flags of the manager.
const mayNotReach = "which webhook rules may not reach: an administrator can allow it with " +
	"--rule-webhook-allow-cidr or --rule-webhook-allow-host"

// Check returns a *Failure of ClassAddressForbidden when rules may not reach an address, and of
// ClassInternal when that is not known yet.
func (g Guard) Check(address netip.Addr) error {
	address = address.WithZone("")
	for _, form := range []netip.Addr{address, address.Unmap()} {
		if slices.ContainsFunc(g.AllowCIDRs, func(prefix netip.Prefix) bool { return prefix.Contains(form) }) {
			return nil
		}
	}
	if why := whyRefused(address); why != "" {
		return fail(ClassAddressForbidden, "address %s is %s, %s", address, why, mayNotReach)
	}
	return g.checkCluster(address)
}

// checkCluster refuses the addresses of the cluster itself, in each of their forms.
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

// whyRefused is empty for an address that may be reached.
func whyRefused(address netip.Addr) string {
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
	for _, entry := range refused() {
		if entry.prefix.Contains(address) {
			return entry.why
		}
	}
	if inner, form, has := embedded(address); has {
		if why := whyRefused(inner); why != "" {
			return fmt.Sprintf("%s in its %s form", why, form)
		}
	}
	return ""
}

// embedded returns the IPv4 address that a router, or this machine, makes of an IPv6 one.
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

// checkHost refuses hosts that are addresses in disguise: 2130706433, 0x7f000001, 0177.1
// and 127.1 are 127.0.0.1 to some resolvers and a name to others. What looks like a number
// at its end is an address, and has to be written as one.
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

// isNumber says whether a label is decimal, octal or hexadecimal.
func isNumber(label string) bool {
	if digits, hex := strings.CutPrefix(strings.ToLower(label), "0x"); hex {
		_, err := strconv.ParseUint("0"+digits, 16, 64)
		return err == nil || len(digits) > 15
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// dial connects to host:port if the guard lets it.
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

// checkName refuses the names that never leave the machine, unless one of the addresses
// that they can have is allowed. Any other name may resolve to anything.
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

// allowsHost says whether a host may be reached whatever it resolves to.
func (g Guard) allowsHost(host string) bool {
	return slices.ContainsFunc(g.AllowHosts, func(allowed string) bool { return plainName(allowed) == plainName(host) })
}

// plainName is a host as it is compared.
func plainName(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// control runs between resolving and connecting, for each address that is tried.
func (g Guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	resolved, err := netip.ParseAddrPort(address)
	if err != nil {
		return fail(ClassAddressForbidden, "address %q cannot be checked: %v", address, err)
	}
	return g.Check(resolved.Addr())
}
