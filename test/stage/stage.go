// Package stage is what demonstrations and measurements play on: a local control plane
// with the manifests of PodOps, and a manager with the rights of its ServiceAccount, as
// processes and in folders of their own.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of a stage.
type Options struct {
	Bin string // folder of the programs: controlplane, kubectl, manager, ...
	Dir string // folder of the cluster and the logs; made where it is missing
	Out io.Writer

	// CIDR has the addresses of the pods. Empty: that of the control plane. Stages on which
	// processes listen on those addresses need different ones to run side by side.
	CIDR string

	// Manifests is the folder of what is installed. Empty: config/local.
	Manifests string

	// ManagerFlags are those besides the ones that say where things are.
	ManagerFlags []string

	// MetricsAddress is where the manager serves metrics. Empty: it serves none.
	MetricsAddress string

	// WrapManager returns the command that runs the manager, given as program and
	// arguments, e.g. in a cgroup. nil: it runs as it is.
	WrapManager func(command ...string) []string
}

// Stage is made by New, then taken Up and Down. It is not safe for concurrent use.
type Stage struct {
	options Options
	config  *rest.Config
	manager *manager
}

// New returns a stage that does not run yet.
func New(options Options) *Stage {
	if options.Manifests == "" {
		options.Manifests = "config/local"
	}
	return &Stage{options: options}
}

// Up builds and starts everything. Building the control plane takes minutes once.
func (s *Stage) Up(ctx context.Context) error {
	if err := os.MkdirAll(s.options.Dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", s.options.Dir, err)
	}
	if err := s.controlplane(ctx, "build", "--bin", s.options.Bin); err != nil {
		return err
	}
	// One that an earlier run kept has pods of its own.
	if err := s.controlplane(ctx, "down", "--dir", s.clusterDir()); err != nil {
		return err
	}
	up := []string{"up", "--bin", s.options.Bin, "--dir", s.clusterDir(), "--kubeconfig", s.Kubeconfig(), "--parent-pid", strconv.Itoa(os.Getpid())}
	if s.options.CIDR != "" {
		up = append(up, "--cidr", s.options.CIDR)
	}
	if err := s.controlplane(ctx, up...); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	s.config = config
	fmt.Fprintln(s.options.Out, "installing CRDs, RBAC and webhooks, and starting the manager as their ServiceAccount")
	if err := s.Kubectl(ctx, "apply", "--server-side", "-k", s.options.Manifests); err != nil {
		return err
	}
	return s.StartManager(ctx)
}

// Down ends the manager and the control plane, and leaves nothing behind but logs.
func (s *Stage) Down() error {
	if s.manager != nil {
		s.manager.end()
	}
	return s.controlplane(context.Background(), "down", "--dir", s.clusterDir())
}

// Dir is the folder of the stage, for files of whoever plays.
func (s *Stage) Dir() string { return s.options.Dir }

// Kubeconfig is the path of the administrator's.
func (s *Stage) Kubeconfig() string { return filepath.Join(s.options.Dir, "kubeconfig") }

// Config is the administrator's access, without a limit of requests. Nil before Up.
func (s *Stage) Config() *rest.Config { return s.config }

// AuditLog is where the API server writes down every write.
func (s *Stage) AuditLog() string { return filepath.Join(s.clusterDir(), "audit.log") }

func (s *Stage) clusterDir() string { return filepath.Join(s.options.Dir, "cluster") }

// controlplane runs the program of that name and shows what it says.
func (s *Stage) controlplane(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "controlplane"), args...)
	command.Stdout, command.Stderr = s.options.Out, s.options.Out
	if err := command.Run(); err != nil {
		return fmt.Errorf("running controlplane %s: %w", args[0], err)
	}
	return nil
}

// Kubectl runs kubectl quietly; what it says is part of the error.
func (s *Stage) Kubectl(ctx context.Context, args ...string) error {
	return s.KubectlWith(ctx, "", args...)
}

// KubectlWith is Kubectl with something on its standard input.
func (s *Stage) KubectlWith(ctx context.Context, input string, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "kubectl"), append([]string{"--kubeconfig", s.Kubeconfig()}, args...)...)
	command.Stdin = strings.NewReader(input)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}

// freeAddress is a local address that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// ErrTimeout says that something on the stage did not come to its end.
var ErrTimeout = errors.New("timed out")
