package stage

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/podops-dev/podops/test/managerprocess"
)

// manager is a manager process. Its addresses outlive it: a restarted manager has the same.
type manager struct {
	*managerprocess.Process
	webhook, probe string
}

// ManagerLog returns the path of the log of all managers.
func (s *Stage) ManagerLog() string { return filepath.Join(s.options.Dir, "manager.log") }

// ManagerEnded is closed when the manager that was started last has ended.
func (s *Stage) ManagerEnded() <-chan struct{} { return s.manager.Ended() }

// ManagerError returns how the manager ended, with the end of its log: managerprocess.ErrEnded.
func (s *Stage) ManagerError() error { return s.manager.Err() }

// StartManager runs the manager with the identity, and so the rights, of its
// ServiceAccount, and waits until it is ready. A restarted manager has the addresses of the
// previous manager, and appends to its log.
func (s *Stage) StartManager(ctx context.Context) error {
	kubeconfig := filepath.Join(s.options.Dir, "manager.kubeconfig")
	if err := managerprocess.WriteKubeconfig(ctx, s.config, kubeconfig); err != nil {
		return err
	}
	m, err := s.addresses()
	if err != nil {
		return err
	}
	m.Process, err = managerprocess.Start(managerprocess.Options{
		Command: s.managerCommand(kubeconfig, m), Log: s.ManagerLog(), Append: s.manager != nil, Probe: m.probe,
	})
	if err != nil {
		return err
	}
	s.manager = m
	return m.AwaitReady(ctx)
}

// addresses returns a manager that is not started, with the addresses of the previous manager.
func (s *Stage) addresses() (m *manager, err error) {
	if s.manager != nil {
		return &manager{webhook: s.manager.webhook, probe: s.manager.probe}, nil
	}
	m = &manager{}
	if m.webhook, err = managerprocess.FreeAddress(); err != nil {
		return nil, err
	}
	if m.probe, err = managerprocess.FreeAddress(); err != nil {
		return nil, err
	}
	return m, nil
}

// managerCommand returns the command of the manager m.
func (s *Stage) managerCommand(kubeconfig string, m *manager) []string {
	metrics := s.options.MetricsAddress
	if metrics == "" {
		metrics = "0"
	}
	words := append([]string{
		cmp.Or(s.options.Manager, filepath.Join(s.options.Bin, "manager")), "--kubeconfig", kubeconfig, "--webhook-url", "https://" + m.webhook,
		"--metrics-bind-address", metrics, "--metrics-secure=false", "--shutdown-delay", "0s", "--health-probe-bind-address", m.probe,
	}, s.options.ManagerFlags...)
	if s.options.WrapManager != nil {
		words = s.options.WrapManager(words...)
	}
	return words
}

// WebhookAddress returns the address of the manager's webhook server. Empty before Up.
func (s *Stage) WebhookAddress() string {
	if s.manager == nil {
		return ""
	}
	return s.manager.webhook
}

// KillManager kills the manager.
func (s *Stage) KillManager() { s.manager.Kill() }
