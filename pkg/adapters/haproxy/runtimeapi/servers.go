package runtimeapi

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Server is what HAProxy says of one server.
type Server struct {
	Name    string
	Address netip.AddrPort // not valid for a server that is a name HAProxy has to resolve
	State   State
	Weight  int

	// Running says that HAProxy takes the server for up; without a check it always does.
	Running bool
	// Checked says that the server has a check that is on, HasCheck that it has one.
	HasCheck, Checked bool
	// Passed says that the check passes: the last one did, and one did since the server
	// left maintenance, where nothing is checked and the old result stays.
	Passed bool

	// Sessions is how many requests (connections, in mode tcp) are with the server or
	// wait for it. A connection that is kept alive without a request does not count.
	Sessions int
}

// Serves says that the server gets its share of the traffic:
//   - it is ready,
//   - HAProxy takes it for up,
//   - its check passed, if it has one.
func (s Server) Serves() bool {
	return s.State == StateReady && s.Running && (!s.HasCheck || s.Checked && s.Passed)
}

// Bits of srv_admin_state and srv_check_state, and values of srv_op_state and
// srv_check_result, from include/haproxy/server-t.h and check-t.h.
const (
	adminMaint   = 0x01 | 0x02 | 0x04 | 0x20 | 0x40
	adminDrain   = 0x08 | 0x10
	opRunning    = 2
	checkHas     = 0x02
	checkEnabled = 0x04
	resultPassed = 3
)

// Servers returns the servers of a backend by name. ErrNoBackend; ErrAnswer when an answer
// was cut, since a server that is missing from it may be there.
func (c *Client) Servers(ctx context.Context, backend string) (map[string]Server, error) {
	if err := CheckBackend(backend); err != nil {
		return nil, err
	}
	// States come first: sessions that are counted after a server was seen draining are
	// all there will be.
	states, err := c.table(ctx, "show servers state "+backend, parseStates)
	if err != nil {
		return nil, err
	}
	if len(states) == 0 {
		return map[string]Server{}, nil
	}
	// By id, since a frontend may have the name of the backend.
	id, err := states[0].number("be_id")
	if err != nil {
		return nil, fmt.Errorf("%w: backend %s: %w", ErrAnswer, backend, err)
	}
	stats, err := c.table(ctx, fmt.Sprintf("show stat %d 4 -1", id), parseStats)
	if err != nil {
		return nil, err
	}
	servers := make(map[string]Server, len(states))
	for _, state := range states {
		server, err := state.server()
		if err != nil {
			return nil, fmt.Errorf("%w: server %s: %w", ErrAnswer, clip(state["srv_name"]), err)
		}
		servers[server.Name] = server
	}
	return servers, addStats(servers, stats)
}

// addStats fills in what the second table says. Servers that only it has were added in
// between.
func addStats(servers map[string]Server, stats []row) error {
	counted := make(map[string]bool, len(stats))
	for _, stat := range stats {
		server, known := servers[stat["svname"]]
		if !known {
			continue
		}
		current, err := stat.number("scur")
		if err != nil {
			return fmt.Errorf("%w: server %s: %w", ErrAnswer, server.Name, err)
		}
		queued, err := stat.number("qcur")
		if err != nil {
			return fmt.Errorf("%w: server %s: %w", ErrAnswer, server.Name, err)
		}
		server.Sessions = current + queued
		server.Passed = server.Passed && stat.isHealthy()
		servers[server.Name] = server
		counted[server.Name] = true
	}
	for name := range servers {
		if !counted[name] {
			return fmt.Errorf("%w: server %s went while its sessions were counted", ErrAnswer, name)
		}
	}
	return nil
}

func (c *Client) table(ctx context.Context, command string, parse func(string) ([]row, error)) ([]row, error) {
	answer, err := c.run(ctx, command)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(answer, "1\n# ") && !strings.HasPrefix(answer, "# ") {
		return nil, refusal(command, strings.TrimSpace(answer))
	}
	// A table ends with an empty line. One that does not was cut.
	if !strings.HasSuffix(answer, "\n\n") {
		return nil, fmt.Errorf("%w: %q was cut after %d bytes", ErrAnswer, command, len(answer))
	}
	rows, err := parse(answer)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrAnswer, command, err)
	}
	return rows, nil
}

