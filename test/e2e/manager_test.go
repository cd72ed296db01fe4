package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	managerNamespace = "podops-system"
	managerAccount   = "podops-controller-manager"

	tailLines = 40
)

// fleet starts managers and keeps their logs.
type fleet struct {
	cluster    *cluster
	kubeconfig string // of the ServiceAccount
	service    *service

	mu  sync.Mutex
	all []*manager
}

// manager is one process of the manager.
type manager struct {
	process *exec.Cmd
	exited  chan struct{}
	log     string
	probe   string // address of /readyz
	webhook string // address of the webhook server
	metric  string // address of /metrics

	// told is when it was told to end.
	told time.Time

	// complaints are texts of error lines that the story it takes part in provokes.
	complaints []string
}

// newFleet mints the kubeconfig of the ServiceAccount. At the end of the suite every
// manager is ended, and every log is searched for panics and errors.
func newFleet(c *cluster) *fleet {
	GinkgoHelper()
	f := &fleet{cluster: c, kubeconfig: filepath.Join(c.dir, "manager.kubeconfig")}
	f.service = openService(f.running)
	hours := int64(3600 * 4)
	token, err := c.clientset.CoreV1().ServiceAccounts(managerNamespace).CreateToken(context.Background(), managerAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[managerAccount] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: managerAccount}
	config.CurrentContext = "local"
	Expect(clientcmd.WriteToFile(*config, f.kubeconfig)).To(Succeed())
	DeferCleanup(func() {
		f.stopAll()
		Expect(f.complaints()).To(BeEmpty(), "error lines in the logs of the managers")
	})
	return f
}

// start starts a manager and returns once it is ready.
func (f *fleet) start(ctx context.Context) *manager {
	GinkgoHelper()
	m := f.launch()
	Eventually(ctx, m.ready).Should(Succeed(), func() string { return m.tail() })
	return m
}

// launch starts a manager, with more flags than usual or other values. Leases are short,
// so that a successor takes over in seconds.
func (f *fleet) launch(flags ...string) *manager {
	GinkgoHelper()
	m := &manager{
		exited: make(chan struct{}), probe: freeAddress(), webhook: freeAddress(), metric: freeAddress(),
		log: filepath.Join(f.cluster.dir, fmt.Sprintf("manager-%d.log", len(f.all)+1)),
	}
	log, err := os.Create(m.log)
	Expect(err).NotTo(HaveOccurred())
	m.process = exec.Command(requireProgram("manager"), append([]string{
		"--kubeconfig", f.kubeconfig, "--webhook-url", f.service.url(), "--webhook-bind-address", m.webhook,
		"--metrics-bind-address", m.metric, "--metrics-secure=false", "--shutdown-delay", "0s", "--health-probe-bind-address", m.probe, "--settle-time", "0s", "--rule-webhook-allow-cidr", "127.0.0.0/8",
		"--leader-elect", "--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s", "--leader-elect-retry-period", "500ms",
	}, flags...)...)
	m.process.Stdout, m.process.Stderr = log, log
	// A test that is killed takes its managers along.
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(m.process.Start()).To(Succeed())
	go func() {
		defer close(m.exited)
		_ = m.process.Wait() // How it ended is in its log.
		_ = log.Close()
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, m)
	return m
}

// running are the managers that have not ended.
func (f *fleet) running() []*manager {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.all), (*manager).ended)
}

// leaders are the managers that hold the lease, or did and go on; the youngest last.
func (f *fleet) leaders() []*manager {
	return slices.DeleteFunc(f.running(), func(m *manager) bool {
		return !strings.Contains(m.text(), "Successfully acquired lease")
	})
}

// stopAll ends every manager in an orderly way.
func (f *fleet) stopAll() {
	GinkgoHelper()
	for _, m := range f.running() {
		m.told = time.Now()
		m.signal(syscall.SIGTERM)
	}
	for _, m := range f.running() {
		Eventually(m.exited).Should(BeClosed(), "a manager ends when it is told to")
	}
}

// complaints are the lines of panics and errors that no story has announced.
func (f *fleet) complaints() []string {
	var lines []string
	for _, m := range f.all {
		for _, line := range strings.Split(m.text(), "\n") {
			bad := strings.Contains(line, `"level":"error"`) || strings.Contains(line, "panic")
			if bad && !m.announced(line) {
				lines = append(lines, filepath.Base(m.log)+": "+line)
			}
		}
	}
	return lines
}

func (f *fleet) tails() string {
	var all strings.Builder
	for _, m := range f.all {
		fmt.Fprintf(&all, "%s\n%s\n", m.log, m.tail())
	}
	return all.String()
}

// ready asks the manager whether it is.
func (m *manager) ready() error {
	answer, err := http.Get("http://" + m.probe + "/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz answers %s", answer.Status)
	}
	return nil
}

// metrics is what it counts, as Prometheus reads it.
func (m *manager) metrics(ctx context.Context) string {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.metric+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	answer, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// kill ends the process at once, whatever it was about to write.
func (m *manager) kill() {
	GinkgoHelper()
	m.signal(syscall.SIGKILL)
	Eventually(m.exited).Should(BeClosed())
}

func (m *manager) signal(signal syscall.Signal) {
	GinkgoHelper()
	Expect(m.process.Process.Signal(signal)).To(Succeed())
}

func (m *manager) ended() bool {
	select {
	case <-m.exited:
		return true
	default:
		return false
	}
}

func (m *manager) text() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (m *manager) tail() string {
	lines := strings.Split(strings.TrimSpace(m.text()), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// harmless are error lines that tell of nothing wrong: nobody can be told what happens in
// a namespace that ends, or has ended; and on a busy machine an answer about the lease may
// come later than the short time that these managers give it.
var harmless = regexp.MustCompile(`Server rejected event.*(unable to create new content in namespace|namespaces [^ ]+ not found)|` +
	`Error (retrieving lease lock|initially creating lease lock).*|Failed to update lease.*`)

// announced: the line tells of nothing wrong, or of what the story has provoked, or of what
// was under way when the manager was told to end.
func (m *manager) announced(line string) bool {
	if strings.Contains(line, "panic") {
		return false
	}
	var entry struct {
		Time time.Time `json:"ts"`
	}
	ending := !m.told.IsZero() && json.Unmarshal([]byte(line), &entry) == nil && !entry.Time.Before(m.told.Truncate(time.Second))
	return ending || harmless.MatchString(line) ||
		slices.ContainsFunc(m.complaints, func(text string) bool { return strings.Contains(line, text) })
}

// freeAddress is a local address that nobody listens on.
func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}
