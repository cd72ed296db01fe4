// Package pause waits between attempts.
package pause

import (
	"context"
	"time"
)

// For waits for a time, and reports whether it has passed before ctx ended.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
