package webhookserver

import (
	"net"
	"net/netip"
	"sync"
)

// listener bounds the open connections and their rate, in all and for each source. A connection
// beyond the rate is closed before its TLS handshake, as is a connection beyond the bound unless it
// replaces the least recently used connection of the source that has most.
type listener struct {
	net.Listener
	open *sharedLedger

	// admits reports whether a connection of a source is within the rate.
	admits  func(netip.Addr) bool
	refused func()
}

// Accept returns the next connection that may be served.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, open: l.open}
		c.hold = &hold{source: remoteAddress(accepted.RemoteAddr()), evict: func() { _ = accepted.Close() }}
		if l.admits(c.hold.source) && l.open.tryGrow(c.hold, 1) {
			return c, nil
		}
		l.refused()
		_ = accepted.Close() // No request has arrived that could get a response.
	}
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	open *sharedLedger
	hold *hold
	once sync.Once
}

// Close ends the connection.
func (c *conn) Close() error {
	c.once.Do(func() { c.open.close(c.hold) })
	return c.Conn.Close()
}

// used records a review that was handled.
func (c *conn) used() { c.open.used(c.hold) }

// pin protects the connection of a verified client from eviction.
func (c *conn) pin() { c.open.pin(c.hold) }

// remoteAddress returns the address of a client without its port; the zero address when it
// has none.
func remoteAddress(address net.Addr) netip.Addr {
	parsed, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return netip.Addr{}
	}
	return parsed.Addr().Unmap()
}
