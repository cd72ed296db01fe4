package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The identity of the manager.
const (
	ManagerNamespace = "podops-system"
	ManagerAccount   = "podops-controller-manager"
)

const (
	// readyPatience is the timeout of a manager's readiness.
	readyPatience = time.Minute

	// endPatience is the timeout of its end after SIGTERM.
	endPatience = 15 * time.Second
)

// manager is a manager process. Its addresses outlive it: a restarted manager has the same.
type manager struct {
	webhook, probe string
	process        *os.Process
	ended          chan struct{}
	err            error // its exit error; valid after ended is closed
}

// ErrManagerEnded means that the manager has ended without KillManager or Down.
var ErrManagerEnded = errors.New("the manager has ended")

// ManagerLog returns the path of the log of all managers.
func (s *Stage) ManagerLog() string { return filepath.Join(s.options.Dir, "manager.log") }

// ManagerEnded is closed when the manager that was started last has ended.
func (s *Stage) ManagerEnded() <-chan struct{} { return s.manager.ended }

// ManagerError returns how the manager ended, with the end of its log: ErrManagerEnded.
func (s *Stage) ManagerError() error {
	<-s.manager.ended
	return fmt.Errorf("%w: %w\n%s", ErrManagerEnded, s.manager.err, s.tail())
}

// StartManager runs the manager with the identity, and so the rights, of its
// ServiceAccount, and waits until it is ready. A restarted manager has the addresses of the
// one before.
func (s *Stage) StartManager(ctx context.Context) error {
	kubeconfig, err := s.managerKubeconfig(ctx)
	if err != nil {
		return err
	}
	m := &manager{ended: make(chan struct{})}
	if s.manager != nil {
		m.webhook, m.probe = s.manager.webhook, s.manager.probe
	} else {
		if m.webhook, err = freeAddress(); err != nil {
			return err
		}
		if m.probe, err = freeAddress(); err != nil {
			return err
		}
	}
	log, err := s.openManagerLog()
	if err != nil {
		return err
	}
	defer log.Close()
	command := s.managerCommand(kubeconfig, m)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	m.process = command.Process
	s.manager = m
	go func() {
		m.err = command.Wait()
		close(m.ended)
	}()
	return s.awaitReady(ctx, "http://"+m.probe+"/readyz")
}

// managerCommand returns the command of the manager m.
func (s *Stage) managerCommand(kubeconfig string, m *manager) *exec.Cmd {
	metrics := s.options.MetricsAddress
	if metrics == "" {
		metrics = "0"
	}
	words := append([]string{
		filepath.Join(s.options.Bin, "manager"), "--kubeconfig", kubeconfig, "--webhook-url", "https://" + m.webhook,
		"--metrics-bind-address", metrics, "--metrics-secure=false", "--shutdown-delay", "0s", "--health-probe-bind-address", m.probe,
	}, s.options.ManagerFlags...)
	if s.options.WrapManager != nil {
		words = s.options.WrapManager(words...)
	}
	return exec.Command(words[0], words[1:]...)
}

// WebhookAddress returns the address of the manager's webhook server. Empty before Up.
func (s *Stage) WebhookAddress() string {
	if s.manager == nil {
		return ""
	}
	return s.manager.webhook
}

// openManagerLog opens the log. The first manager of a Stage truncates it.
func (s *Stage) openManagerLog() (*os.File, error) {
	how := os.O_APPEND
	if s.manager == nil {
		how = os.O_TRUNC
	}
	log, err := os.OpenFile(s.ManagerLog(), os.O_CREATE|os.O_WRONLY|how, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the manager: %w", err)
	}
	return log, nil
}

// KillManager kills the manager.
func (s *Stage) KillManager() {
	_ = s.manager.process.Kill() // it may have ended already
	<-s.manager.ended
}

// end stops the manager.
func (m *manager) end() {
	_ = m.process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-m.ended:
	case <-time.After(endPatience):
		_ = m.process.Kill()
		<-m.ended
	}
}

func (s *Stage) awaitReady(ctx context.Context, url string) error {
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
		case <-s.manager.ended:
			return s.ManagerError()
		case <-ctx.Done():
			return fmt.Errorf("the manager is not ready: %w\n%s", ctx.Err(), s.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tail returns the end of the manager's log.
func (s *Stage) tail() string {
	text, err := os.ReadFile(s.ManagerLog())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

func (s *Stage) managerKubeconfig(ctx context.Context) (string, error) {
	clientset, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(ManagerNamespace).
		CreateToken(ctx, ManagerAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token for the manager: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData, CertificateAuthority: s.config.CAFile}
	config.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "manager"}
	config.CurrentContext = "local"
	path := filepath.Join(s.options.Dir, "manager.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	return path, nil
}
