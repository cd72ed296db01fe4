package webhookclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesThatRulesMayNotReach(t *testing.T) {
	for _, address := range []string{
		// loopback
		"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1",
		// link-local, the metadata service among it
		"169.254.169.254", "169.254.0.1", "fe80::1", "febf::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
		"2001:0:1:2:3:4:5601:5601",
		// unspecified
		"0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "64:ff9b::",
		// multicast and broadcast
		"224.0.0.1", "239.1.1.1", "ff02::1", "ff0e::1", "255.255.255.255", "240.0.0.1", "::ffff:224.0.0.1", "64:ff9b::e000:1",
		// other metadata services
		"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "::ffff:100.100.100.200",
		// old and local forms
		"fec0::1", "64:ff9b:1::7f00:1", "64:ff9b:1:7f00:0:100::",
	} {
		if err := (Guard{}).Check(netip.MustParseAddr(address)); err == nil {
			t.Errorf("%s may be reached", address)
		} else {
			wantClass(t, err, ClassAddressForbidden)
		}
	}
	if (Guard{}).Check(netip.Addr{}) == nil {
		t.Error("no address may be reached")
	}
}

func TestAddressesThatRulesMayReach(t *testing.T) {
	for _, address := range []string{
		"1.1.1.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.253.255.255", "::ffff:10.0.0.1", "64:ff9b::a00:1",
		"2606:4700::1111", "fd00::1", "fd00:ec2::253", "2002:a00:1::1",
	} {
		if err := (Guard{}).Check(netip.MustParseAddr(address)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAdministratorsAllowAddresses(t *testing.T) {
	guard := Guard{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fe80::/64")}}
	for address, allowed := range map[string]bool{
		"127.0.0.1": true, "::ffff:127.0.0.1": true, "fe80::1": true, "fe80::1%eth0": true,
		"::1": false, "169.254.169.254": false, "64:ff9b::7f00:1": false,
	} {
		if err := guard.Check(netip.MustParseAddr(address)); (err == nil) != allowed {
			t.Errorf("%s: %v, allowed is %v", address, err, allowed)
		}
	}
}

func TestURLs(t *testing.T) {
	for name, tc := range map[string]struct {
		url   string
		class Class
	}{
		"https":                 {"https://approvals.shop.svc:8089/post?a=1", ""},
		"http":                  {"http://10.0.0.1/", ""},
		"IPv6":                  {"http://[fd00::1]:80/", ""},
		"a name with digits":    {"http://1.2.3.4.example.com/", ""},
		"a name of hex digits":  {"http://0xy.example/", ""},
		"another scheme":        {"file:///etc/passwd", ClassConfiguration},
		"no scheme":             {"approvals/post", ClassConfiguration},
		"no host":               {"http:///post", ClassConfiguration},
		"opaque":                {"http:approvals", ClassConfiguration},
		"credentials":           {"http://user:secret@approvals/", ClassConfiguration},
		"port 0":                {"http://approvals:0/", ClassConfiguration},
		"port 65536":            {"http://approvals:65536/", ClassConfiguration},
		"cannot be read":        {"http://appro vals/?token=secret", ClassConfiguration},
		"a control character":   {"http://approvals/\x7f?token=secret", ClassConfiguration},
		"wide digits":           {"http://１２７.0.0.1/", ClassConfiguration},
		"decimal":               {"http://2130706433/", ClassAddressForbidden},
		"hexadecimal":           {"http://0x7f000001/", ClassAddressForbidden},
		"hexadecimal, long":     {"http://0x0000000000000000000000007f000001/", ClassAddressForbidden},
		"hexadecimal, by parts": {"http://0x7f.0x0.0x0.0x1/", ClassAddressForbidden},
		"octal":                 {"http://0177.0.0.1/", ClassAddressForbidden},
		"octal, one number":     {"http://017700000001/", ClassAddressForbidden},
		"two numbers":           {"http://127.1/", ClassAddressForbidden},
		"a dot at the end":      {"http://2130706433./", ClassAddressForbidden},
		"IPv6 with a zone":      {"http://[fe80::1%25eth0]/", ClassAddressForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseURL(tc.url)
			if tc.class == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			failure := wantFailure(t, err, tc.class)
			if strings.Contains(failure.Message, "secret") && !strings.Contains(failure.Message, "secretRef") {
				t.Errorf("message repeats a secret: %s", failure.Message)
			}
		})
	}
}

func TestURLsAreCheckedWithoutTheNetwork(t *testing.T) {
	networks := func(texts ...string) Guard {
		var guard Guard
		for _, text := range texts {
			guard.AllowCIDRs = append(guard.AllowCIDRs, netip.MustParsePrefix(text))
		}
		return guard
	}
	for name, tc := range map[string]struct {
		guard Guard
		url   string
		class Class // empty if it may be called
	}{
		"a name, at any address":                    {url: "http://no.such.host.invalid/"},
		"a name that only looks local":              {url: "http://localhost.example.com/"},
		"a name that only ends like it":             {url: "http://mylocalhost/"},
		"a private address":                         {url: "http://10.0.0.1/"},
		"where clouds keep credentials":             {url: "http://169.254.169.254/", class: ClassAddressForbidden},
		"the same, as the manager allows it":        {guard: networks("169.254.169.254/32"), url: "http://169.254.169.254/"},
		"the same, as IPv4-mapped":                  {url: "http://[::ffff:a9fe:a9fe]/", class: ClassAddressForbidden},
		"the same, as NAT64":                        {url: "http://[64:ff9b::169.254.169.254]/", class: ClassAddressForbidden},
		"the same, as a decimal number":             {url: "http://2852039166/", class: ClassAddressForbidden},
		"the same, as a hexadecimal number":         {url: "http://0xa9fea9fe/", class: ClassAddressForbidden},
		"loopback":                                  {url: "http://127.0.0.1/", class: ClassAddressForbidden},
		"loopback, as an allowed host":              {guard: Guard{AllowHosts: []string{"127.0.0.1"}}, url: "http://127.0.0.1:80/"},
		"loopback, IPv4-mapped":                     {url: "http://[::ffff:127.0.0.1]/", class: ClassAddressForbidden},
		"localhost":                                 {url: "http://localhost:8080/", class: ClassAddressForbidden},
		"localhost, with a dot":                     {url: "http://LocalHost./", class: ClassAddressForbidden},
		"a name within localhost":                   {url: "http://a.localhost/", class: ClassAddressForbidden},
		"localhost, as an allowed host":             {guard: Guard{AllowHosts: []string{"localhost"}}, url: "http://localhost/"},
		"localhost, as its IPv4 network is allowed": {guard: networks("127.0.0.0/8"), url: "http://localhost/"},
		"localhost, as its IPv6 address is allowed": {guard: networks("::1/128"), url: "http://localhost/"},
		"localhost, as another network is allowed":  {guard: networks("169.254.0.0/16"), url: "http://localhost/", class: ClassAddressForbidden},
		"another scheme":                            {url: "ftp://x/", class: ClassConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.guard.CheckURL(tc.url)
			if tc.class == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantClass(t, err, tc.class)
		})
	}
}

func TestARejectionHasTheAddressTheReasonAndTheFlags(t *testing.T) {
	for url, want := range map[string]string{
		"http://[64:ff9b::7f00:1]/": "address 64:ff9b::7f00:1 is a loopback address in its NAT64 form, which webhook rules and drain endpoints may not reach: " +
			"an administrator can allow it with --rule-webhook-allow-cidr or --rule-webhook-allow-host",
		"http://localhost/": "host \"localhost\" is a loopback address, which webhook rules and drain endpoints may not reach: " +
			"an administrator can allow it with --rule-webhook-allow-cidr or --rule-webhook-allow-host",
	} {
		if failure := wantFailure(t, Guard{}.CheckURL(url), ClassAddressForbidden); failure.Message != want {
			t.Errorf("%s: %s", url, failure.Message)
		}
	}
}

func TestAddressesAreCheckedAfterTheNameIsResolved(t *testing.T) {
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "LOCALHOST", "127.0.0.1", "[::ffff:127.0.0.1]"} {
		_, err := NewClient(Guard{}, Timeouts{}).Post(t.Context(), Endpoint{URL: "http://" + host + ":" + port}, PostRequest{})
		failure := wantFailure(t, err, ClassAddressForbidden)
		if failure.Sent {
			t.Errorf("%s: the service may have seen the request", host)
		}
	}
	if reached {
		t.Error("the server was reached")
	}
}

func TestAllowedHostsAreReachedAtAnyAddress(t *testing.T) {
	guard := Guard{AllowHosts: []string{"LocalHost"}}
	for host, forbidden := range map[string]bool{"localhost": false, "localhost.": false, "127.0.0.1": true} {
		connection, err := guard.dial(context.Background(), net.Dialer{}, "tcp", net.JoinHostPort(host, "1"))
		if err == nil {
			_ = connection.Close()
		}
		failure, is := errors.AsType[*Failure](err)
		if got := is && failure.Class == ClassAddressForbidden; got != forbidden {
			t.Errorf("%s: %v, forbidden is %v", host, err, forbidden)
		}
	}
}
