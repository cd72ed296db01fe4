package front

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
)

// maxSocketPath is the maximum length of the path of a Unix socket.
const maxSocketPath = 107

// Options configures a load balancer.
type Options struct {
	// Dir is the folder of its socket, configuration and log. It exists.
	Dir string

	// Backend is the name of the only backend. Empty: "web".
	Backend string

	// Address is a loopback address, "<ip>:<port>". Empty: a free port of 127.0.0.1.
	Address string

	// Connections makes it balance connections, as kube-proxy does, instead of requests.
	Connections bool

	// Program is the path of HAProxy. Empty: haproxy on the PATH.
	Program string
}

// endpoints holds the addresses of a load balancer.
type endpoints struct {
	listener *net.TCPListener
	address  string
	socket   string
	backend  string
}

// Address is the address for requests of clients: "127.0.0.1:41234".
func (p endpoints) Address() string { return p.address }

// Socket is the path of the Unix socket of the Runtime API.
func (p endpoints) Socket() string { return p.socket }

// Backend is the name of the backend that servers are added to.
func (p endpoints) Backend() string { return p.backend }

var (
	backendName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

	errName     = errors.New("use 1 to 100 letters, digits, dots, colons, dashes and underscores")
	errLoopback = errors.New("use a loopback address, such as 127.0.0.1:0")
)

// listen checks the options and listens for clients.
func (o Options) listen() (endpoints, error) {
	p := endpoints{backend: o.Backend, address: o.Address}
	if p.backend == "" {
		p.backend = "web"
	}
	if !backendName.MatchString(p.backend) {
		return endpoints{}, fmt.Errorf("backend %q: %w", p.backend, errName)
	}
	if p.address == "" {
		p.address = "127.0.0.1:0"
	}
	address, err := netip.ParseAddrPort(p.address)
	if err != nil || !address.Addr().IsLoopback() {
		return endpoints{}, fmt.Errorf("address %q: %w", p.address, errLoopback)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return endpoints{}, fmt.Errorf("folder of the load balancer: %w", err)
	}
	if p.socket = filepath.Join(dir, "runtime.sock"); len(p.socket) > maxSocketPath {
		return endpoints{}, fmt.Errorf("folder %s: the path of the socket in it would have more than %d characters: use a shorter path", dir, maxSocketPath)
	}
	if p.listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address)); err != nil {
		return endpoints{}, fmt.Errorf("listening for clients: %w", err)
	}
	p.address = p.listener.Addr().String()
	return p, nil
}
