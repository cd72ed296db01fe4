package front

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxSessions bounds the open requests of all servers.
	maxSessions = 4096

	// maxServers bounds the pool.
	maxServers = 1000

	maxWeight     = 256
	defaultWeight = 1

	// fall is the number of failed checks in a row after which a server goes down, rise the
	// number of passed checks after which it comes up. They are HAProxy's defaults.
	fall, rise = 3, 2

	defaultInterval = 2 * time.Second
)

// state is the administrative state of a server.
type state string

const (
	ready state = "ready"
	drain state = "drain"
	maint state = "maint"
)

// health holds the results of the checks.
type health struct {
	configured bool
	enabled    bool
	paused     bool // since the server went into maintenance
	interval   time.Duration
	tried      bool // a check has ended since checks were enabled
	passed     bool // the last check passed
	down       bool // it gets no traffic because of its checks
	streak     int  // checks in a row that contradict down
}

// record adds the result of a check.
func (h *health) record(passed bool) {
	// The first check decides alone.
	if !h.tried {
		h.tried, h.passed, h.down, h.streak = true, passed, !passed, 0
		return
	}
	h.passed = passed
	if passed != h.down {
		h.streak = 0
		return
	}
	h.streak++
	if need := map[bool]int{true: rise, false: fall}[h.down]; h.streak >= need {
		h.down, h.streak = !h.down, 0
	}
}

// backendServer is one server of the pool.
type backendServer struct {
	id       int
	name     string
	address  netip.AddrPort
	weight   int
	initial  int // weight it was added with
	state    state
	health   health
	share    int // state of smooth weighted round robin
	sessions map[int]context.CancelFunc
	stop     context.CancelFunc // of the checks; nil: they do not run
}

// serves reports whether new requests may go to it.
func (s *backendServer) serves() bool {
	return s.state == ready && s.weight > 0 && !s.health.down
}

// pool holds the servers of the only backend. It is safe for concurrent use.
type pool struct {
	mu       sync.Mutex
	servers  []*backendServer // in the order in which they were added
	sessions int
	next     int // number of the next session
}

// session is an open request of a server.
type session struct {
	server  string
	address netip.AddrPort
	end     func()
}

// pick assigns a request to a server and counts it there, atomically: a server that is seen
// draining without sessions gets no more. It returns false when no server takes requests.
// The returned context ends when the session is shut down. The caller must call end.
func (p *pool) pick(ctx context.Context) (context.Context, session, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *backendServer
	total := 0
	for _, s := range p.servers {
		if !s.serves() {
			continue
		}
		// Every server gains its weight, and the picked server loses the sum.
		s.share += s.weight
		total += s.weight
		if best == nil || s.share > best.share {
			best = s
		}
	}
	if best == nil || p.sessions >= maxSessions {
		return ctx, session{}, false
	}
	best.share -= total
	ctx, cancel := context.WithCancel(ctx)
	number := p.next
	p.next++
	p.sessions++
	best.sessions[number] = cancel
	return ctx, session{server: best.name, address: best.address, end: func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		cancel()
		delete(best.sessions, number)
		p.sessions--
	}}, true
}

// find calls do with a server, under the lock; false when no server has that name.
func (p *pool) find(name string, do func(*backendServer)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.servers, func(s *backendServer) bool { return s.name == name })
	if at >= 0 {
		do(p.servers[at])
	}
	return at >= 0
}

// each calls do with every server, under the lock.
func (p *pool) each(do func(*backendServer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		do(s)
	}
}

// add adds a server to the pool, in maintenance. It returns the answer to the command, and
// whether the server was added.
func (p *pool) add(server *backendServer) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := map[int]bool{}
	for _, s := range p.servers {
		if s.name == server.name {
			return "Already exists a server with the same name in backend.", false
		}
		taken[s.id] = true
	}
	if len(p.servers) >= maxServers {
		return fmt.Sprintf("no more than %d servers are possible", maxServers), false
	}
	server.state, server.sessions = maint, map[int]context.CancelFunc{}
	// It takes the lowest free number, as HAProxy does.
	for server.id = 1; taken[server.id]; server.id++ {
	}
	p.servers = append(p.servers, server)
	return "New server registered.", true
}

// remove removes a server that is in maintenance and has no session left.
func (p *pool) remove(name string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.servers, func(s *backendServer) bool { return s.name == name })
	if at < 0 {
		return "No such server.", false
	}
	s := p.servers[at]
	switch {
	case s.state != maint:
		return "Only servers in maintenance mode can be deleted.", false
	case len(s.sessions) > 0:
		return "Server still has connections attached to it, cannot remove it.", false
	}
	if s.stop != nil {
		s.stop()
	}
	p.servers = slices.Delete(p.servers, at, at+1)
	return "Server deleted.", true
}
