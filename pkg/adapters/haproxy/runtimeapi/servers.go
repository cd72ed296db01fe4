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

// Server is the state of one server as HAProxy reports it.
type Server struct {
	Name    string
	Address netip.AddrPort // not valid for a server whose name HAProxy must resolve
	State   State
	Weight  int

	// Running reports whether HAProxy considers the server up; without a check it always
	// does.
	Running bool
	// HasCheck reports whether the server has a check, Checked whether the check is on.
	HasCheck, Checked bool
	// Passed reports whether the check passes: the last check passed, and a check has
	// passed since the server left maintenance, where the check is off and its old result
	// stays.
	Passed bool

	// Sessions is the number of requests (connections, in mode tcp) that the server has or
	// that wait for it. An idle keep-alive connection does not count.
	Sessions int
}

// Serves reports whether the server gets its share of the traffic:
//
//   - it is ready,
//   - HAProxy considers it up,
//   - its check passed, if it has a check.
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

// Servers returns the servers of a backend by name. It returns ErrNoBackend, and ErrAnswer
// for a truncated answer, which may lack a server that exists.
func (c *Client) Servers(ctx context.Context, backend string) (map[string]Server, error) {
	if err := CheckBackend(backend); err != nil {
		return nil, err
	}
	// The states are read first: the sessions that are counted after a server was seen
	// draining are all that remain.
	states, err := c.table(ctx, "show servers state "+backend, parseStates)
	if err != nil {
		return nil, err
	}
	if len(states) == 0 {
		return map[string]Server{}, nil
	}
	// The id selects the backend, since a frontend may have the same name.
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

// addStats adds the second table. It ignores servers that were added between the two reads.
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
			return fmt.Errorf("%w: server %s was removed while its sessions were counted", ErrAnswer, name)
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
	// A table ends with an empty line; a table without an empty line was truncated.
	if !strings.HasSuffix(answer, "\n\n") {
		return nil, fmt.Errorf("%w: %q was truncated after %d bytes", ErrAnswer, command, len(answer))
	}
	rows, err := parse(answer)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrAnswer, command, err)
	}
	return rows, nil
}

// row is one line of a table by column name; columns differ between versions.
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

// isHealthy reports whether checks have passed since the server left maintenance. Its
// health then begins at rise, below the maximum; a check that passes raises it to the
// maximum, and a check that fails lowers it. The columns are empty while the check is off.
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
		State:    adminState(numbers["srv_admin_state"]),
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

func adminState(admin int) State {
	switch {
	case admin&adminMaint != 0:
		return StateMaint
	case admin&adminDrain != 0:
		return StateDrain
	default:
		return StateReady
	}
}

// parseStates parses "show servers state": a line with the version of the format, a line with the
// columns, and a line for each server, separated by spaces.
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
				return nil, fmt.Errorf("got %q instead of the columns", clip(line))
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

// parseStats parses "show stat": CSV whose first line is a comment with the columns.
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
