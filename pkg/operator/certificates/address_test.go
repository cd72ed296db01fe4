package certificates

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestParseAddress(t *testing.T) {
	cases := map[string]struct {
		url       string
		wantNames []string
		wantErr   bool
	}{
		"the service":   {"", []string{"hooks.ns.svc", "hooks"}, false},
		"an address":    {"https://127.0.0.1:9443", []string{"hooks.ns.svc", "hooks", "127.0.0.1"}, false},
		"an IPv6 host":  {"https://[::1]:9443", []string{"hooks.ns.svc", "hooks", "::1"}, false},
		"a host":        {"https://hooks.example/base", []string{"hooks.ns.svc", "hooks", "hooks.example"}, false},
		"plain http":    {"http://127.0.0.1:9443", nil, true},
		"no host":       {"https:///x", nil, true},
		"a port only":   {"https://:9443", nil, true},
		"a user":        {"https://me@127.0.0.1", nil, true},
		"a query":       {"https://127.0.0.1?x=y", nil, true},
		"a fragment":    {"https://127.0.0.1#x", nil, true},
		"no URL at all": {"127.0.0.1:9443", nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			address, err := ParseAddress("ns", "hooks", tc.url)
			if (err != nil) != tc.wantErr {
				t.Fatalf("want error %v, got %v", tc.wantErr, err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tc.wantNames, address.Names()); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPoint(t *testing.T) {
	url := func(s string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: &s}
	}
	service := func(name, path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: name, Path: &path},
		}
	}
	cases := map[string]struct {
		webhookURL string
		from, want admissionregistrationv1.WebhookClientConfig
	}{
		"service to URL":                     {"https://h:1", service("hooks", "/a"), url("https://h:1/a")},
		"service to URL with a path":         {"https://h:1/base/", service("hooks", "/a"), url("https://h:1/base/a")},
		"URL to another URL":                 {"https://h:2", url("https://h:1/base/a"), url("https://h:2/a")},
		"URL to itself":                      {"https://h:1/base", url("https://h:1/base/a"), url("https://h:1/base/a")},
		"URL to service":                     {"", url("https://h:1/a"), service("hooks", "/a")},
		"a service under another name stays": {"", service("renamed", "/a"), service("renamed", "/a")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			address, err := ParseAddress("ns", "hooks", tc.webhookURL)
			if err != nil {
				t.Fatal(err)
			}
			got := *tc.from.DeepCopy()
			if err := address.point(&got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("client configuration (-want +got):\n%s", diff)
			}
		})
	}
}
