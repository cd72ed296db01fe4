package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hashicorp/raft"

	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
)

// Member is a member of the cluster.
type Member struct {
	ID   string `json:"id"`
	Host string `json:"host"`
	// Voter is false for a new member until it has caught up. It has no vote, and its
	// data do not count for a majority.
	Voter bool `json:"voter"`
}

// Status is the status that a member reports.
type Status struct {
	ID     string `json:"id"`
	State  string `json:"state"`  // Follower, Candidate, Leader or Shutdown
	Leader string `json:"leader"` // id, empty: no leader is known
	Term   uint64 `json:"term"`

	LastIndex    uint64 `json:"lastIndex"`
	CommitIndex  uint64 `json:"commitIndex"`
	AppliedIndex uint64 `json:"appliedIndex"`

	Usage   machine.Usage `json:"usage"`
	Members []Member      `json:"members"`
}

// IsMember reports whether the member with this id votes, and whether it is a member at all.
func (s Status) IsMember(id string) (voter, member bool) {
	for _, m := range s.Members {
		if m.ID == id {
			return m.Voter, true
		}
	}
	return false, false
}

// Status returns the status of the member.
func (n *Node) Status() (Status, error) {
	usage, _, err := n.machine.State()
	if err != nil {
		return Status{}, err
	}
	members, err := n.members()
	if err != nil {
		return Status{}, err
	}
	return Status{
		ID: n.options.ID, State: n.raft.State().String(), Leader: n.LeaderID(), Term: n.raft.CurrentTerm(),
		LastIndex: n.raft.LastIndex(), CommitIndex: n.raft.CommitIndex(), AppliedIndex: n.raft.AppliedIndex(),
		Usage: usage, Members: members,
	}, nil
}

func (n *Node) members() ([]Member, error) {
	configuration := n.raft.GetConfiguration()
	if err := configuration.Error(); err != nil {
		return nil, fmt.Errorf("reading the members: %w", err)
	}
	members := []Member{}
	for _, server := range configuration.Configuration().Servers {
		host, _, err := net.SplitHostPort(string(server.Address))
		if err != nil {
			return nil, fmt.Errorf("reading the members: %w", err)
		}
		members = append(members, Member{ID: string(server.ID), Host: host, Voter: server.Suffrage == raft.Voter})
	}
	return members, nil
}

// IsLeader reports whether this member is the leader, as far as it knows.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// LeaderID returns the id of the leader, empty while no leader is known.
func (n *Node) LeaderID() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// Leader returns the host of the leader, empty while no leader is known.
func (n *Node) Leader() string {
	address, _ := n.raft.LeaderWithID()
	host, _, err := net.SplitHostPort(string(address))
	if err != nil {
		return ""
	}
	return host
}

// HasData reports whether the member has ever been one of a cluster.
func (n *Node) HasData() (bool, error) {
	has, err := raft.HasExistingState(n.store, n.store, n.snapshots)
	if err != nil {
		return false, fmt.Errorf("reading the data: %w", err)
	}
	return has, nil
}

// Admit accepts connections of other members from now on. A member with data does from its
// start. A member without data may have lost its data: until the leader has removed its vote,
// it must neither vote nor acknowledge commands, since its earlier votes and acknowledgements
// are lost.
func (n *Node) Admit() { n.admitted.Store(true) }

// Bootstrap makes this member the only one of a new cluster. It returns an error when the
// member has data.
func (n *Node) Bootstrap() error {
	self := raft.Server{ID: raft.ServerID(n.options.ID), Address: n.options.address(n.options.Host)}
	if err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{self}}).Error(); err != nil {
		return fmt.Errorf("beginning a cluster: %w", err)
	}
	return nil
}

// Join is the request of a member to be added.
type Join struct {
	ID   string `json:"id"`
	Host string `json:"host"`
	// Applied is the log index up to which the member has the commands.
	Applied uint64 `json:"applied"`
	// Empty is set while the member has no data.
	Empty bool `json:"empty"`
}

// caughtUp is how many commands a member may lack when it gets its vote.
const caughtUp = 64

// ErrFull means that the cluster has MaxMembers members.
var ErrFull = fmt.Errorf("a cluster has at most %d members", MaxMembers)

