package cputime_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/cputime"
)

// TestUsed shows that waiting costs no CPU time and that computing does, as read from another
// goroutine.
func TestUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has clocks of threads")
	}
	const most = 200 * time.Millisecond
	watches, compute, done := make(chan cputime.Stopwatch), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		watch := cputime.Start()
		watches <- watch
		<-compute
		for watch.Used() < most { // it computes
		}
		watches <- watch
		<-compute
	}()
	watch := <-watches
	time.Sleep(most) // elapsed time must not count
	if used := watch.Used(); used >= most/2 {
		t.Errorf("waiting took %s of CPU time", used)
	}
	compute <- struct{}{}
	if used := (<-watches).Used(); used < most {
		t.Errorf("computing took %s of CPU time, want at least %s", used, most)
	}
	close(compute)
	<-done
}
