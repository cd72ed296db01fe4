package webhookclient

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRulesAreNoPortScanner checks that users see one class for every host that does not answer as
// a web server, and that the log has the details.
func TestRulesAreNoPortScanner(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	classes := map[Class]bool{}
	for name, url := range map[string]string{
		"a closed port":              "http://" + closed + "/",
		"a port without TLS":         "https://" + plain.Listener.Addr().String() + "/",
		"a port that hangs up":       byHand(t, func(c net.Conn) { _ = c.Close() }),
		"a port with something else": byHand(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n")) }),
	} {
		_, err := NewClient(local(), Timeouts{}).Post(t.Context(), Endpoint{URL: url}, PostRequest{})
		failure, is := errors.AsType[*Failure](err)
		if !is {
			t.Fatalf("%s: %v", name, err)
		}
		class, message := failure.Shown()
		shown[string(class)+": "+message] = true
		classes[failure.Class] = true
		if strings.Contains(message, "SSH") || strings.Contains(message, "127.0.0.1") {
			t.Errorf("%s is shown as %q", name, message)
		}
	}
	if len(shown) != 1 || len(classes) < 3 {
		t.Errorf("shown as %v, of classes %v", shown, classes)
	}
	want := fail(ClassTLSExpired, "expired")
	if class, message := want.Shown(); class != ClassTLSExpired || message != "expired" {
		t.Errorf("a certificate that has expired is shown as %s: %s", class, message)
	}
}

// TestMessagesOfServicesAreEscaped checks that messages of services are escaped before they are
// shown.
func TestMessagesOfServicesAreEscaped(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{\"message\": \"ok\\u202e\\u001b[31m\\u2066x\"}"))
	})
	answer, err := NewClient(local(), Timeouts{}).Post(t.Context(), Endpoint{URL: s.URL}, PostRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`ok\u202e\x1b[31m\u2066x`, answer.Message); diff != "" {
		t.Errorf("message differs (-want +got):\n%s", diff)
	}
}
