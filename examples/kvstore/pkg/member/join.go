package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
)

const (
	// joinInterval is the pause between two attempts to become a voter.
	joinInterval = 200 * time.Millisecond

	// peerTimeout bounds a request to one member of Seeds.
	peerTimeout = 3 * time.Second

	// logInterval is how often a member that waits logs the reason.
	logInterval = 5 * time.Second
)

// establish makes the member a voter, of a new cluster or of the cluster of its seeds. It
// returns when the member votes, or when ctx ends.
func (m *member) establish(ctx context.Context) error {
	var logged time.Time
	for {
		done, err := m.step(ctx)
		if done {
			m.log.Info("The member has its vote")
			return m.restore(ctx)
		}
		if err != nil && time.Since(logged) > logInterval {
			m.log.Info("Waiting for a cluster", "reason", err.Error())
			logged = time.Now()
		}
		if !pause.For(ctx, joinInterval) {
			return context.Cause(ctx)
		}
	}
}

// step takes the next step towards a vote, and reports whether the member has it. The error
// is why it does not.
func (m *member) step(ctx context.Context) (bool, error) {
	hasData, err := m.node.HasData()
	if err != nil {
		return false, err
	}
	if len(m.options.Seeds) == 0 {
		return m.alone(hasData)
	}
	peers, err := m.peers(ctx)
	if err != nil {
		return false, err
	}
	if !hasData && m.options.Bootstrap == m.options.Node.ID {
		none, err := m.noCluster(ctx, peers)
		if err != nil {
			return false, err
		}
		if none {
			m.log.Info("Beginning a new cluster")
			return false, m.bootstrap()
		}
	}
	return m.join(ctx, peers, !hasData)
}

// alone begins a cluster of this member if it has no data.
func (m *member) alone(hasData bool) (bool, error) {
	if !hasData {
		return false, m.bootstrap()
	}
	return m.node.IsLeader(), nil
}

func (m *member) bootstrap() error {
	if err := m.node.Bootstrap(); err != nil {
		return err
	}
	m.node.Admit()
	return nil
}

// peers returns the addresses of the seeds, without the address of this member. It returns
// an error while the seeds do not resolve to this member: other names may be missing as
// well.
func (m *member) peers(ctx context.Context) ([]string, error) {
	own, err := m.options.Resolver.Lookup(ctx, m.options.Node.Host)
	if err != nil {
		return nil, err
	}
	self := map[string]bool{}
	for _, address := range own {
		self[address] = true
	}
	found, peers, seen := false, []string{}, map[string]bool{}
	for _, seed := range m.options.Seeds {
		addresses, err := m.options.Resolver.Lookup(ctx, seed)
		if err != nil {
			return nil, err
		}
		for _, address := range addresses {
			if self[address] {
				found = true
			} else if !seen[address] {
				seen[address] = true
				peers = append(peers, address)
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: the seeds do not resolve to this member", node.ErrUnavailable)
	}
	return peers, nil
}

// noCluster reports whether each peer has answered that it is in no cluster. A peer that
// does not answer may be in a cluster: this member may have lost its data.
func (m *member) noCluster(ctx context.Context, peers []string) (bool, error) {
	for _, peer := range peers {
		ctx, stop := context.WithTimeout(ctx, peerTimeout)
		status, err := m.client.Status(ctx, peer)
		stop()
		if err != nil {
			return false, fmt.Errorf("before a new cluster begins: %w", err)
		}
		if len(status.Members) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// join requests a peer to add this member, and reports whether it is a voter.
func (m *member) join(ctx context.Context, peers []string, empty bool) (bool, error) {
	if m.node.IsLeader() {
		return true, nil
	}
	request := node.Join{ID: m.options.Node.ID, Host: m.options.Node.Host, Applied: m.node.Applied(), Empty: empty}
	errs := []error{fmt.Errorf("%w: no other member", node.ErrUnavailable)}
	for _, peer := range peers {
		members, err := m.joinAt(ctx, peer, request)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		voter, isMember := node.Status{Members: members}.IsMember(request.ID)
		if isMember && !voter {
			m.node.Admit()
		}
		return voter && !empty, nil
	}
	return false, errors.Join(errs...)
}

func (m *member) joinAt(ctx context.Context, peer string, request node.Join) ([]node.Member, error) {
	ctx, stop := context.WithTimeout(ctx, peerTimeout)
	defer stop()
	return m.client.AddMember(ctx, peer, request)
}

// restore replaces the state of a new cluster by the backup. A cluster that has ever had a
// write is not new.
func (m *member) restore(ctx context.Context) error {
	if m.options.RestoreFrom == "" || m.options.Bootstrap != m.options.Node.ID {
		return nil
	}
	contents, err := machine.Inspect(m.options.RestoreFrom)
	if err != nil {
		return err
	}
	file, err := os.Open(m.options.RestoreFrom)
	if err != nil {
		return fmt.Errorf("opening the backup: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of the backup: %w", err)
	}
	for m.node.IsLeader() {
		restored, err := m.node.RestoreNew(ctx, contents, info.Size(), file)
		if err == nil && restored {
			m.log.Info("Restored the backup", "path", m.options.RestoreFrom, "keys", contents.Usage.Keys)
		}
		if err == nil || !errors.Is(err, node.ErrUnavailable) {
			return err
		}
		if !pause.For(ctx, joinInterval) {
			return context.Cause(ctx)
		}
	}
	return nil
}
