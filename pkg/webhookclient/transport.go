package webhookclient

import (
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// maxTransports bounds how many kinds of trust and identity are kept ready. Those
	// beyond are made anew when they are needed.
	maxTransports = 64

	// maxIdlePerHost and idleTimeout bound connections that wait for the next call. The
	// time is short: a service that closes one just as a POST is written makes a call
	// fail that must not be repeated.
	maxIdlePerHost = 4
	maxIdle        = 32
	idleTimeout    = 5 * time.Second

	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 64 << 10
)

// transports keeps one HTTP client per trust and identity, the least used go first. It is
// safe for concurrent use.
type transports struct {
	guard   Guard
	timeout Timeouts

	mu     sync.Mutex
	ready  map[[sha256.Size]byte]*list.Element
	recent *list.List
}

// transport is one of them.
type transport struct {
	key    [sha256.Size]byte
	client *http.Client
}

func newTransports(guard Guard, timeout Timeouts) *transports {
	return &transports{guard: guard, timeout: timeout, ready: map[[sha256.Size]byte]*list.Element{}, recent: list.New()}
}

// client for an endpoint. Errors are those of the caBundle and of the client certificate.
func (t *transports) client(endpoint Endpoint) (*http.Client, error) {
	key := identity(endpoint)
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept, has := t.ready[key]; has {
		t.recent.MoveToFront(kept)
		return kept.Value.(*transport).client, nil
	}
	config, err := endpoint.trust()
	if err != nil {
		return nil, err
	}
	made := &transport{key: key, client: t.make(config)}
	t.ready[key] = t.recent.PushFront(made)
	if t.recent.Len() > maxTransports {
		oldest := t.recent.Remove(t.recent.Back()).(*transport)
		delete(t.ready, oldest.key)
		// Calls that run on it go on; their connections close when they end, or idle out.
		oldest.client.CloseIdleConnections()
	}
	return made.client, nil
}

// closeIdle closes every connection that no call runs on.
func (t *transports) closeIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kept := range t.ready {
		t.ready[kept].Value.(*transport).client.CloseIdleConnections()
	}
}

// identity is a key for what connections of an endpoint have in common. Lengths are part
// of it, so that no two lists of parts look the same.
func identity(endpoint Endpoint) [sha256.Size]byte {
	var whole []byte
	for _, part := range [][]byte{[]byte(endpoint.CABundle), endpoint.ClientCert, endpoint.ClientKey} {
		whole = binary.BigEndian.AppendUint64(whole, uint64(len(part)))
		whole = slices.Concat(whole, part)
	}
	return sha256.Sum256(whole)
}

// make builds a client that adds nothing of its own to a call: no proxy from the
// environment, no cookies, no compression, no HTTP/2, whose transport repeats requests by
// rules that are not ours.
func (t *transports) make(config *tls.Config) *http.Client {
	dialer := net.Dialer{Timeout: t.timeout.Connect, KeepAlive: 15 * time.Second}
	return &http.Client{
		Timeout: t.timeout.Try,
		Transport: refuseRedirects{&http.Transport{
			Proxy: nil,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return t.guard.dial(ctx, dialer, network, address)
			},
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    t.timeout.Connect,
			ResponseHeaderTimeout:  t.timeout.Header,
			MaxResponseHeaderBytes: maxHeaderBytes,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    maxIdlePerHost,
			IdleConnTimeout:        idleTimeout,
			DisableCompression:     true,
			ForceAttemptHTTP2:      false,
		}},
	}
}

// refuseRedirects makes an error of a redirect before http.Client looks at it: a redirect
// leads where the rule does not say.
type refuseRedirects struct{ *http.Transport }

// RoundTrip sends one request.
func (r refuseRedirects) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		discard(response.Body)
		failure := fail(ClassRedirectRefused, "the service redirects (HTTP %d)%s: webhook rules do not follow, set the url to where it leads",
			response.StatusCode, leadsTo(response))
		failure.Sent = true
		return nil, failure
	default:
		return response, nil
	}
}

// leadsTo is the scheme and host of a redirect, as far as they can be read. Paths and
// queries may hold secrets.
func leadsTo(response *http.Response) string {
	location, err := url.Parse(response.Header.Get("Location"))
	if err != nil || location.Host == "" {
		return ""
	}
	return " to " + location.Scheme + "://" + location.Host + "/"
}
