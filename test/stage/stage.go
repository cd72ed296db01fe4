// Package stage is the environment of demonstrations and measurements: a local control
// plane with the manifests of PodOps, and a manager with the rights of its ServiceAccount,
// as separate processes with their own folders.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options configures a Stage.
type Options struct {
	Bin string // folder of the programs: controlplane, kubectl, manager, ...
	Dir string // folder of the cluster and the logs; created if missing
	Out io.Writer

	// CIDR has the addresses of the pods. Empty: the default of the control plane. Stages
	// with processes that listen on these addresses need different ranges to run side by
	// side.
	CIDR string

	// Manifests is the folder of the manifests to install. Empty: config/local.
	Manifests string

	// Manager is the program to run as the manager. Empty: manager in Bin.
	Manager string

	// ManagerFlags are flags of the manager besides the flags for its addresses.
	ManagerFlags []string

	// MetricsAddress is the address at which the manager serves metrics. Empty: it serves no
	// metrics.
	MetricsAddress string

	// WrapManager returns the command that runs the manager, given as program and
	// arguments, e.g. in a cgroup. nil: it runs unwrapped.
	WrapManager func(command ...string) []string
}

// Stage is created by New, started by Up and ended by Down. It is not safe for concurrent
// use.
type Stage struct {
	options Options
	config  *rest.Config
	manager *manager
}

// New returns a Stage that does not run yet.
func New(options Options) *Stage {
	if options.Manifests == "" {
		options.Manifests = "config/local"
	}
	return &Stage{options: options}
}

// Up builds and starts everything. Building the control plane takes minutes the first time.
func (s *Stage) Up(ctx context.Context) error {
	if err := s.UpControlPlane(ctx); err != nil {
		return err
	}
	fmt.Fprintln(s.options.Out, "installing CRDs, RBAC and webhooks, and starting the manager as their ServiceAccount")
	if err := s.Kubectl(ctx, "apply", "--server-side", "-k", s.options.Manifests); err != nil {
		return err
	}
	return s.StartManager(ctx)
}

// UpControlPlane builds and starts the control plane alone, for callers that install manifests and start managers
// themselves.
func (s *Stage) UpControlPlane(ctx context.Context) error {
	if err := os.MkdirAll(s.options.Dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", s.options.Dir, err)
	}
	if err := s.controlplane(ctx, "build", "--bin", s.options.Bin); err != nil {
		return err
	}
	// A cluster that an earlier run kept has pods of its own.
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
	return nil
}

// Down ends the manager and the control plane, and leaves only logs.
func (s *Stage) Down() error {
	if s.manager != nil {
		s.manager.End()
	}
	return s.controlplane(context.Background(), "down", "--dir", s.clusterDir())
}

// Dir returns the folder of the Stage, for further files.
func (s *Stage) Dir() string { return s.options.Dir }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Stage) Kubeconfig() string { return filepath.Join(s.options.Dir, "kubeconfig") }

// Config returns the administrator's config, without a rate limit. It is nil before Up.
func (s *Stage) Config() *rest.Config { return s.config }

// AuditLog returns the path of the audit log, which has every write.
func (s *Stage) AuditLog() string { return filepath.Join(s.clusterDir(), "audit.log") }

func (s *Stage) clusterDir() string { return filepath.Join(s.options.Dir, "cluster") }

// controlplane runs the command controlplane and shows its output.
func (s *Stage) controlplane(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "controlplane"), args...)
	command.Stdout, command.Stderr = s.options.Out, s.options.Out
	if err := command.Run(); err != nil {
		return fmt.Errorf("running controlplane %s: %w", args[0], err)
	}
	return nil
}

// Kubectl runs kubectl without output; the error has its output.
func (s *Stage) Kubectl(ctx context.Context, args ...string) error {
	return s.KubectlWith(ctx, "", args...)
}

// KubectlWith runs kubectl with input on its standard input.
func (s *Stage) KubectlWith(ctx context.Context, input string, args ...string) error {
	_, err := s.kubectl(ctx, input, args...)
	return err
}

// KubectlOutput runs kubectl and returns its standard output and standard error.
func (s *Stage) KubectlOutput(ctx context.Context, args ...string) (string, error) {
	return s.kubectl(ctx, "", args...)
}

func (s *Stage) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "kubectl"), append([]string{"--kubeconfig", s.Kubeconfig()}, args...)...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// ErrTimeout means that a condition did not hold in time.
var ErrTimeout = errors.New("timed out")
