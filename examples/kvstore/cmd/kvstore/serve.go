package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/member"
	"github.com/podops-dev/podops/examples/kvstore/pkg/server"
)

const (
	defaultRaftPort        = 7000
	defaultElectionTimeout = time.Second
	defaultMaxConnections  = 1024
)

// serve runs a member until ctx ends.
func serve(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := serveOptions(args, stderr)
	if err != nil {
		return err
	}
	return member.Run(ctx, o)
}

func serveOptions(args []string, stderr io.Writer) (member.Options, error) {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	var (
		o     member.Options
		seeds string
		fault string
	)
	flags := flag.NewFlagSet("kvstore serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Node.ID, "id", os.Getenv("POD_NAME"), "`id` of the member, which stays when its pod is replaced ($POD_NAME)")
	flags.StringVar(&o.Node.Host, "host", "", "`name` at which other members reach this member, which does not change either; default: the address of --listen")
	flags.StringVar(&o.Node.Cluster, "cluster", "kvstore", "`name` of the cluster; members of other clusters are rejected")
	flags.StringVar(&o.Node.Listen, "listen", os.Getenv("POD_IP"), "`address` to listen on ($POD_IP)")
	flags.IntVar(&o.Port, "port", api.DefaultPort, "port of the HTTP API, the same for all members")
	flags.IntVar(&o.Node.Port, "raft-port", defaultRaftPort, "port for other members, the same for all of them")
	flags.StringVar(&o.Node.Dir, "data", "", "`folder` of the data")
	flags.StringVar(&seeds, "seeds", "", "comma-separated `names` that resolve to members, including this member, e.g. of a headless Service; default: a cluster of this member alone")
	flags.StringVar(&o.Bootstrap, "bootstrap", "", "`id` of the member that begins a new cluster when no seed is in a cluster")
	flags.StringVar(&o.RestoreFrom, "restore-from", "", "`path` of a backup that a new cluster begins with")
	flags.DurationVar(&o.Node.ElectionTimeout, "election-timeout", defaultElectionTimeout, "time for which a leader may be silent before another leader is elected")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", 0, "how long the member serves after SIGTERM, not ready and not leading, so that load balancers remove it")
	flags.IntVar(&o.MaxConnections, "max-connections", defaultMaxConnections, "connections of clients at a time")
	flags.StringVar(&o.Version, "version", currentVersion(), "version that the member reports ($"+envVersion+"); "+
		"for tests of upgrades, a version that ends in -bad fails /healthz, a version that ends in -unready fails /readyz")
	flags.StringVar(&fault, "fault", os.Getenv(envFault), "for tests: `probe` that fails, health or ready ($"+envFault+"); default: by the version")
	resolverVar(flags, &o.Resolver)
	if err := parse(flags, args); err != nil {
		return o, err
	}
	if seeds != "" {
		o.Seeds = strings.Split(seeds, ",")
	}
	if o.Node.Host == "" {
		o.Node.Host = o.Node.Listen
	}
	o.Fault = server.Fault(fault)
	if fault == "" {
		o.Fault = server.FaultOf(o.Version)
	}
	log = log.With("id", o.Node.ID)
	o.Log, o.Node.Log, o.Node.Resolver = log, log, o.Resolver
	return o, validate(o)
}

func validate(o member.Options) error {
	switch o.Fault {
	case server.NoFault, server.FaultUnhealthy, server.FaultUnready:
	default:
		return fmt.Errorf("--fault is %s or %s", server.FaultUnhealthy, server.FaultUnready)
	}
	if strings.ContainsAny(o.Node.Cluster, " \n") || o.Node.Cluster == "" {
		return errors.New("--cluster is a word")
	}
	if o.MaxConnections < 1 {
		return errors.New("--max-connections is at least 1")
	}
	if o.ShutdownDelay < 0 {
		return errors.New("--shutdown-delay is not negative")
	}
	return o.Node.Validate()
}
