package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/managerprocess"
)

const (
	managerUser = "system:serviceaccount:" + managerprocess.Namespace + ":" + managerprocess.Account

	// auditPolicy logs every request of the manager, reads included, and no body.
	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
  users: ["` + managerUser + `"]
- level: None
`
)

// server is an API server with the manifests applied.
type server struct {
	options     options
	environment *envtest.Environment
	config      *rest.Config
	kubeconfig  string // of the manager
	audit       *audit.Log

	// webhook is the address of the webhooks of every manager.
	webhook string
}

// newServer starts etcd and an API server and applies the manifests.
func newServer(ctx context.Context, o options) (s *server, err error) {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making %s: %w", o.dir, err)
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	policy, log := filepath.Join(dir, "audit.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		return nil, fmt.Errorf("emptying the audit log: %w", err)
	}
	s = &server{
		options: o, kubeconfig: filepath.Join(dir, "manager.kubeconfig"),
		environment: &envtest.Environment{BinaryAssetsDirectory: bin, ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute},
	}
	s.environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).Set("audit-log-path", log).Set("audit-log-maxsize", "10000")
	if s.config, err = s.environment.Start(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	started := s.environment
	defer func() {
		if err != nil {
			err = errors.Join(err, started.Stop())
		}
	}()
	s.config.QPS = -1
	if s.audit, err = audit.Open(log); err != nil {
		return nil, err
	}
	if s.webhook, err = managerprocess.FreeAddress(); err != nil {
		return nil, err
	}
	return s, s.install(ctx, bin, dir)
}

func (s *server) stop() error { return s.environment.Stop() }

// install applies the manifests and writes the kubeconfig of the manager.
func (s *server) install(ctx context.Context, bin, dir string) error {
	admin := filepath.Join(dir, "admin.kubeconfig")
	if err := os.WriteFile(admin, s.environment.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("writing the administrator's kubeconfig: %w", err)
	}
	apply := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), "--kubeconfig", admin, "apply", "--server-side", "-k", "config/local")
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying config/local: %w\n%s", err, output)
	}
	return managerprocess.WriteKubeconfig(ctx, s.config, s.kubeconfig)
}

// manager is a running process.
type manager struct {
	*managerprocess.Process
	metrics string // address
	pprof   string // address; empty: it serves no profiles
}

// startManager runs a manager and waits until it is ready.
func (s *server) startManager(ctx context.Context) (*manager, error) {
	metrics, err := managerprocess.FreeAddress()
	if err != nil {
		return nil, err
	}
	probe, err := managerprocess.FreeAddress()
	if err != nil {
		return nil, err
	}
	m := &manager{metrics: metrics}
	command := []string{
		s.options.manager, "--kubeconfig", s.kubeconfig, "--webhook-url", "https://" + s.webhook,
		"--metrics-bind-address", metrics, "--metrics-secure=false", "--health-probe-bind-address", probe, "--shutdown-delay", "0s",
	}
	if s.options.profile {
		if m.pprof, err = managerprocess.FreeAddress(); err != nil {
			return nil, err
		}
		command = append(command, "--pprof-bind-address", m.pprof)
	}
	m.Process, err = managerprocess.Start(managerprocess.Options{
		Command: command, Log: filepath.Join(s.options.dir, "manager.log"), Append: true, Probe: probe,
	})
	if err != nil {
		return nil, err
	}
	if err := m.AwaitReady(ctx); err != nil {
		m.End()
		return nil, err
	}
	return m, nil
}
