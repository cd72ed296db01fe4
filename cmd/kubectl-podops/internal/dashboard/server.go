package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"
)

//go:embed assets
var assets embed.FS

const (
	// maxStreams bounds the event streams, and with them the pages that are open at once.
	maxStreams = 16

	// heartbeat is the interval at which an idle stream carries a comment, so that a page notices a lost
	// connection.
	heartbeat = 10 * time.Second

	// writeTimeout is the time that a page may take to read an event.
	writeTimeout = 10 * time.Second
)

// server serves the page and its events to browsers on this machine that know the token.
//
// Every user of a machine reaches its loopback addresses, and so does every page that a browser shows:
// requests need the token, and the names of this server as Host, so that a name that resolves to
// 127.0.0.1 does not lead here. Nothing is written: GET and HEAD are the only methods.
type server struct {
	token string
	hosts map[string]bool
	files http.Handler
	feed  *feed
}

func newServer(address net.Addr, token string, feed *feed) (*server, error) {
	_, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the listener: %w", err)
	}
	page, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded page: %w", err)
	}
	hosts := map[string]bool{}
	for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
		hosts[net.JoinHostPort(name, port)] = true
	}
	return &server{token: token, hosts: hosts, files: http.FileServerFS(page), feed: feed}, nil
}

// newToken returns a token with 128 bits of randomness.
func newToken() string { return rand.Text() }

const cookieName = "podops-dashboard"

// ServeHTTP serves one request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	switch {
	case !s.hosts[r.Host]:
		http.Error(w, "this address is not the address of the dashboard", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the dashboard is read-only", http.StatusMethodNotAllowed)
	case r.URL.Path == "/" && s.knows(r.URL.Query().Get("token")):
		// The token is removed from the address bar and the history of the browser.
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case !s.allowed(r):
		http.Error(w, "open the address that kubectl podops dashboard printed: it has the token", http.StatusUnauthorized)
	case r.URL.Path == "/events":
		s.stream(w, r)
	default:
		s.files.ServeHTTP(w, r)
	}
}

func (s *server) knows(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// allowed reports whether a request has the token. A browser may send cookies of several dashboards, because
// cookies do not differ by port.
func (s *server) allowed(r *http.Request) bool {
	for _, cookie := range r.CookiesNamed(cookieName) {
		if s.knows(cookie.Value) {
			return true
		}
	}
	return false
}

// stream sends states to one page until the page disconnects or the server ends.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	changed, leave, ok := s.feed.subscribe()
	if !ok {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		event := []byte(": alive\n\n")
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		case <-changed:
			event = s.feed.event()
		}
		if control.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return
		}
		if _, err := w.Write(event); err != nil || control.Flush() != nil {
			return
		}
	}
}

// feed holds the newest event for all pages. A page that reads slowly misses events in between, and
// nothing queues up.
type feed struct {
	mu      sync.Mutex
	newest  []byte
	changed map[chan struct{}]bool
}

func newFeed() *feed { return &feed{changed: map[chan struct{}]bool{}} }

// subscribe returns a channel that has an item when there is an event that the page has not seen, and a
// function that ends the subscription. It returns false when there are too many.
func (f *feed) subscribe() (changed <-chan struct{}, leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changed) >= maxStreams {
		return nil, nil, false
	}
	channel := make(chan struct{}, 1)
	if f.newest != nil {
		channel <- struct{}{}
	}
	f.changed[channel] = true
	return channel, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.changed, channel)
	}, true
}

func (f *feed) event() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

// publish sends a value to all pages, as an event of a kind.
func (f *feed) publish(kind string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, data)
	for channel := range f.changed {
		select {
		case channel <- struct{}{}:
		default: // the page has not taken the last event yet
		}
	}
	return nil
}
