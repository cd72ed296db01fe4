package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/observed"
)

// managerSet starts managers and keeps their logs.
type managerSet struct {
	cluster    *cluster
	kubeconfig string // of the ServiceAccount
	service    *managerprocess.Service

	mu    sync.Mutex
	all   []*manager
	stops int // how often stopAll was called
}

// manager is one process of the manager.
type manager struct {
	*managerprocess.Process
	log     string
	webhook string // address of the webhook server
	metric  string // address of /metrics

	// stopped is when it got the signal to end.
	stopped time.Time

	// stops is how often stopAll had been called when it was started.
	stops int

	// complaints are texts of error lines that its scenario provokes.
	complaints []string
}

// newManagerSet creates the kubeconfig of the ServiceAccount. At the end of the suite it ends
// every manager, and searches every log for panics and errors.
func newManagerSet(c *cluster) *managerSet {
	GinkgoHelper()
	f := &managerSet{cluster: c, kubeconfig: filepath.Join(c.dir, "manager.kubeconfig")}
	f.service = openService(f)
	Expect(managerprocess.WriteKubeconfig(context.Background(), c.config, f.kubeconfig)).To(Succeed())
	DeferCleanup(func() {
		f.stopAll()
		Expect(f.complaints()).To(BeEmpty(), "error lines in the logs of the managers")
	})
	return f
}

// start starts a manager with flags and returns once it is ready, a manager leads, and the API server sends reviews to the
// address and with the token of the leader. A manager may be ready before it leads. It is replaced when it loses its lease.
func (f *managerSet) start(ctx context.Context, flags ...string) *manager {
	GinkgoHelper()
	m := f.launch(flags...)
	f.keep(m, flags)
	Eventually(ctx, m.Ready).Should(Succeed(), m.Tail)
	Eventually(ctx, f.leaders).ShouldNot(BeEmpty(), m.Tail)
	Eventually(ctx, f.urls).Should(HaveEach(HavePrefix(f.service.URL())))
	Expect(observed.WebhookConfigurations(ctx, f.cluster.admin)).To(Succeed())
	return m
}

// urls returns the address of every webhook, empty for a Service. The leader writes the tokens with the addresses.
func (f *managerSet) urls(ctx context.Context) (urls []string, err error) {
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := f.cluster.admin.Get(ctx, client.ObjectKey{Name: certificates.MutatingConfigurationName}, mutating); err != nil {
		return nil, err
	}
	if err := f.cluster.admin.Get(ctx, client.ObjectKey{Name: certificates.ValidatingConfigurationName}, validating); err != nil {
		return nil, err
	}
	for _, webhook := range mutating.Webhooks {
		urls = append(urls, ptr.Deref(webhook.ClientConfig.URL, ""))
	}
	for _, webhook := range validating.Webhooks {
		urls = append(urls, ptr.Deref(webhook.ClientConfig.URL, ""))
	}
	return urls, nil
}

// shortLease are the flags of managers that a standby succeeds within seconds when they are killed. On a busy
// machine such a manager may lose its lease, and end.
var shortLease = []string{"--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s"}

// launch starts a manager with additional flags. It leads half a second after its predecessor has released
// the lease.
func (f *managerSet) launch(flags ...string) *manager {
	GinkgoHelper()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.launchLocked(flags)
}

// leaseLost is what a manager logs that loses its lease.
const leaseLost = "Failed to renew lease"

// afterLoss are parts of the error lines that such a manager logs: about its lease, about calls that were under way, and about
// caches that were being filled.
var afterLoss = []string{leaseLost, "leader election lost", "Failed to update lease", "failed calling webhook", "Informer to sync"}

// keep replaces a manager with one that has the flags whenever it loses its lease, which happens when the API server of a
// busy machine does not answer for ten seconds: the manager ends, and a kubelet starts it again.
func (f *managerSet) keep(m *manager, flags []string) {
	go func() {
		defer GinkgoRecover()
		if m.ExitCode() <= 0 || !strings.Contains(m.Log(), leaseLost) {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.stops != m.stops {
			return
		}
		successor := f.launchLocked(flags)
		successor.complaints = m.complaints
		f.keep(successor, flags)
	}()
}

func (f *managerSet) launchLocked(flags []string) *manager {
	GinkgoHelper()
	m := &manager{stops: f.stops, webhook: freeAddress(), metric: freeAddress(), log: filepath.Join(f.cluster.dir, fmt.Sprintf("manager-%d.log", len(f.all)+1))}
	probe := freeAddress()
	command := append([]string{
		requireProgram("manager"), "--kubeconfig", f.kubeconfig, "--webhook-url", f.service.URL(), "--webhook-bind-address", m.webhook,
		"--metrics-bind-address", m.metric, "--metrics-secure=false", "--shutdown-delay", "0s", "--health-probe-bind-address", probe, "--settle-time", "0s", "--rule-webhook-allow-cidr", "127.0.0.0/8",
		"--leader-elect", "--leader-elect-retry-period", "500ms",
	}, flags...)
	var err error
	m.Process, err = managerprocess.Start(managerprocess.Options{Command: command, Log: m.log, Probe: probe})
	Expect(err).NotTo(HaveOccurred())
	f.all = append(f.all, m)
	return m
}

// running returns the managers that have not ended.
func (f *managerSet) running() []*manager {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.all), (*manager).HasEnded)
}

