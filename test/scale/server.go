package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/stage"
)

const (
	managerUser = "system:serviceaccount:" + stage.ManagerNamespace + ":" + stage.ManagerAccount

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

	// readyPatience is how long a manager may take until it is ready.
	readyPatience = 2 * time.Minute

	// endPatience is how long it may take to end.
	endPatience = 15 * time.Second
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
	if s.webhook, err = freeAddress(); err != nil {
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
	clientset, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(stage.ManagerNamespace).
		CreateToken(ctx, stage.ManagerAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a token for the manager: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["scale"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData}
	config.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["scale"] = &clientcmdapi.Context{Cluster: "scale", AuthInfo: "manager"}
	config.CurrentContext = "scale"
	if err := clientcmd.WriteToFile(*config, s.kubeconfig); err != nil {
		return fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	return nil
}

// manager is a running process.
type manager struct {
	process *os.Process
	metrics string // address
	pprof   string // address; empty: it serves no profiles
	log     string
	ended   chan struct{}
}

// startManager runs a manager and waits until it is ready.
func (s *server) startManager(ctx context.Context) (*manager, error) {
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	probe, err := freeAddress()
	if err != nil {
		return nil, err
	}
	m := &manager{metrics: metrics, log: filepath.Join(s.options.dir, "manager.log"), ended: make(chan struct{})}
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the manager: %w", err)
	}
	defer log.Close()
	args := []string{"--kubeconfig", s.kubeconfig, "--webhook-url", "https://" + s.webhook,
		"--metrics-bind-address", metrics, "--metrics-secure=false", "--health-probe-bind-address", probe, "--shutdown-delay", "0s"}
	if s.options.profile {
		if m.pprof, err = freeAddress(); err != nil {
			return nil, err
		}
		args = append(args, "--pprof-bind-address", m.pprof)
	}
	command := exec.Command(s.options.manager, args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	m.process = command.Process
	go func() {
		_ = command.Wait() // How it ended is in its log.
		close(m.ended)
	}()
	if err := m.awaitReady(ctx, "http://"+probe+"/readyz"); err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

func (m *manager) awaitReady(ctx context.Context, url string) error {
	ctx, stop := context.WithTimeout(ctx, readyPatience)
	defer stop()
	for {
		if answer, err := http.Get(url); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-m.ended:
			return fmt.Errorf("the manager has ended\n%s", m.tail())
		case <-ctx.Done():
			return fmt.Errorf("the manager is not ready: %w\n%s", context.Cause(ctx), m.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end ends the manager. One that has ended stays so.
func (m *manager) end() {
	_ = m.process.Signal(syscall.SIGTERM) // It may have ended already.
	select {
	case <-m.ended:
	case <-time.After(endPatience):
		_ = m.process.Kill()
		<-m.ended
	}
}

// tail returns the last lines of the log.
func (m *manager) tail() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// freeAddress returns a local address that no process listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
