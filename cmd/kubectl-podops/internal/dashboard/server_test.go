package dashboard

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
)

const testToken = "0123456789"

// newTestServer returns a dashboard on a port of its own.
func newTestServer(t *testing.T) (*httptest.Server, *feed) {
	t.Helper()
	events := newFeed()
	listening := httptest.NewUnstartedServer(nil)
	handler, err := newServer(listening.Listener.Addr(), testToken, events)
	if err != nil {
		t.Fatal(err)
	}
	listening.Config.Handler = handler
	listening.Start()
	t.Cleanup(listening.Close)
	return listening, events
}

// received is a response that was read.
type received struct {
	status int
	header http.Header
	url    string
	body   string
}

func send(t *testing.T, client *http.Client, method, url string, edit func(*http.Request)) received {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(request)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return received{status: response.StatusCode, header: response.Header, url: response.Request.URL.String(), body: string(body)}
}

func withJar(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func TestServer(t *testing.T) {
	cookie := func(request *http.Request) { request.AddCookie(&http.Cookie{Name: cookieName, Value: testToken}) }
	for name, test := range map[string]struct {
		method, path string
		edit         func(*http.Request)
		status       int
		body         string
	}{
		"no token":    {path: "/", status: http.StatusUnauthorized, body: "it has the token"},
		"wrong token": {path: "/?token=9876543210", status: http.StatusUnauthorized},
		"events without token": {
			path: "/events", status: http.StatusUnauthorized,
		},
		"assets without token": {path: "/app.js", status: http.StatusUnauthorized},
		"the page":             {path: "/", edit: cookie, status: http.StatusOK, body: "<title>PodOps</title>"},
		"an asset":             {path: "/app.css", edit: cookie, status: http.StatusOK},
		"no such file":         {path: "/etc/passwd", edit: cookie, status: http.StatusNotFound},
		"the cookie of another dashboard comes first": {path: "/", edit: func(request *http.Request) {
			request.AddCookie(&http.Cookie{Name: cookieName, Value: "another"})
			cookie(request)
		}, status: http.StatusOK},
		"a name that resolves to this machine": {path: "/?token=" + testToken, edit: func(request *http.Request) {
			request.Host = "evil.example"
		}, status: http.StatusMisdirectedRequest},
		"a write": {method: http.MethodPost, path: "/events", edit: cookie, status: http.StatusMethodNotAllowed, body: "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			listening, _ := newTestServer(t)
			got := send(t, http.DefaultClient, test.method, listening.URL+test.path, test.edit)
			if got.status != test.status || !strings.Contains(got.body, test.body) {
				t.Errorf("got %d, %q; want %d, %q", got.status, got.body, test.status, test.body)
			}
			if policy := got.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
				t.Errorf("got Content-Security-Policy %q", policy)
			}
		})
	}
}

func TestTheTokenLeavesTheAddress(t *testing.T) {
	listening, _ := newTestServer(t)
	got := send(t, withJar(t), http.MethodGet, listening.URL+"/?token="+testToken, nil)
	if got.status != http.StatusOK || !strings.Contains(got.body, "<title>PodOps</title>") {
		t.Errorf("got %d, %q", got.status, got.body)
	}
	if got.url != listening.URL+"/" {
		t.Errorf("the address is %s, want %s", got.url, listening.URL+"/")
	}
}

// TestEvents checks that a page gets the newest state when it connects, and each later one.
func TestEvents(t *testing.T) {
	listening, events := newTestServer(t)
	publish := func(number int) {
		t.Helper()
		if err := events.publish("state", number); err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	publish(2)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, listening.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.AddCookie(&http.Cookie{Name: cookieName, Value: testToken})
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for number := 2; number <= 4; number++ {
		if number > 2 {
			publish(number)
		}
		for _, want := range []string{"event: state", fmt.Sprintf("data: %d", number), ""} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("got line %q, error %v; want %q", lines.Text(), lines.Err(), want)
			}
		}
	}
}

func TestTooManyPages(t *testing.T) {
	_, events := newTestServer(t)
	var leave func()
	for range maxStreams {
		var ok bool
		if _, leave, ok = events.subscribe(); !ok {
			t.Fatal("a page below the bound is rejected")
		}
	}
	if _, _, ok := events.subscribe(); ok {
		t.Errorf("page %d is accepted", maxStreams+1)
	}
	leave()
	if _, _, ok := events.subscribe(); !ok {
		t.Errorf("a page is rejected after another page has left")
	}
}
