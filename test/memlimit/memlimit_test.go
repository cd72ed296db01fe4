package memlimit_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/podops-dev/podops/test/memlimit"
)

// TestTheKernelKillsAProcessOverTheLimit runs dd with a block that does not fit.
func TestTheKernelKillsAProcessOverTheLimit(t *testing.T) {
	group, err := memlimit.New(fmt.Sprintf("podops-memlimit-test-%d", os.Getpid()), 32<<20)
	if errors.Is(err, memlimit.ErrUnavailable) {
		// Visible without -v, too: without a limit this test shows nothing.
		fmt.Fprintf(os.Stderr, "\n*** SKIPPED: test/memlimit runs a process in a memory limit, and: %v ***\n\n", err)
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Close(); err != nil {
			t.Error(err)
		}
	})
	run := func(blockSize string) error {
		words := group.Command("dd", "if=/dev/zero", "of=/dev/null", "count=1", "bs="+blockSize)
		return exec.CommandContext(t.Context(), words[0], words[1:]...).Run()
	}
	if err := run("1M"); err != nil {
		t.Fatalf("a process below the limit: %v", err)
	}
	if err := run("128M"); err == nil {
		t.Error("a process over the limit must be killed")
	}
	kills, err := group.Kills()
	if err != nil || kills != 1 {
		t.Errorf("Kills() = %d, %v, want 1", kills, err)
	}
	peak, err := group.Peak()
	if err != nil || peak < 16<<20 || peak > 32<<20 {
		t.Errorf("Peak() = %d, %v, want at most the limit and near it", peak, err)
	}
}
