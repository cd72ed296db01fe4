// Package filelock serializes processes of this machine that use the same lock file.
package filelock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pollInterval is the interval at which a lock that is held is tried again.
const pollInterval = 100 * time.Millisecond

// Lock takes the lock file at path, and waits for its holder until ctx ends; it calls waits
// once when there is a holder to wait for. The file stays, empty, when the lock is
// released: removing it would let two processes hold locks on different files of the same
// name.
func Lock(ctx context.Context, path string, waits func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of a lock: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for first := true; ; first = false {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if err != syscall.EWOULDBLOCK {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
