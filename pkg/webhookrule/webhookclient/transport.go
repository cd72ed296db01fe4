package webhookclient

import (
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

	"k8s.io/utils/lru"
)

const (
	// maxTransports bounds the cached transports. Evicted transports are made again when they are
	// needed.
	maxTransports = 64

	// maxIdlePerHost and idleTimeout bound idle connections. The time is short: if a service closes
	// a connection while a POST is written, the call fails and must not be repeated.
	maxIdlePerHost = 4
	maxIdle        = 32
	idleTimeout    = 5 * time.Second

	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 64 << 10
)

// transports caches one HTTP client per trust and identity, and evicts the least recently used. It
// is safe for concurrent use.
type transports struct {
	guard   Guard
	timeout Timeouts

	// mu guards that each client is made once.
	mu    sync.Mutex
	ready *lru.Cache
}

func newTransports(guard Guard, timeout Timeouts) *transports {
	// Calls in flight continue; their connections close when they end, or at the idle timeout.
	evicted := func(_ lru.Key, client any) { client.(*http.Client).CloseIdleConnections() }
	return &transports{guard: guard, timeout: timeout, ready: lru.NewWithEvictionFunc(maxTransports, evicted)}
}

// client returns the client for an endpoint. It returns errors of the caBundle and the client
// certificate.
func (t *transports) client(endpoint Endpoint) (*http.Client, error) {
	key := identity(endpoint)
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept, has := t.ready.Get(key); has {
		return kept.(*http.Client), nil
	}
	config, err := endpoint.trust()
	if err != nil {
		return nil, err
	}
	made := t.make(config)
	t.ready.Add(key, made)
	return made, nil
}

// clear evicts every client.
func (t *transports) clear() { t.ready.Clear() }

// identity returns the cache key of an endpoint: everything that its connections share. Lengths are
// part of it, so that different lists of parts have different keys.
func identity(endpoint Endpoint) [sha256.Size]byte {
	var whole []byte
	for _, part := range [][]byte{[]byte(endpoint.CABundle), endpoint.ClientCert, endpoint.ClientKey} {
		whole = binary.BigEndian.AppendUint64(whole, uint64(len(part)))
		whole = slices.Concat(whole, part)
	}
	return sha256.Sum256(whole)
}

// make returns a client that adds nothing to a call: no proxy from the environment, no cookies, no
// compression, and no HTTP/2, whose transport repeats requests by rules of its own.
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

// refuseRedirects turns a redirect into an error before http.Client follows it: the target of a
// redirect is not part of the rule.
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

// leadsTo returns the scheme and host of a redirect, if they can be parsed. Paths and queries may
// hold secrets.
func leadsTo(response *http.Response) string {
	location, err := url.Parse(response.Header.Get("Location"))
	if err != nil || location.Host == "" {
		return ""
	}
	return " to " + location.Scheme + "://" + location.Host + "/"
}