// leaders returns the managers that hold the lease, or held it and still run; the youngest
// last.
func (f *managerSet) leaders() []*manager {
	return slices.DeleteFunc(f.running(), func(m *manager) bool {
		return !strings.Contains(m.Log(), "Successfully acquired lease")
	})
}

// stopAll stops every manager.
func (f *managerSet) stopAll() {
	GinkgoHelper()
	f.mu.Lock()
	f.stops++
	f.mu.Unlock()
	// The requests of a manager are reviewed by others, which may end before it.
	began, all := time.Now(), f.running()
	for _, m := range all {
		m.stop()
		m.stopped = began
	}
	for _, m := range f.running() {
		Eventually(m.Ended()).Should(BeClosed(), "a manager must end after SIGTERM")
	}
}

// complaints returns the lines of panics and errors that no scenario has announced.
func (f *managerSet) complaints() []string {
	var lines []string
	for _, m := range f.all {
		log := m.Log()
		if strings.Contains(log, leaseLost) {
			m.complaints = append(slices.Clone(m.complaints), afterLoss...)
		}
		var ready time.Time
		for _, line := range strings.Split(log, "\n") {
			if ready.IsZero() && strings.Contains(line, "ready: rules are enforced") {
				ready = loggedAt(line)
			}
			starting := ready.IsZero() || loggedAt(line).Sub(ready) <= callTimeout
			bad := strings.Contains(line, `"level":"error"`) || strings.Contains(line, "panic")
			if bad && !m.announced(line, starting) {
				lines = append(lines, filepath.Base(m.log)+": "+line)
			}
		}
	}
	return lines
}

func (f *managerSet) tails() string {
	var all strings.Builder
	for _, m := range f.all {
		fmt.Fprintf(&all, "%s\n%s\n", m.log, m.Tail())
	}
	return all.String()
}

// metrics returns its metrics as text.
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

// stop has the manager end, unless it has ended by itself. Its log may have errors of the end from now on.
func (m *manager) stop() {
	GinkgoHelper()
	m.stopped = time.Now()
	Expect(m.Signal(syscall.SIGTERM)).To(Or(Succeed(), MatchError(os.ErrProcessDone)))
}

// harmless matches error lines that report no defect: an event cannot be written to a
// namespace that is terminating or deleted; and on a busy machine an answer about the lease
// may come later than the short time that these managers allow.
var harmless = regexp.MustCompile(`Server rejected event.*(unable to create new content in namespace|namespaces [^ ]+ not found)|` +
	`Error (retrieving lease lock|initially creating lease lock).*|Failed to update lease.*|` +
	`"logger":"leaderelection","msg":"(Unexpected error when reading response body|error retrieving resource lock)".*(context deadline exceeded|Client.Timeout)`)

// callTimeout is the longest time after which a call of a webhook fails that has begun before the manager was ready.
const callTimeout = 3 * time.Second

// loggedAt returns the time of a line of a log, a whole second; zero without one.
func loggedAt(line string) time.Time {
	var entry struct {
		Time time.Time `json:"ts"`
	}
	if json.Unmarshal([]byte(line), &entry) != nil {
		return time.Time{}
	}
	return entry.Time
}

// announced reports whether the line is harmless, provoked by the scenario, or caused by the end or the start of the
// manager: a manager may lead before it is ready, and until then the Service has no endpoint for its own writes.
func (m *manager) announced(line string, starting bool) bool {
	if strings.Contains(line, "panic") {
		return false
	}
	ending := !m.stopped.IsZero() && !loggedAt(line).Before(m.stopped.Truncate(time.Second))
	return starting && strings.Contains(line, "failed calling webhook") || ending || harmless.MatchString(line) ||
		slices.ContainsFunc(m.complaints, func(text string) bool { return strings.Contains(line, text) })
}

// freeAddress returns a free local address.
func freeAddress() string {
	GinkgoHelper()
	address, err := managerprocess.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return address
}
