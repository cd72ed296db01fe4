package runtimeapi

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const stateColumns = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight " +
	"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state srv_port"

// stateLine returns one line of "show servers state" with the given op state, admin state,
// check result and check state.
func stateLine(name, op, admin, result, check string) string {
	return strings.Join([]string{"3 web 1", name, "10.0.0.1", op, admin, "20 20 5 15", result, "4", check, "0 8080"}, " ")
}

func TestParseTheStateOfAServer(t *testing.T) {
	for sentence, tc := range map[string]struct {
		op, admin, result, check string
		want                     Server
		serves                   bool
	}{
		"ready without a check":              {"2", "0", "0", "0", Server{State: StateReady, Running: true}, true},
		"ready, its check passed":            {"2", "0", "3", "6", Server{State: StateReady, Running: true, HasCheck: true, Checked: true, Passed: true}, true},
		"ready, its check never ran":         {"2", "0", "0", "7", Server{State: StateReady, Running: true, HasCheck: true, Checked: true}, false},
		"ready, its check failed once":       {"2", "0", "2", "6", Server{State: StateReady, Running: true, HasCheck: true, Checked: true}, false},
		"ready, its check was never started": {"2", "0", "3", "2", Server{State: StateReady, Running: true, HasCheck: true, Passed: true}, false},
		"ready and down":                     {"0", "0", "2", "6", Server{State: StateReady, HasCheck: true, Checked: true}, false},
		"ready and starting slowly":          {"1", "0", "3", "6", Server{State: StateReady, HasCheck: true, Checked: true, Passed: true}, false},
		"draining":                           {"2", "8", "0", "0", Server{State: StateDrain, Running: true}, false},
		"in maintenance":                     {"0", "1", "0", "0", Server{State: StateMaint}, false},
		"in maintenance, and draining":       {"0", "9", "0", "0", Server{State: StateMaint}, false},
		"in maintenance by its name":         {"0", "32", "0", "0", Server{State: StateMaint}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			rows, err := parseStates("1\n" + stateColumns + "\n" + stateLine("a", tc.op, tc.admin, tc.result, tc.check) + "\n\n")
			if err != nil {
				t.Fatal(err)
			}
			got, err := rows[0].server()
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Name, tc.want.Weight, tc.want.Address = "a", 20, netip.MustParseAddrPort("10.0.0.1:8080")
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("server (-want +got):\n%s", diff)
			}
			if got.Serves() != tc.serves {
				t.Errorf("Serves = %v, want %v", got.Serves(), tc.serves)
			}
		})
	}
}

func TestAServerWithoutAnAddressHasNone(t *testing.T) {
	line := strings.Replace(stateLine("a", "2", "0", "0", "0"), "10.0.0.1", "-", 1)
	rows, err := parseStates("1\n" + stateColumns + "\n" + line + "\n\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := rows[0].server()
	if err != nil || got.Address.IsValid() {
		t.Errorf("server = %+v, %v, want no address", got, err)
	}
}

const statsTable = "# pxname,svname,qcur,scur,last_chk,\n" +
	"web,a,1,2,\"quoted, \"\"text\"\"\",\n" +
	"web,other,7,7,,\n\n"

func TestSessionsIncludeQueuedRequests(t *testing.T) {
	rows, err := parseStats(statsTable)
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]Server{"a": {Name: "a"}}
	if err := addStats(servers, rows); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]Server{"a": {Name: "a", Sessions: 3}}, servers, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestTheResultOfACheckFromBeforeMaintenanceDoesNotCount(t *testing.T) {
	for sentence, tc := range map[string]struct {
		health string
		want   bool
	}{
		"no check since maintenance": {"2,2,3", false},
		"one passed since":           {"4,2,3", true},
		"nothing is checked":         {",,", false},
		"the columns do not exist":   {"x,y,z", false},
	} {
		rows, err := parseStats("# svname,qcur,scur,check_health,check_rise,check_fall\na,0,0," + tc.health + "\n\n")
		if err != nil {
			t.Fatal(err)
		}
		servers := map[string]Server{"a": {Name: "a", Passed: true}}
		if err := addStats(servers, rows); err != nil || servers["a"].Passed != tc.want {
			t.Errorf("%s: Passed = %v, %v, want %v", sentence, servers["a"].Passed, err, tc.want)
		}
	}
}

func TestAServerWhoseSessionsAreUnknownIsAnError(t *testing.T) {
	rows, err := parseStats(statsTable)
	if err != nil {
		t.Fatal(err)
	}
	if err := addStats(map[string]Server{"gone": {Name: "gone"}}, rows); !errors.Is(err, ErrAnswer) {
		t.Errorf("err = %v, want ErrAnswer: it must not count as a server without sessions", err)
	}
}

func TestInvalidTablesAreErrors(t *testing.T) {
	good := stateLine("a", "2", "0", "0", "0")
	for sentence, table := range map[string]string{
		"another version":         "2\n" + stateColumns + "\n" + good,
		"no columns":              "1\n" + good,
		"a line that is too long": "1\n" + stateColumns + "\n" + good + " more",
	} {
		if _, err := parseStates(table + "\n\n"); err == nil {
			t.Errorf("%s: no error", sentence)
		}
	}
	if _, err := parseStats("# pxname,svname\nweb\n\n"); err == nil {
		t.Error("a short line of statistics: no error")
	}
	if _, err := parseStats(""); err == nil {
		t.Error("no statistics: no error")
	}
	for _, column := range []string{"srv_port", "srv_op_state"} {
		rows, err := parseStates("1\n" + strings.Replace(stateColumns, column, "renamed", 1) + "\n" + good + "\n\n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rows[0].server(); err == nil || !strings.Contains(err.Error(), column) {
			t.Errorf("without the column %s: %v, want an error that names it", column, err)
		}
	}
}

func FuzzAnswersNeverPanic(f *testing.F) {
	f.Add("1\n" + stateColumns + "\n" + stateLine("a", "2", "0", "0", "0") + "\n\n")
	f.Add(statsTable)
	f.Fuzz(func(_ *testing.T, answer string) {
		states, err := parseStates(answer)
		servers := map[string]Server{}
		for _, state := range states {
			if server, problem := state.server(); problem == nil && err == nil {
				servers[server.Name] = server
			}
		}
		if stats, err := parseStats(answer); err == nil {
			_ = addStats(servers, stats)
		}
	})
}
