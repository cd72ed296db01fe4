package test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/load"
)

// underLoad runs steps while workers write and read, and returns the report.
func (c *cluster) underLoad(steps func()) load.Report {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var (
		report load.Report
		err    error
		ended  sync.WaitGroup
	)
	ended.Go(func() {
		report, err = load.Run(ctx, load.Options{
			Name: "load", Service: "kv", Port: api.DefaultPort, Resolver: c.resolver(), Writers: 4, Readers: 4, Keys: 3, Interval: 5 * time.Millisecond,
			AttemptTimeout: load.DefaultAttemptTimeout, OperationTimeout: load.DefaultOperationTimeout, CheckTimeout: load.CheckTimeout,
		})
	})
	func() {
		defer ended.Wait() // a step that fails the test ends this goroutine
		defer stop()
		steps()
	}()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%d reads, %d writes in %.1f s, %d leader changes; failed attempts: %+v", report.Reads.Succeeded, report.Writes.Succeeded, report.Seconds, len(report.LeaderChanges), report.Failures)
	return report
}

// intact fails the test unless the report shows that the store has kept its data.
func intact(t *testing.T, r load.Report) {
	t.Helper()
	if r.LostWrites > 0 || r.RepeatedWrites > 0 {
		t.Errorf("%d acknowledged writes are lost, %d writes were applied more than once: %v", r.LostWrites, r.RepeatedWrites, r.Examples)
	}
	if r.Linearizable != porcupine.Ok {
		t.Errorf("linearizable: %s", r.Linearizable)
	}
	if r.Reads.Failed > 0 || r.Writes.Failed > 0 {
		t.Errorf("%d reads and %d writes had no answer in time: %+v", r.Reads.Failed, r.Writes.Failed, r.Failures)
	}
	if r.Reads.Succeeded == 0 || r.Writes.Succeeded == 0 {
		t.Errorf("%d reads and %d writes: nothing was tested", r.Reads.Succeeded, r.Writes.Succeeded)
	}
}

func TestNoAcknowledgedWriteIsLostWhenLeadersAreKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	c.up(3, "1.0")
	report := c.underLoad(func() {
		for range 3 {
			leader := c.leader()
			c.awaitWrites(leader)
			leader.end(t, syscall.SIGKILL)
			c.leader()
			c.restart(leader, "1.0")
		}
	})
	intact(t, report)
	if len(report.LeaderChanges) < 3 {
		t.Errorf("%d leader changes, want at least 3", len(report.LeaderChanges))
	}
}

// awaitWrites waits until a member has applied some more writes.
func (c *cluster) awaitWrites(p *process) {
	c.t.Helper()
	const writes = 50
	var first uint64
	await(c.t, p.id+" applies writes", func(ctx context.Context) (bool, string) {
		status, err := c.client.Status(ctx, p.address)
		if err != nil {
			return false, err.Error()
		}
		if first == 0 {
			first = status.AppliedIndex
		}
		return status.AppliedIndex >= first+writes, fmt.Sprintf("%d of %d", status.AppliedIndex-first, writes)
	})
}

// hasLogged reports whether the log of a member has a message.
func (c *cluster) hasLogged(p *process, message string) bool {
	c.t.Helper()
	log, err := os.ReadFile(c.log(p.id))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Contains(string(log), message)
}

// restart starts a member that has ended, and waits until it is ready.
func (c *cluster) restart(p *process, version string) {
	c.t.Helper()
	for n, other := range c.members {
		if other == p {
			c.start(n, version)
		}
	}
	c.awaitReady()
}

// patientElection are flags of members that elect no other leader when a busy machine delays heartbeats. They are for
// tests in which leadership moves on request only, and no member is killed.
func patientElection() []string { return []string{"--election-timeout", "5s"} }

// TestNoAttemptFailsWhileLeadershipMoves shows that members hold requests back during the change.
func TestNoAttemptFailsWhileLeadershipMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.flags = patientElection()
	c.up(3, "1.0")
	report := c.underLoad(func() {
		for range 5 {
			leader := c.leader()
			c.awaitWrites(leader)
			moved, err := c.client.TransferLeadership(t.Context(), leader.address)
			if err != nil || !moved.Transferred || moved.Leader == leader.id || moved.Leader == "" {
				t.Fatalf("moving leadership away from %s: %+v, %v", leader.id, moved, err)
			}
		}
	})
	intact(t, report)
	if report.Reads.FailedAttempts > 0 || report.Writes.FailedAttempts > 0 {
		t.Errorf("failed attempts: %+v", report.Failures)
	}
}

func TestUpgradeOfEveryMemberMovesLeadershipFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.flags = patientElection()
	c.up(3, "1.0")
	report := c.underLoad(func() {
		for n := len(c.members) - 1; n >= 0; n-- {
			p := c.members[n]
			c.awaitWrites(p)
			leads := c.leader() == p
			p.end(t, syscall.SIGTERM)
			if leads && !c.hasLogged(p, "Moved leadership away") {
				t.Errorf("%s leads, and has not moved leadership away", p.id)
			}
			if code := p.command.ProcessState.ExitCode(); code != 0 {
				t.Errorf("%s ended with %d after SIGTERM, want 0", p.id, code)
			}
			c.restart(p, "2.0")
			c.awaitWrites(p)
		}
	})
	intact(t, report)
	for _, p := range c.members {
		if status, err := c.client.Status(t.Context(), p.address); err != nil || status.Version != "2.0" {
			t.Errorf("%s has version %q, %v; want 2.0", p.id, status.Version, err)
		}
	}
}

func TestWritesSurviveTheEndOfAllMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.up(3, "1.0")
	report := c.underLoad(func() {
		c.awaitWrites(c.leader())
		for _, p := range c.members {
			p.signal(syscall.SIGKILL)
		}
		for n, p := range c.members {
			<-p.ended
			c.start(n, "1.0")
		}
		c.awaitReady()
	})
	intact(t, report)
}

func TestAMemberThatLostItsDataIsAddedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	c.up(3, "1.0")
	report := c.underLoad(func() {
		for _, n := range []int{0, 2} { // kv-0 began the cluster, and must not begin another
			p := c.members[n]
			p.end(t, syscall.SIGTERM)
			if err := os.RemoveAll(c.data(p.id)); err != nil {
				t.Fatal(err)
			}
			c.restart(p, "1.0")
		}
	})
	intact(t, report)
	if got := c.memberIDs(); len(got) != 3 {
		t.Errorf("members: %v, want 3", got)
	}
}
