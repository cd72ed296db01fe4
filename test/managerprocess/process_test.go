package managerprocess_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podops-dev/podops/test/managerprocess"
)

// TestMain runs the test program as the process that the tests start: "fail" ends at once, any other
// argument is the address of /readyz.
func TestMain(m *testing.M) {
	switch role := os.Getenv("MANAGERPROCESS_ROLE"); role {
	case "":
		os.Exit(m.Run())
	case "fail":
		fmt.Println("no kubeconfig")
		os.Exit(3)
	default:
		fmt.Println("ready at", role)
		http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
		panic(http.ListenAndServe(role, nil))
	}
}

// start starts the test program in a role.
func start(t *testing.T, role, log string, keep bool) *managerprocess.Process {
	t.Helper()
	p, err := managerprocess.Start(managerprocess.Options{
		Command: []string{"env", "MANAGERPROCESS_ROLE=" + role, os.Args[0]}, Log: log, Append: keep, Probe: role,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestAProcessIsReadyUntilItEnds(t *testing.T) {
	address, err := managerprocess.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	for _, keep := range []bool{false, true} {
		p := start(t, address, log, keep)
		if err := p.AwaitReady(t.Context()); err != nil || p.HasEnded() {
			t.Fatalf("ended %v, error %v", p.HasEnded(), err)
		}
		p.End()
		if p.Ready() == nil || !p.HasEnded() || p.ExitCode() != -1 {
			t.Errorf("the process has not ended by a signal")
		}
		want := 1
		if keep {
			want = 2
		}
		if got := strings.Count(p.Log(), "ready at"); got != want {
			t.Errorf("the log has %d starts, want %d:\n%s", got, want, p.Log())
		}
	}
}

func TestAnEndBeforeReadinessIsReportedWithTheLog(t *testing.T) {
	p := start(t, "fail", filepath.Join(t.TempDir(), "log"), false)
	err := p.AwaitReady(t.Context())
	if !errors.Is(err, managerprocess.ErrEnded) || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no kubeconfig") {
		t.Errorf("got %v", err)
	}
	if code := p.ExitCode(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}
