package front

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Values in the table of "show servers state", from HAProxy's include/haproxy/server-t.h
// and check-t.h.
const (
	opStopped, opRunning      = 0, 2
	adminMaint, adminDrain    = 0x01, 0x08
	checkConfigured           = 0x02
	checkEnabled, checkPaused = 0x04, 0x08
	resultFailed              = 2
	resultPassed              = 3
)

const (
	noServer  = "No such server."
	noBackend = "No such backend."

	stateColumns = "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight " +
		"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state " +
		"bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port"
	stateRow = "%d %s %d %s %s %d %d %d %d 0 0 %d 0 %d 0 0 0 - %d - 0 0 - - 0\n"

	statColumns = "pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight,"
	statRow     = "%s,%s,0,0,%d,,,,,,,,,,,,,%s,%d,\n"

	// backendID is the number of the only backend.
	backendID = 3

	// version is the HAProxy version whose answers this proxy gives.
	version = "2.6.12-embedded"
)

// commands answers the Runtime API with the answers of HAProxy, as far as an adapter needs
// them.
type commands struct {
	pool    *pool
	backend string
	// check starts the checks of a server, and returns a function that ends them.
	check func(name string, address netip.AddrPort, interval time.Duration) context.CancelFunc
}

// answer returns the answer to one command, without the empty line that ends it.
func (c *commands) answer(line string) string {
	words := strings.Fields(line)
	for _, known := range []struct {
		words string
		do    func(arguments []string) string
	}{
		{"show version", func([]string) string { return version }},
		{"show info", func([]string) string { return "Name: HAProxy\nVersion: " + version }},
		{"show servers state", c.showState},
		{"show stat", c.showStat},
		{"add server", c.addServer},
		{"del server", func(arguments []string) string { return c.named(arguments, c.delServer) }},
		{"enable server", func(arguments []string) string { return c.setState(arguments, ready) }},
		{"disable server", func(arguments []string) string { return c.setState(arguments, maint) }},
		{"enable health", func(arguments []string) string { return c.setHealth(arguments, true) }},
		{"disable health", func(arguments []string) string { return c.setHealth(arguments, false) }},
		{"set server", c.setServer},
		{"get weight", c.getWeight},
		{"shutdown sessions server", c.endSessions},
	} {
		name := strings.Fields(known.words)
		if len(words) >= len(name) && strings.Join(words[:len(name)], " ") == known.words {
			return known.do(words[len(name):])
		}
	}
	return "Unknown command: this embedded proxy supports only the commands of adapters."
}

// named finds the server that "backend/server" names, and calls do.
func (c *commands) named(arguments []string, do func(server string, rest []string) string) string {
	if len(arguments) == 0 {
		return "Require 'backend/server'."
	}
	backend, server, ok := strings.Cut(arguments[0], "/")
	switch {
	case !ok:
		return "Require 'backend/server'."
	case backend != c.backend:
		return noBackend
	}
	return do(server, arguments[1:])
}

// change calls do with a server, and returns its answer.
func (c *commands) change(arguments []string, do func(s *backendServer, rest []string) string) string {
	return c.named(arguments, func(server string, rest []string) string {
		text := ""
		if !c.pool.find(server, func(s *backendServer) { text = do(s, rest) }) {
			return noServer
		}
		return text
	})
}

func (c *commands) addServer(arguments []string) string {
	return c.named(arguments, func(name string, rest []string) string {
		if len(rest) == 0 {
			return "'server' expects <name> and <addr>[:<port>] as arguments."
		}
		if !backendName.MatchString(name) {
			return fmt.Sprintf("a character is not permitted in server name '%s'.", name)
		}
		address, err := netip.ParseAddrPort(rest[0])
		if err != nil || !address.Addr().IsLoopback() {
			return fmt.Sprintf("'%s': the embedded proxy requires a loopback address with a port.", rest[0])
		}
		s := &backendServer{name: name, address: address, weight: defaultWeight, health: health{interval: defaultInterval}}
		if refusal := s.read(rest[1:]); refusal != "" {
			return refusal
		}
		s.initial = s.weight
		text, _ := c.pool.add(s)
		return text
	})
}

// read parses the keywords of "add server". It returns an error text for an invalid keyword.
func (s *backendServer) read(words []string) string {
	for len(words) > 0 {
		keyword := words[0]
		words = words[1:]
		if keyword == "check" {
			s.health.configured = true
			continue
		}
		if keyword != "weight" && keyword != "inter" {
			return fmt.Sprintf("unknown keyword '%s'", keyword)
		}
		if len(words) == 0 {
			return fmt.Sprintf("'%s' expects a value.", keyword)
		}
		value := words[0]
		words = words[1:]
		var refusal string
		if keyword == "weight" {
			s.weight, refusal = readWeight(value)
		} else {
			s.health.interval, refusal = readInterval(value)
		}
		if refusal != "" {
			return refusal
		}
	}
	return ""
}

func readWeight(text string) (int, string) {
	weight, err := strconv.Atoi(text)
	if err != nil || weight < 0 || weight > maxWeight {
		return 0, "Absolute weight can only be between 0 and 256 inclusive."
	}
	return weight, ""
}

