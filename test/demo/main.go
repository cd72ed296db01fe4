// Command demo rolls a plain Deployment under PodOps on a local control plane, shows the
// rollout, and prints a summary. It exits with 0 only if the limit of unavailable pods was never
// exceeded, every pod was replaced, and no request failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/term"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podops-dev/podops/test/stage"
)

func main() { os.Exit(run(os.Stdout)) }

func run(out *os.File) int {
	bin := flag.String("bin", "bin", "folder of the binaries")
	manifests := flag.String("manifests", "test/traffic/manifests", "folder of the kustomization to install")
	manager := flag.String("manager", "", "program to run as the manager, in place of the one in the folder of the binaries")
	dir := flag.String("dir", filepath.Join("bin", "demo.d"), "folder of the demo's cluster and logs")
	cidr := flag.String("cidr", "127.64.0.0/16", "loopback addresses of the pods; not the addresses of another demo on this machine")
	keep := flag.Bool("keep", false, "leave control plane, manager and approval page running at the end, until Ctrl-C")
	byHand := flag.Bool("by-hand", false, "wait for you to approve the rollout, on a page whose address is printed")
	picture := flag.String("picture", "", "SVG file to draw the rollout into")
	metrics := flag.String("metrics", "", "address of the metrics of the manager, which it serves as in a cluster: by HTTPS, to clients that may read them")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	columns, rows := 0, 0
	if term.IsTerminal(int(out.Fd())) {
		if width, height, err := term.GetSize(int(out.Fd())); err == nil {
			columns, rows = width, height
		}
	}
	page := filepath.Join(*bin, "demo-timeline.html")
	folder, err := filepath.Abs(*dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: folder of the demo: %v\n", err)
		return 1
	}
	result, err := perform(ctx, setting(stage.Options{
		Bin: *bin, Dir: folder, Out: out, CIDR: *cidr, Manifests: *manifests, Manager: *manager,
	}, *metrics), options{
		out: out, columns: columns, rows: rows, keep: *keep, byHand: *byHand, page: page, picture: *picture,
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return 1
	}
	if !result.ok() {
		fmt.Fprintln(os.Stderr, "demo: the limit was exceeded, not every pod was replaced, or a request failed")
		return 1
	}
	return 0
}

const usage = `demo rolls a Deployment of 12 pods under three rules, and under load, on a local control plane.
It fails if more pods were unavailable than permitted, a pod was not replaced, or a request failed.

  make demo                 watch it
  make demo ARGS=-by-hand   approve the rollout yourself
  make demo ARGS=-keep      look around afterwards

Flags:
`

// endPatience bounds how long the approval page may take to end.
const endPatience = 5 * time.Second

// options of a demo.
type options struct {
	out     io.Writer
	columns int // of the terminal; 0: out is no terminal
	rows    int
	keep    bool
	byHand  bool
	page    string // the file of the timeline
	picture string // the file of its chart; empty: none
}

// setting returns the stage of the demo, whose folder is an absolute path. The manager serves metrics at an address, if
// there is one.
func setting(o stage.Options, metrics string) *stage.Stage {
	o.ManagerFlags = []string{
		"--enable-adapters=haproxy", "--haproxy-allow=unix:" + o.Dir + "/",
	}
	if metrics != "" {
		// As in the manifests, whose manager also has a lease.
		o.ManagerFlags = append(o.ManagerFlags, "--metrics-bind-address", metrics, "--metrics-secure=true", "--leader-elect")
	}
	return stage.New(o)
}

// perform starts everything, rolls, prints the summary, and cleans up in any case.
func perform(ctx context.Context, s *stage.Stage, o options) (result summary, err error) {
	defer func() {
		if downErr := s.Down(); err == nil {
			err = downErr
		}
	}()
	if err := s.Up(ctx); err != nil {
		return summary{}, err
	}
	through, err := openTraffic(ctx, s.Dir())
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, through.close()) }()
	play := &rollout{
		stage: s, view: newView(o.out, o.columns, o.rows), traffic: through, record: newRecord(replicas), byHand: o.byHand,
		timeline: o.page, picture: o.picture,
	}
	defer func() {
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer stop()
		err = errors.Join(err, play.page.close(ending))
	}()
	result, err = play.play(ctx)
	if err != nil {
		return summary{}, err
	}
	result.print(o.out)
	fmt.Fprintf(o.out, "\nThe rollout as a chart: %s\n", o.page)
	if o.keep {
		fmt.Fprintf(o.out, "\nEverything runs until Ctrl-C:\n  export KUBECONFIG=%s\n  bin/kubectl -n %s get pods,ptr\n", s.Kubeconfig(), namespace)
		<-ctx.Done()
	}
	return result, nil
}
