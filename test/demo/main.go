// Command demo rolls a plain Deployment through PodOps on a local control plane, shows
// it, and says what happened. It ends with 0 only if the limit of unavailable pods was
// never exceeded and every pod was replaced.
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

	"github.com/go-logr/logr"
	"golang.org/x/term"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podops-dev/podops/test/stage"
)

func main() { os.Exit(run(os.Stdout)) }

func run(out *os.File) int {
	bin := flag.String("bin", "bin", "folder of the binaries")
	dir := flag.String("dir", filepath.Join("bin", "demo.d"), "folder of the demo's cluster and logs")
	keep := flag.Bool("keep", false, "leave the control plane running at the end")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "demo rolls a Deployment of 12 pods under three rules, and under load, on a local control plane.\n"+
			"Run it with `make demo`.\n\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	columns := 0
	if term.IsTerminal(int(out.Fd())) {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil {
			columns = width
		}
	}
	folder, err := filepath.Abs(*dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: folder of the demo: %v\n", err)
		return 1
	}
	result, err := perform(ctx, setting(*bin, folder, out), newView(out, columns), *keep, out)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return 1
	}
	result.print(out)
	if !result.ok() {
		fmt.Fprintln(os.Stderr, "demo: the limit was exceeded, not every pod was replaced, or a request failed")
		return 1
	}
	return 0
}

// setting is the stage of the demo. Its folder is an absolute path.
func setting(bin, dir string, out io.Writer) *stage.Stage {
	return stage.New(stage.Options{
		Bin: bin, Dir: dir, Out: out, Manifests: "test/traffic/manifests",
		ManagerFlags: []string{
			// The approval service of the demo is on this machine, and so is the load balancer.
			"--rule-webhook-allow-cidr", "127.0.0.0/8",
			"--enable-adapters=haproxy", "--haproxy-allow=unix:" + dir + "/",
		},
	})
}

// perform sets the stage, plays, and clears up, whatever happened.
func perform(ctx context.Context, s *stage.Stage, v *view, keep bool, out io.Writer) (result summary, err error) {
	if !keep {
		defer func() {
			if downErr := s.Down(); err == nil {
				err = downErr
			}
		}()
	}
	if err := s.Up(ctx); err != nil {
		return summary{}, err
	}
	if keep {
		fmt.Fprintf(out, "the control plane stays: KUBECONFIG=%s\n", s.Kubeconfig())
	}
	d, err := openDesk()
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	through, err := openTraffic(ctx, s.Dir())
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, through.close()) }()
	play := &rollout{stage: s, view: v, desk: d, traffic: through, record: newRecord(replicas)}
	return play.play(ctx)
}
