package inspection_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// costly takes CPU for each module that it has not checked yet.
type costly struct {
	takes   time.Duration
	known   map[string]bool
	checked int
}

func (c *costly) Check(_ context.Context, source opa.Source) (time.Duration, error) {
	if c.known[source.Module] {
		return 0, nil
	}
	c.known[source.Module] = true
	c.checked++
	return c.takes, nil
}

func (c *costly) Known(source opa.Source) (opa.Inspection, bool) {
	return opa.Inspection{}, c.known[source.Module]
}

func owned(owner, source string) inspection.Module {
	made := module(source)
	made.Owner = owner
	return made
}

// TestANamespaceUsesUpItsOwnTime shows that it gets a 429 with the way out, that other namespaces and
// modules that were checked before do not, and that the budget refills.
func TestANamespaceUsesUpItsOwnTime(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	inspector := &costly{takes: time.Second, known: map[string]bool{}}
	checker := inspection.New(inspector, time.Minute, 2, clk)
	var err error
	for i := range 1000 {
		if _, err = checker.Check(t.Context(), owned("greedy", fmt.Sprint("module ", i))); err != nil {
			break
		}
	}
	if inspector.checked != 20 {
		t.Errorf("%d modules of a second each were checked, want 20", inspector.checked)
	}
	response := inspection.Unknown(err)
	if response.Allowed || response.Result.Code != http.StatusTooManyRequests || response.Result.Details.RetryAfterSeconds < 1 {
		t.Errorf("got %+v", response.Result)
	}
	for _, text := range []string{"greedy: ", "try again in 1s", "apply fewer new modules at a time"} {
		if !strings.Contains(response.Result.Message, text) {
			t.Errorf("message %q lacks %q", response.Result.Message, text)
		}
	}
	if _, err := checker.Check(t.Context(), owned("greedy", "module 0")); err != nil {
		t.Errorf("a module that was checked before is rejected: %v", err)
	}
	if _, err := checker.Check(t.Context(), owned("quiet", "another")); err != nil {
		t.Errorf("another namespace is rejected: %v", err)
	}
	clk.SetTime(clk.Now().Add(time.Minute))
	if _, err := checker.Check(t.Context(), owned("greedy", "later")); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// TestModulesInFlightAreBounded matters because requests that wait keep their modules in memory.
func TestModulesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := inspect(func(_ context.Context, source string) error {
			if strings.HasPrefix(source, "stuck") {
				<-release
			}
			return nil
		})
		checker := newChecker(stuck, time.Hour, 2)
		large := "stuck" + strings.Repeat("x", 1<<20)
		for range 3 {
			go func() { _, _ = checker.Check(t.Context(), owned("greedy", large)) }()
		}
		synctest.Wait()
		busy := &inspection.BusyError{}
		if _, err := checker.Check(t.Context(), owned("greedy", large)); !errors.As(err, &busy) {
			t.Errorf("got %v, want a BusyError", err)
		}
		if _, err := checker.Check(t.Context(), owned("quiet", "small")); err != nil {
			t.Errorf("another namespace is rejected: %v", err)
		}
		close(release)
		synctest.Wait()
		if _, err := checker.Check(t.Context(), owned("greedy", large)); err != nil {
			t.Errorf("got %v when nothing is in flight", err)
		}
	})
}
