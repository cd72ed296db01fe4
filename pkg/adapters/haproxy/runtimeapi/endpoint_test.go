package runtimeapi_test

import (
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
)

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"unix:/run/haproxy/admin.sock": "unix:/run/haproxy/admin.sock",
		"/run/haproxy/admin.sock":      "unix:/run/haproxy/admin.sock",
		"tcp:10.0.0.4:9999":            "tcp:10.0.0.4:9999",
		"10.0.0.4:09999":               "tcp:10.0.0.4:9999",
		"lb.example.com:9999":          "tcp:lb.example.com:9999",
		"[fd00::4]:9999":               "tcp:[fd00::4]:9999",
	} {
		endpoint, err := runtimeapi.ParseEndpoint(text)
		if err != nil || endpoint.String() != want {
			t.Errorf("ParseEndpoint(%q) = %q, %v, want %q", text, endpoint, err, want)
			continue
		}
		if again, err := runtimeapi.ParseEndpoint(endpoint.String()); err != nil || again != endpoint {
			t.Errorf("%q reads as %q, %v", endpoint, again, err)
		}
	}
}

func TestInvalidEndpoints(t *testing.T) {
	for _, text := range []string{
		"", "unix:", "unix:run/haproxy.sock", "/run/../etc/shadow", "/run//haproxy", "/" + strings.Repeat("a", 107), "/a\x00b",
		"tcp:", "10.0.0.4", ":9999", "10.0.0.4:0", "10.0.0.4:70000", "10.0.0.4:http", "a b:1", "http://10.0.0.4:9999",
		"unix:@abstract", strings.Repeat("a", 300) + ":1",
	} {
		if endpoint, err := runtimeapi.ParseEndpoint(text); err == nil {
			t.Errorf("ParseEndpoint(%q) = %q, want an error", text, endpoint)
		} else if len(err.Error()) > 600 {
			t.Errorf("ParseEndpoint(%.20q...) fails in %d bytes", text, len(err.Error()))
		}
	}
}
