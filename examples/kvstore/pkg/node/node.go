package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
)

const (
	// enqueueTimeout bounds the wait of a command for its place in the log.
	enqueueTimeout = 5 * time.Second

	lockTimeout = 10 * time.Second

	restoreTimeout = time.Minute
)

// Errors of a member. ErrUnavailable and ErrNotLeader mean that a command was not
// replicated; ErrUnknown means that it may have been, and may still be.
var (
	ErrNotLeader   = errors.New("not the leader")
	ErrUnavailable = errors.New("unavailable")
	ErrUnknown     = errors.New("the outcome is unknown")
)

// Node is one member. It is safe for concurrent use.
type Node struct {
	options   Options
	log       *slog.Logger
	machine   *machine.Machine
	raft      *raft.Raft
	transport *raft.NetworkTransport
	store     *raftboltdb.BoltStore
	snapshots *raft.FileSnapshotStore
	admitted  *atomic.Bool // connections of other members are accepted

	mu sync.Mutex // guards readable
	// readable is the term in which this member, as its leader, has applied all commands
	// of earlier terms. 0: no term.
	readable uint64
}

// Open starts a member with the data in its folder, or as a member of no cluster: see
// Bootstrap and AddMember.
func Open(ctx context.Context, o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of data: %w", err)
	}
	n := &Node{options: o, log: o.Log, admitted: &atomic.Bool{}}
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.closeFiles())
	}
	return n, nil
}

func (n *Node) open(ctx context.Context) (err error) {
	if n.machine, err = machine.Open(filepath.Join(n.options.Dir, "state.db")); err != nil {
		return err
	}
	n.store, err = raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(n.options.Dir, "log.db"), BoltOptions: &bolt.Options{Timeout: lockTimeout},
	})
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	n.snapshots, err = raft.NewFileSnapshotStoreWithLogger(n.options.Dir, snapshotsKept, logger(n.log))
	if err != nil {
		return fmt.Errorf("opening the snapshots: %w", err)
	}
	hasData, err := n.HasData()
	if err != nil {
		return err
	}
	n.admitted.Store(hasData)
	if n.transport, err = listen(ctx, n.options, n.admitted); err != nil {
		return err
	}
	n.raft, err = raft.NewRaft(n.options.raft(), n.machine, n.store, n.store, n.snapshots, n.transport)
	if err != nil {
		return fmt.Errorf("starting raft: %w", err)
	}
	return nil
}

// Close ends the member. Its data stay.
func (n *Node) Close() error {
	var err error
	if stopped := n.raft.Shutdown().Error(); stopped != nil {
		err = fmt.Errorf("stopping raft: %w", stopped)
	}
	return errors.Join(err, n.closeFiles())
}

func (n *Node) closeFiles() error {
	var errs []error
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	if n.machine != nil {
		errs = append(errs, n.machine.Close())
	}
	return errors.Join(errs...)
}

// Apply replicates a command and returns its result. ErrNotLeader, ErrUnavailable and
// ErrUnknown are returned as described there.
func (n *Node) Apply(ctx context.Context, command machine.Command) (machine.Result, error) {
	if err := command.Validate(); err != nil {
		return machine.Result{}, err
	}
	data, err := command.Encode()
	if err != nil {
		return machine.Result{}, err
	}
	future := n.raft.Apply(data, enqueueTimeout)
	if err := await(ctx, future); err != nil {
		return machine.Result{}, err
	}
	result, ok := future.Response().(machine.Result)
	if !ok {
		return machine.Result{}, fmt.Errorf("%w: a result of type %T", ErrUnknown, future.Response())
	}
	return result, nil
}

// await waits for a future of raft, and returns its error as one of this package.
func await(ctx context.Context, future raft.Future) error {
	ended := make(chan error, 1)
	go func() { ended <- future.Error() }() // it ends with the future, which raft ends
	select {
	case err := <-ended:
		return classify(err)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// classify returns the error of this package for an error of raft. nil stays nil.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrAbortedByRestore):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// Read returns the entry of a key, with all writes that were acknowledged before the call.
//
// The member has to be the leader of one term from the choice of the term to the end of the
// verification. In its term, acknowledged writes are applied, and the barrier has applied
// the writes of earlier terms. A leader that was replaced in between has another term.
func (n *Node) Read(ctx context.Context, key string) (machine.Entry, error) {
	if err := machine.ValidateKey(key); err != nil {
		return machine.Entry{}, err
	}
	if err := n.verify(ctx); err != nil {
		return machine.Entry{}, err
	}
	return n.machine.Get(key)
}

// verify returns nil when the state has all writes that were acknowledged before the call.
func (n *Node) verify(ctx context.Context) error {
	term := n.raft.CurrentTerm()
	if n.raft.State() != raft.Leader {
		return ErrNotLeader
	}
	if err := n.catchUp(ctx, term); err != nil {
		return err
	}
	if err := await(ctx, n.raft.VerifyLeader()); err != nil {
		return err
	}
	if n.raft.CurrentTerm() != term {
		return fmt.Errorf("%w: the term has changed", ErrUnavailable)
	}
	return nil
}

// catchUp applies the commands of earlier terms, once a term.
func (n *Node) catchUp(ctx context.Context, term uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readable == term {
		return nil
	}
	if err := await(ctx, n.raft.Barrier(enqueueTimeout)); err != nil {
		return err
	}
	if n.raft.CurrentTerm() != term {
		return fmt.Errorf("%w: the term has changed", ErrUnavailable)
	}
	n.readable = term
	return nil
}

// View returns a consistent state for a backup, with all writes that were acknowledged
// before the call. The caller calls Release.
func (n *Node) View(ctx context.Context) (*machine.View, error) {
	if err := n.verify(ctx); err != nil {
		return nil, err
	}
	return n.machine.View()
}