// readInterval parses an interval; a number without a unit is in milliseconds.
func readInterval(text string) (time.Duration, string) {
	if _, err := strconv.Atoi(text); err == nil {
		text += "ms"
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval < time.Millisecond || interval > time.Hour {
		return 0, fmt.Sprintf("'inter' expects 1ms to 1h, not '%s'.", text)
	}
	return interval, ""
}

func (c *commands) delServer(name string, _ []string) string {
	text, _ := c.pool.remove(name)
	return text
}

func (c *commands) setServer(arguments []string) string {
	return c.change(arguments, func(s *backendServer, rest []string) string {
		if len(rest) < 2 {
			return "usage: set server <backend>/<server> addr | state | weight"
		}
		switch rest[0] {
		case "state":
			return s.enter(state(rest[1]))
		case "weight":
			weight, refusal := readWeight(rest[1])
			if refusal == "" {
				s.weight = weight
			}
			return refusal
		case "addr":
			return s.move(rest[1:])
		default:
			return "usage: set server <backend>/<server> addr | state | weight"
		}
	})
}

func (c *commands) setState(arguments []string, to state) string {
	return c.change(arguments, func(s *backendServer, _ []string) string { return s.enter(to) })
}

// enter changes the state. A server that leaves maintenance must pass its checks again.
func (s *backendServer) enter(to state) string {
	if to != ready && to != drain && to != maint {
		return "'set server <srv> state' expects 'ready', 'drain' and 'maint'."
	}
	if s.state == maint && to != maint {
		s.health.tried, s.health.passed, s.health.down, s.health.streak = false, false, false, 0
	}
	s.state, s.share, s.health.paused = to, 0, to == maint
	return ""
}

func (s *backendServer) move(words []string) string {
	address, err := netip.ParseAddr(words[0])
	port := uint64(s.address.Port())
	if len(words) == 3 && words[1] == "port" && err == nil {
		port, err = strconv.ParseUint(words[2], 10, 16)
	}
	if err != nil || !address.IsLoopback() || port == 0 {
		return fmt.Sprintf("Invalid addr family or port in '%s'.", strings.Join(words, " "))
	}
	moved := netip.AddrPortFrom(address, uint16(port))
	if moved == s.address {
		return "no need to change the addr, no need to change the port by 'stats socket command'"
	}
	before := s.address
	s.address = moved
	return fmt.Sprintf("IP changed from '%s' to '%s', port changed from '%d' to '%d' by 'stats socket command'",
		before.Addr(), moved.Addr(), before.Port(), moved.Port())
}

func (c *commands) setHealth(arguments []string, enabled bool) string {
	return c.change(arguments, func(s *backendServer, _ []string) string {
		if !s.health.configured {
			return "Health checks are not enabled on this server, cannot change their state."
		}
		s.health.enabled = enabled
		if enabled && s.stop == nil {
			s.stop = c.check(s.name, s.address, s.health.interval)
		}
		return ""
	})
}

func (c *commands) getWeight(arguments []string) string {
	return c.change(arguments, func(s *backendServer, _ []string) string {
		return fmt.Sprintf("%d (initial %d)", s.weight, s.initial)
	})
}

func (c *commands) endSessions(arguments []string) string {
	return c.change(arguments, func(s *backendServer, _ []string) string {
		for _, cancel := range s.sessions {
			cancel()
		}
		return ""
	})
}

// showState returns the table of "show servers state", which ends with an empty line.
func (c *commands) showState(arguments []string) string {
	if len(arguments) > 0 && arguments[0] != c.backend {
		return "Can't find backend."
	}
	var table strings.Builder
	table.WriteString("1\n# " + stateColumns + "\n")
	c.pool.each(func(s *backendServer) {
		operation, admin := opStopped, 0
		if s.state != maint && !s.health.down {
			operation = opRunning
		}
		switch s.state {
		case maint:
			admin = adminMaint
		case drain:
			admin = adminDrain
		case ready:
		}
		result, check := s.health.codes()
		fmt.Fprintf(&table, stateRow, backendID, c.backend, s.id, s.name, s.address.Addr(), operation, admin, s.weight, s.initial,
			result, check, s.address.Port())
	})
	return table.String()
}

// codes returns the columns of the table for the check.
func (h health) codes() (result, check int) {
	if h.configured {
		check |= checkConfigured
	}
	if h.enabled {
		check |= checkEnabled
	}
	if h.enabled && h.paused {
		check |= checkPaused
	}
	switch {
	case !h.tried:
		return 0, check
	case h.passed:
		return resultPassed, check
	default:
		return resultFailed, check
	}
}

// showStat returns the rows of servers only, with any arguments.
func (c *commands) showStat(arguments []string) string {
	if len(arguments) > 0 && arguments[0] != c.backend && arguments[0] != strconv.Itoa(backendID) && arguments[0] != "-1" {
		return "No such proxy."
	}
	var table strings.Builder
	table.WriteString("# " + statColumns + "\n")
	c.pool.each(func(s *backendServer) {
		status := "UP"
		switch {
		case s.state == maint:
			status = "MAINT"
		case s.health.down:
			status = "DOWN"
		case s.state == drain:
			status = "DRAIN"
		case !s.health.configured:
			status = "no check"
		}
		fmt.Fprintf(&table, statRow, c.backend, s.name, len(s.sessions), status, s.weight)
	})
	return table.String()
}
