package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	managerNamespace = "podops-system"
	managerAccount   = "podops-controller-manager"
)

// stage is what the demo plays on: a control plane and a manager, in folders and
// processes of its own.
type stage struct {
	bin, dir   string
	out        io.Writer
	kubeconfig string
	config     *rest.Config
	manager    *exec.Cmd
	exited     chan error
}

func newStage(bin, dir string, out io.Writer) *stage {
	return &stage{bin: bin, dir: dir, out: out, kubeconfig: filepath.Join(dir, "kubeconfig"), exited: make(chan error, 1)}
}

// up builds and starts everything. Building the control plane takes minutes once.
func (s *stage) up(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", s.dir, err)
	}
	if err := s.controlplane(ctx, "build", "--bin", s.bin); err != nil {
		return err
	}
	// One that an earlier demo kept has pods of its own.
	if err := s.controlplane(ctx, "down", "--dir", s.clusterDir()); err != nil {
		return err
	}
	if err := s.controlplane(ctx, "up", "--bin", s.bin, "--dir", s.clusterDir(), "--kubeconfig", s.kubeconfig,
		"--parent-pid", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	s.config = config
	fmt.Fprintln(s.out, "installing CRDs, RBAC and webhooks, and starting the manager as their ServiceAccount")
	if err := s.kubectl(ctx, "apply", "--server-side", "-k", "config/local"); err != nil {
		return err
	}
	return s.startManager(ctx)
}

func (s *stage) clusterDir() string { return filepath.Join(s.dir, "cluster") }

// auditLog is where the API server writes down every write.
func (s *stage) auditLog() string { return filepath.Join(s.clusterDir(), "audit.log") }

// managerLog is where the manager logs to.
func (s *stage) managerLog() string { return filepath.Join(s.dir, "manager.log") }

// down leaves nothing behind.
func (s *stage) down() error {
	if s.manager != nil {
		if err := s.manager.Process.Signal(syscall.SIGTERM); err == nil {
			select {
			case <-s.exited: //nolint:errcheck // How it ended no longer matters.
			case <-time.After(15 * time.Second):
				s.manager.Process.Kill() //nolint:errcheck // It is about to go with this process anyway.
			}
		}
	}
	return s.controlplane(context.Background(), "down", "--dir", s.clusterDir())
}

// controlplane runs the program of that name and shows what it says.
func (s *stage) controlplane(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, "controlplane"), args...)
	command.Stdout, command.Stderr = s.out, s.out
	if err := command.Run(); err != nil {
		return fmt.Errorf("running controlplane %s: %w", args[0], err)
	}
	return nil
}

// kubectl runs kubectl quietly; what it says is part of the error.
func (s *stage) kubectl(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, "kubectl"), append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}

// startManager runs the manager with the identity, and so the rights, of its
// ServiceAccount, and waits until it is ready.
func (s *stage) startManager(ctx context.Context) error {
	kubeconfig, err := s.managerKubeconfig(ctx)
	if err != nil {
		return err
	}
	webhook, err := freeAddress()
	if err != nil {
		return err
	}
	probe, err := freeAddress()
	if err != nil {
		return err
	}
	log, err := os.Create(s.managerLog())
	if err != nil {
		return fmt.Errorf("making the log of the manager: %w", err)
	}
	s.manager = exec.Command(filepath.Join(s.bin, "manager"), "--kubeconfig", kubeconfig, "--webhook-url", "https://"+webhook,
		"--metrics-bind-address", "0", "--health-probe-bind-address", probe,
		// The approval service of the demo is on this machine.
		"--rule-webhook-allow-cidr", "127.0.0.0/8")
	s.manager.Stdout, s.manager.Stderr = log, log
	s.manager.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.manager.Start(); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	go func() { s.exited <- s.manager.Wait() }()
	return s.awaitReady(ctx, "http://"+probe+"/readyz")
}

func (s *stage) awaitReady(ctx context.Context, url string) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		if answer, err := http.Get(url); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.exited:
			s.manager = nil
			return fmt.Errorf("the manager ended: %w\n%s", err, s.tail())
		case <-ctx.Done():
			return fmt.Errorf("the manager is not ready: %w\n%s", ctx.Err(), s.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tail is the end of the manager's log.
func (s *stage) tail() string {
	text, err := os.ReadFile(s.managerLog())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

func (s *stage) managerKubeconfig(ctx context.Context) (string, error) {
	clientset, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(managerNamespace).
		CreateToken(ctx, managerAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token for the manager: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData, CertificateAuthority: s.config.CAFile}
	config.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "manager"}
	config.CurrentContext = "local"
	path := filepath.Join(s.dir, "manager.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	return path, nil
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

// errTimeout says that a step of the demo did not come to its end.
var errTimeout = errors.New("timed out")