// row is one line of a table by the names of its columns, which differ between versions.
type row map[string]string

func (r row) number(column string) (int, error) {
	text, has := r[column]
	if !has {
		return 0, fmt.Errorf("column %s is missing", column)
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("column %s is %q, want a number", column, clip(text))
	}
	return value, nil
}

// isHealthy says that checks have passed since the server left maintenance. Then its health
// begins at rise, below the most there is; one that passes lifts it there, one that fails
// takes from it. The columns are empty while nothing is checked.
func (r row) isHealthy() bool {
	var numbers [3]int
	for i, column := range []string{"check_health", "check_rise", "check_fall"} {
		value, err := r.number(column)
		if err != nil {
			return false
		}
		numbers[i] = value
	}
	return numbers[0] >= numbers[1]+numbers[2]-1
}

func (r row) server() (Server, error) {
	numbers := map[string]int{}
	for _, column := range []string{
		"srv_op_state", "srv_admin_state", "srv_uweight", "srv_check_result", "srv_check_state", "srv_port",
	} {
		value, err := r.number(column)
		if err != nil {
			return Server{}, err
		}
		numbers[column] = value
	}
	server := Server{
		Name:     r["srv_name"],
		State:    stateOf(numbers["srv_admin_state"]),
		Weight:   numbers["srv_uweight"],
		Running:  numbers["srv_op_state"] == opRunning,
		HasCheck: numbers["srv_check_state"]&checkHas != 0,
		Checked:  numbers["srv_check_state"]&checkEnabled != 0,
		Passed:   numbers["srv_check_result"] >= resultPassed,
	}
	// A server without an address yet has "-" here.
	if address, err := netip.ParseAddr(r["srv_addr"]); err == nil && numbers["srv_port"] <= 65535 && numbers["srv_port"] >= 0 {
		server.Address = netip.AddrPortFrom(address, uint16(numbers["srv_port"]))
	}
	return server, nil
}

func stateOf(admin int) State {
	switch {
	case admin&adminMaint != 0:
		return StateMaint
	case admin&adminDrain != 0:
		return StateDrain
	default:
		return StateReady
	}
}

// parseStates reads "show servers state": a line with the version of the format, one with
// the columns, and one for each server, separated by spaces.
func parseStates(answer string) ([]row, error) {
	version, rest, _ := strings.Cut(answer, "\n")
	if version != "1" {
		return nil, fmt.Errorf("version %q of the format, want 1", clip(version))
	}
	var rows []row
	var columns []string
	for line := range strings.Lines(strings.TrimSpace(rest)) {
		fields := strings.Fields(line)
		if columns == nil {
			if len(fields) < 2 || fields[0] != "#" {
				return nil, fmt.Errorf("%q stands where the columns should", clip(line))
			}
			columns = fields[1:]
			continue
		}
		one, err := named(columns, fields)
		if err != nil {
			return nil, err
		}
		rows = append(rows, one)
	}
	return rows, nil
}

// parseStats reads "show stat": CSV whose first line is a comment with the columns.
func parseStats(answer string) ([]row, error) {
	reader := csv.NewReader(strings.NewReader(strings.TrimPrefix(answer, "# ")))
	records, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading CSV: %w", err)
	}
	if len(records) == 0 {
		return nil, errors.New("no line with columns")
	}
	var rows []row
	for _, record := range records[1:] {
		one, err := named(records[0], record)
		if err != nil {
			return nil, err
		}
		rows = append(rows, one)
	}
	return rows, nil
}

func named(columns, fields []string) (row, error) {
	if len(columns) != len(fields) {
		return nil, fmt.Errorf("a line has %d fields, want %d", len(fields), len(columns))
	}
	out := make(row, len(columns))
	for i, column := range columns {
		out[column] = fields[i]
	}
	return out, nil
}
