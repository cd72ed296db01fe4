package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "lock")
	waits := 0
	unlock, err := Lock(t.Context(), path, func() { waits++ })
	if err != nil {
		t.Fatal(err)
	}
	if waits != 0 {
		t.Error("waits without a holder")
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Lock(short, path, func() { waits++ }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second holder: want %v, got %v", context.DeadlineExceeded, err)
	}
	if waits != 1 {
		t.Errorf("waits was called %d times", waits)
	}
	unlock()
	again, err := Lock(t.Context(), path, func() {})
	if err != nil {
		t.Fatalf("after its release: %v", err)
	}
	again()
}

func TestAWaiterGetsTheLockAfterItsRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Lock(t.Context(), path, unlock) // released while it waits
	if err != nil {
		t.Fatal(err)
	}
	second()
}