// AddMember adds a member without a vote, or gives it its vote once it has caught up. It is
// repeated until the member has its vote. A voter that comes back without data is removed
// first: it has forgotten its votes, and commands that count as replicated.
func (n *Node) AddMember(ctx context.Context, j Join) error {
	if j.ID == "" || j.Host == "" {
		return fmt.Errorf("%w: a member has an id and a host", machine.ErrInvalid)
	}
	if err := n.verify(ctx); err != nil {
		return err
	}
	status, err := n.Status()
	if err != nil {
		return err
	}
	voter, member := status.IsMember(j.ID)
	id, address := raft.ServerID(j.ID), n.options.address(j.Host)
	switch {
	case voter && j.Empty:
		if j.ID == n.options.ID {
			return fmt.Errorf("%w: %s leads and has data", machine.ErrInvalid, j.ID)
		}
		n.log.Warn("Removing a member that has lost its data", "member", j.ID)
		return await(ctx, n.raft.RemoveServer(id, 0, enqueueTimeout))
	case voter:
		return nil
	case !member && len(status.Members) >= MaxMembers:
		return ErrFull
	case !member:
		n.log.Info("Adding a member without a vote", "member", j.ID, "host", j.Host)
		return await(ctx, n.raft.AddNonvoter(id, address, 0, enqueueTimeout))
	case j.Applied+caughtUp < status.CommitIndex || j.Empty:
		return nil
	}
	n.log.Info("Giving a member its vote", "member", j.ID)
	return await(ctx, n.raft.AddVoter(id, address, 0, enqueueTimeout))
}

// ErrLast means that the only voter cannot be removed.
var ErrLast = errors.New("the only voter cannot be removed")

// RemoveMember removes a member. A leader moves leadership away first, and returns
// ErrNotLeader: the next leader removes it. The id of no member is no error.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	if err := n.verify(ctx); err != nil {
		return err
	}
	status, err := n.Status()
	if err != nil {
		return err
	}
	voter, member := status.IsMember(id)
	switch {
	case !member:
		return nil
	case voter && voters(status.Members) == 1:
		return ErrLast
	case id == n.options.ID:
		if _, err := n.TransferLeadership(ctx, ""); err != nil {
			return err
		}
		return ErrNotLeader
	}
	n.log.Info("Removing a member", "member", id)
	return await(ctx, n.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout))
}

func voters(members []Member) int {
	count := 0
	for _, m := range members {
		if m.Voter {
			count++
		}
	}
	return count
}

// TransferLeadership moves leadership to the member with this id, or, if it is empty, to
// the member with the longest log. It reports false when this member does not lead.
func (n *Node) TransferLeadership(ctx context.Context, to string) (bool, error) {
	if !n.IsLeader() {
		return false, nil
	}
	future := n.raft.LeadershipTransfer
	if to != "" {
		members, err := n.members()
		if err != nil {
			return false, err
		}
		voter, _ := Status{Members: members}.IsMember(to)
		if !voter || to == n.options.ID {
			return false, fmt.Errorf("%w: %s is not another voter", machine.ErrInvalid, to)
		}
		host := ""
		for _, m := range members {
			if m.ID == to {
				host = m.Host
			}
		}
		future = func() raft.Future {
			return n.raft.LeadershipTransferToServer(raft.ServerID(to), n.options.address(host))
		}
	}
	err := await(ctx, future())
	if err != nil && !n.IsLeader() {
		return true, nil // another member was elected in the meantime
	}
	if err != nil {
		return false, fmt.Errorf("%w: moving leadership away: %w", ErrUnavailable, err)
	}
	return true, nil
}

// RestoreNew replaces the state of the whole cluster by a backup, of which contents and size
// in bytes are known. It reports false, and changes nothing, once the cluster has a write.
// Only the leader restores.
func (n *Node) RestoreNew(ctx context.Context, contents machine.Contents, size int64, backup io.Reader) (bool, error) {
	if err := n.verify(ctx); err != nil {
		return false, err
	}
	_, applied, err := n.machine.State()
	if err != nil || applied != 0 {
		return false, err
	}
	// Commands after the restore have indices beyond the index of the backup.
	meta := raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: "restore", Index: contents.Applied, Size: size}
	if err := n.raft.Restore(&meta, backup, restoreTimeout); err != nil {
		return false, classify(err)
	}
	return true, nil
}

// Term returns the term that the member has seen last.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Applied returns the log index up to which this member applies commands.
func (n *Node) Applied() uint64 { return n.raft.AppliedIndex() }

// IsOnlyVoter reports whether no other member votes.
func (n *Node) IsOnlyVoter() bool {
	members, err := n.members()
	return err == nil && voters(members) <= 1
}
