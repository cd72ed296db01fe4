package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
)

// MaxMembers bounds a cluster.
const MaxMembers = 9

// Options describe a member.
type Options struct {
	ID      string // of the member, e.g. the name of the pod
	Host    string // the name at which other members reach this member
	Cluster string // members of other clusters are rejected
	Listen  string // the address to listen on
	Port    int    // of raft, the same for all members
	Dir     string // data of the member

	// ElectionTimeout is the time for which a leader may be silent before another leader is
	// elected.
	ElectionTimeout time.Duration

	Resolver hosts.Resolver
	Log      *slog.Logger
}

const (
	minElectionTimeout = 100 * time.Millisecond
	maxElectionTimeout = 10 * time.Second
)

// Validate returns an error that names the missing option.
func (o Options) Validate() error {
	switch {
	case o.ID == "":
		return errors.New("a member has an id")
	case o.Host == "":
		return errors.New("a member has a host")
	case o.Dir == "":
		return errors.New("a member has a folder of data")
	case o.ElectionTimeout < minElectionTimeout || o.ElectionTimeout > maxElectionTimeout:
		return fmt.Errorf("the election timeout is between %s and %s", minElectionTimeout, maxElectionTimeout)
	}
	return nil
}

// address returns the address of raft of a host.
func (o Options) address(host string) raft.ServerAddress {
	return raft.ServerAddress(net.JoinHostPort(host, strconv.Itoa(o.Port)))
}

const (
	// A snapshot is taken after snapshotThreshold commands; trailingLogs of them stay, so
	// that a member that was restarted does not need the snapshot.
	snapshotInterval  = 20 * time.Second
	snapshotThreshold = 8192
	trailingLogs      = 4096
	snapshotsKept     = 2

	// maxAppendEntries bounds the commands of one message.
	maxAppendEntries = 64
)

func (o Options) raft() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(o.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = o.ElectionTimeout, o.ElectionTimeout
	c.LeaderLeaseTimeout = o.ElectionTimeout / 2
	c.CommitTimeout = o.ElectionTimeout / 20
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = snapshotInterval, snapshotThreshold, trailingLogs
	c.MaxAppendEntries = maxAppendEntries
	c.ShutdownOnRemove = false // a removed member reports that it is no member, until its pod ends
	c.Logger = logger(o.Log)
	return c
}
