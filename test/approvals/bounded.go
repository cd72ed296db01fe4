package approvals

import (
	"net"
	"sync"
)

// bounded is a listener that bounds the number of open connections.
type bounded struct {
	net.Listener
	free   chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
}

func newBounded(listener net.Listener, most int) *bounded {
	return &bounded{Listener: listener, free: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits until another connection may be open.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.free <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	connection, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &counted{Conn: connection, release: sync.OnceFunc(func() { <-b.free })}, nil
}

// Close ends an Accept that waits.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type counted struct {
	net.Conn
	release func()
}

// Close frees a slot for another connection.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
