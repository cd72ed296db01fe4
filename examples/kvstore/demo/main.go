// Command kvstore shows the example operator on a local control plane, with real processes of the store
// under load: an upgrade during which the operator is killed, an upgrade that fails and is rolled back,
// and a deletion whose backup provider is down at first. With -all, drift, a scale-in and -out, and a delete of the
// leader as well.
// It exits with 0 only if each ended as it must, no acknowledged write was lost, and the history is
// linearizable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podops-dev/podops/test/stage"
)

// cidr has the addresses of the pods: other stages use others.
const cidr = "127.66.0.0/16"

func main() { os.Exit(run(os.Stdout)) }

func run(out io.Writer) int {
	bin := flag.String("bin", "bin", "folder of the programs")
	dir := flag.String("dir", filepath.Join("bin", "demo-kvstore.d"), "folder of the cluster, the data and the logs")
	all := flag.Bool("all", false, "drift, a scale-in and -out, and a delete of the leader, too")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := filepath.Abs(*dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo-kvstore: %v\n", err)
		return 1
	}
	programs, err := filepath.Abs(*bin)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo-kvstore: %v\n", err)
		return 1
	}
	s := &show{
		stage: stage.New(stage.Options{Bin: programs, Dir: folder, Out: out, ManagerFlags: managerFlags()}),
		bin:   programs, dir: folder, cidr: netip.MustParsePrefix(cidr), out: out, all: *all, began: time.Now(),
	}
	if err := s.perform(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "demo-kvstore: %v\n", err)
		return 1
	}
	return 0
}

// perform starts everything, plays, and cleans up in any case.
func (s *show) perform(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close(), s.stage.Down()) }()
	if err := removeOld(s.dir); err != nil {
		return err
	}
	if err := s.stage.Up(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		s.open, s.startOperator, func(ctx context.Context) error { return s.newNamespace(ctx, "shop") },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.play(ctx)
}
