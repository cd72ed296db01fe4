// Package member runs a member of the key-value store: its node, its API, its way into a
// cluster and out of it.
//
//	start     no data, Bootstrap, and no other member of Seeds is in a cluster: a new cluster
//	          otherwise: a member of Seeds is requested to add this one
//	SIGTERM   not ready -> leadership moves away -> ShutdownDelay -> open requests end -> end
//
// A member stays in the cluster while its process does not run: it is removed by a request only.
package member

import (
	"log/slog"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/server"
)

// Options describe a member.
type Options struct {
	Node    node.Options
	Version string
	Fault   server.Fault
	Port    int // of the API, the same for all members

	// Seeds are names of which each resolves to members, including this member. Empty:
	// a cluster of this member alone.
	Seeds []string

	// Bootstrap is the id of the member that begins a new cluster.
	Bootstrap string

	// RestoreFrom is the path of a backup that a new cluster begins with. Empty: no backup.
	RestoreFrom string

	// ShutdownDelay is how long the member serves after it has become not ready, so that
	// load balancers remove it first.
	ShutdownDelay time.Duration

	MaxConnections int

	Resolver hosts.Resolver
	Log      *slog.Logger
}
