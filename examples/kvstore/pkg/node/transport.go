package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	greeting        = "kvstore/1"
	greetingTimeout = 5 * time.Second
	maxGreeting     = 512

	peerTimeout = 5 * time.Second
	// maxPool is the number of idle connections to each member.
	maxPool = 3
)

// stream is the raft.StreamLayer of a member. Each connection begins with a line that names
// the cluster and the host that is called. It is rejected elsewhere: the address of a
// deleted pod may belong to a pod of another cluster.
type stream struct {
	net.Listener
	options  Options
	admitted *atomic.Bool
}

// listen returns the transport of a member.
func listen(ctx context.Context, o Options, admitted *atomic.Bool) (*raft.NetworkTransport, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(o.Listen, strconv.Itoa(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("listening for members: %w", err)
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream{listener, o, admitted}, MaxPool: maxPool, Timeout: peerTimeout, Logger: logger(o.Log),
	}), nil
}

// Addr returns the address of which the other members know.
func (s stream) Addr() net.Addr { return advertised(s.options.address(s.options.Host)) }

type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// Dial connects to a member.
func (s stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	defer stop()
	conn, err := s.options.Resolver.Dial(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "%s %s %s\n", greeting, s.options.Cluster, address); err != nil {
		return nil, errors.Join(fmt.Errorf("greeting %s: %w", address, err), conn.Close())
	}
	return conn, nil
}

// Accept returns the next connection, whose first line is read with its first bytes: a
// silent client must not delay others.
func (s stream) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	want := fmt.Sprintf("%s %s %s\n", greeting, s.options.Cluster, s.Addr())
	return &greeted{Conn: conn, reader: bufio.NewReaderSize(conn, maxGreeting), want: want, admitted: s.admitted}, nil
}

// greeted is a connection whose first line has to be want.
type greeted struct {
	net.Conn
	reader   *bufio.Reader
	want     string
	admitted *atomic.Bool

	once sync.Once
	err  error
}

var (
	errGreeting    = errors.New("the connection is for another member or cluster")
	errNotAdmitted = errors.New("the member is not admitted yet")
)

// Read reads the first line once, and then from the connection.
func (g *greeted) Read(data []byte) (int, error) {
	g.once.Do(func() { g.err = g.greet() })
	if g.err != nil {
		return 0, g.err
	}
	return g.reader.Read(data)
}

func (g *greeted) greet() error {
	if err := g.SetReadDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return err
	}
	line, err := g.reader.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("%w: %w", errGreeting, err)
	}
	if string(line) != g.want {
		return fmt.Errorf("%w: %q", errGreeting, line)
	}
	if !g.admitted.Load() {
		return errNotAdmitted
	}
	return g.SetReadDeadline(time.Time{})
}
