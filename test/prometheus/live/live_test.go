package live_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/prometheus"
)

var picture = flag.String("picture", "", "file to which the picture of the dashboard is written; empty: grafana.png beside the logs")

const (
	root       = "../../.."
	components = root + "/config/components/"

	// finished is the line of the demo after its summary.
	finished = "Everything runs until Ctrl-C"

	// cidr has the addresses of the pods, so that another demo can run beside the test.
	cidr = "127.67.0.0/16"

	// patience bounds each wait.
	patience = 3 * time.Minute
)

// TestDashboardAndAlertsOfTheDemo has a Prometheus scrape the manager of the demo as the ServiceMonitor of the
// component describes it, evaluates each alert and each panel of the dashboard, and ends the manager: then an alert
// begins.
func TestDashboardAndAlertsOfTheDemo(t *testing.T) {
	g := NewWithT(t)
	bin := required(t, "PODOPS_BIN")
	dir := filepath.Join(bin, "prometheus.d")
	g.Expect(os.RemoveAll(dir)).To(Succeed())
	g.Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	address, err := managerprocess.FreeAddress()
	g.Expect(err).NotTo(HaveOccurred())

	demo := startDemo(t, bin, dir, address)
	config := demo.cluster(t)
	server := startPrometheus(t, dir, scrapes(t, bin, config, dir, address))
	g.Eventually(t.Context(), func(g Gomega) {
		g.Expect(scraped(t, server)).To(ContainElement("podops_build_info"))
	}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	createBudget(t, config)
	from := time.Now()
	demo.awaitFinished(t)
	to := time.Now()

	dashboard, err := prometheus.ReadDashboard(components + "dashboard/podops.json")
	g.Expect(err).NotTo(HaveOccurred())
	drawn := draw(t, server, dashboard, from, to)
	checkAlerts(t, server)
	checkNames(t, server)
	// Unless Prometheus keeps the labels of the manager, this is a label of the target.
	pods, err := server.Range(t.Context(), `podops_pods{namespace="demo"}`, from, to, time.Second)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods).NotTo(BeEmpty(), "the label namespace is not that of the pods")
	writePicture(t, dir, dashboard.Height(), func(out io.Writer) error { return prometheus.Page(out, dashboard, drawn, from, to) })

	demo.interrupt()
	g.Eventually(t.Context(), func(g Gomega) {
		rules, err := server.Rules(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(stateOf(rules, "PodOpsDown")).To(Equal("pending"), "without a manager")
	}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// createBudget creates a PodDisruptionBudget of the demo's pods once their namespace exists. It permits more
// than the rule.
func createBudget(t *testing.T, config *rest.Config) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	half := intstr.FromString("50%")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &half, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	NewWithT(t).Eventually(t.Context(), func() error {
		_, err := clientset.PolicyV1().PodDisruptionBudgets("demo").Create(t.Context(), budget, metav1.CreateOptions{})
		return err
	}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// mayBeEmpty are the panels that a rollout without a fault leaves empty, and why. On a busy machine they may have
// data.
func mayBeEmpty() map[string]string {
	return map[string]string{"Longest wait for traffic": "no pod waits for its traffic for 10 s"}
}

// draw evaluates the expressions of every panel, and checks that there are results.
func draw(t *testing.T, server *prometheus.Server, dashboard prometheus.Dashboard, from, to time.Time) []prometheus.Drawn {
	t.Helper()
	values := map[string]string{"namespace": ".*", "__rate_interval": "10s"}
	var drawn []prometheus.Drawn
	for _, panel := range dashboard.Panels {
		d := prometheus.Drawn{Panel: panel}
		points := 0
		for _, target := range panel.Targets {
			series, err := server.Range(t.Context(), prometheus.Interpolate(target.Expr, values), from, to, time.Second)
			if err != nil {
				t.Errorf("panel %q: %v", panel.Title, err)
			}
			for _, one := range series {
				points += len(one.Points)
			}
			d.Series = append(d.Series, series)
		}
		if _, empty := mayBeEmpty()[panel.Title]; !panel.IsRow() && points == 0 && !empty {
			t.Errorf("panel %q has no data", panel.Title)
		}
		drawn = append(drawn, d)
	}
	return drawn
}

// ofSlowReviews are the alerts that begin while a busy machine delays reviews. Their for is longer than the test.
func ofSlowReviews() []string { return []string{"PodOpsAdmissionSlow", "PodOpsWebhookUnanswered"} }

// checkAlerts checks that every alert was loaded and evaluated, and that the rollout raised none.
func checkAlerts(t *testing.T, server *prometheus.Server) {
	t.Helper()
	want, err := prometheus.ReadAlerts(components + "alerts/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := server.Rules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) != len(want) {
		t.Errorf("Prometheus has loaded %d alerts, want %d", len(rules), len(want))
	}
	for _, rule := range rules {
		if rule.Health != "ok" {
			t.Errorf("%s: health %s, error %q", rule.Name, rule.Health, rule.LastError)
		}
		if rule.State == "pending" && slices.Contains(ofSlowReviews(), rule.Name) {
			continue
		}
		if rule.State != "inactive" {
			t.Errorf("%s is %s after a rollout without a fault: %v", rule.Name, rule.State, rule.Alerts)
		}
	}
}

// stateOf returns the state of an alert.
func stateOf(rules []prometheus.Rule, name string) string {
	for _, rule := range rules {
		if rule.Name == name {
			return rule.State
		}
	}
	return ""
}

// checkNames checks that the manager has every metric that the alerts and the dashboard name, apart from metrics
// that appear with a fault.
func checkNames(t *testing.T, server *prometheus.Server) {
	t.Helper()
	has := scraped(t, server)
	alerts, err := prometheus.ReadAlerts(components + "alerts/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts {
		for name := range prometheus.UsesOf(alert.Expr).Metrics {
			if _, faulty := withFaults()[name]; !slices.Contains(has, name) && !faulty {
				t.Errorf("%s names %s, which Prometheus has not scraped", alert.Name, name)
			}
		}
	}
}

// withFaults are the metrics that have no series before there is a fault.
func withFaults() map[string]struct{} {
	return map[string]struct{}{
		"apiserver_admission_webhook_fail_open_count": {}, "apiserver_admission_webhook_rejection_count": {},
		"podops_finalizer_oldest_wait_seconds": {}, "podops_rule_quarantined": {}, "podops_webhook_breaker_open": {},
		"podops_pods_waiting_for_finalizer": {}, "podops_admission_reviews_refused_total": {},
	}
}

func scraped(t *testing.T, server *prometheus.Server) []string {
	t.Helper()
	names, err := server.Names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// monitor is the part of a ServiceMonitor with the settings of a scrape.
type monitor struct {
	Spec struct {
		Endpoints []struct {
			Path          string `json:"path"`
			Scheme        string `json:"scheme"`
			HonorLabels   bool   `json:"honorLabels"`
			Authorization struct {
				Credentials key `json:"credentials"`
			} `json:"authorization"`
			TLSConfig struct {
				CA struct {
					Secret key `json:"secret"`
				} `json:"ca"`
				ServerName string `json:"serverName"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// key is a value of a Secret.
type key struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// scrapes returns the configuration of Prometheus: the manager as the ServiceMonitor describes it, with its reader and
// its secrets, and the API server with the same token.
func scrapes(t *testing.T, bin string, config *rest.Config, dir, address string) string {
	t.Helper()
	content, err := os.ReadFile(components + "service-monitor/service_monitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m monitor
	if err := yaml.Unmarshal(content, &m); err != nil || len(m.Spec.Endpoints) != 1 {
		t.Fatalf("reading the ServiceMonitor: %v, %d endpoints", err, len(m.Spec.Endpoints))
	}
	apply := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "--kubeconfig", filepath.Join(dir, "demo", "kubeconfig"),
		"apply", "--server-side", "-f", components+"service-monitor/reader.yaml")
	if output, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, output)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := m.Spec.Endpoints[0]
	write := func(name string, from key) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, secret(t, clientset, from), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, ca := write("token", endpoint.Authorization.Credentials), write("ca.crt", endpoint.TLSConfig.CA.Secret)
	apiCA := filepath.Join(dir, "api-ca.crt")
	if err := os.WriteFile(apiCA, config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs(components + "alerts/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: podops
  metrics_path: %s
  scheme: %s
  honor_labels: %t
  authorization: {credentials_file: %q}
  tls_config: {ca_file: %q, server_name: %s}
  static_configs: [{targets: [%q], labels: {namespace: podops-system, pod: podops-controller-manager-0}}]
- job_name: apiserver
  scheme: https
  authorization: {credentials_file: %q}
  tls_config: {ca_file: %q}
  static_configs: [{targets: [%q]}]
`, rules, endpoint.Path, endpoint.Scheme, endpoint.HonorLabels, token, ca, endpoint.TLSConfig.ServerName, address,
		token, apiCA, strings.TrimPrefix(config.Host, "https://"))
}

// secret awaits a value of a Secret, which a controller writes.
func secret(t *testing.T, clientset kubernetes.Interface, from key) (value []byte) {
	t.Helper()
	NewWithT(t).Eventually(t.Context(), func(g Gomega) {
		var object *corev1.Secret
		object, err := clientset.CoreV1().Secrets(managerprocess.Namespace).Get(t.Context(), from.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		value = object.Data[from.Key]
		g.Expect(value).NotTo(BeEmpty())
	}).WithTimeout(patience).Should(Succeed())
	return value
}

func startPrometheus(t *testing.T, dir, configuration string) *prometheus.Server {
	t.Helper()
	address, err := managerprocess.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	server, err := prometheus.Start(t.Context(), required(t, "PROMETHEUS"), filepath.Join(dir, "prometheus"), address, configuration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.End)
	return server
}

// demonstration is a demo that runs until it is interrupted.
type demonstration struct {
	kubeconfig string
	interrupt  context.CancelFunc
	lines      chan string // its output; closed at its end
	output     *strings.Builder
}

// startDemo runs the demo with metrics at an address.
func startDemo(t *testing.T, bin, dir, address string) *demonstration {
	t.Helper()
	d := &demonstration{kubeconfig: filepath.Join(dir, "demo", "kubeconfig"), lines: make(chan string, 1000), output: &strings.Builder{}}
	// The demo reads manifests relative to the folder of the repository.
	ctx, interrupt := context.WithCancel(context.Background())
	d.interrupt = interrupt
	command := exec.CommandContext(ctx, filepath.Join(bin, "demo"), "-bin", bin, "-dir", filepath.Join(dir, "demo"), "-metrics", address, "-cidr", cidr, "-keep")
	command.Dir = root
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = t.Output()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			d.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		interrupt()
		for range d.lines {
		}
		if err := command.Wait(); command.ProcessState.ExitCode() != 0 {
			t.Errorf("the demo ended with %v", err)
		}
	})
	return d
}

// cluster returns a config of the cluster once the demo has installed PodOps in it.
func (d *demonstration) cluster(t *testing.T) (config *rest.Config) {
	t.Helper()
	NewWithT(t).Eventually(t.Context(), func(g Gomega) {
		var err error
		config, err = clientcmd.BuildConfigFromFlags("", d.kubeconfig)
		g.Expect(err).NotTo(HaveOccurred())
		clientset, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = clientset.CoreV1().ServiceAccounts(managerprocess.Namespace).Get(t.Context(), managerprocess.Account, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("not installed: %w", err)
		}
		g.Expect(err).NotTo(HaveOccurred())
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
	return config
}

// awaitFinished waits until the demo has printed its summary.
func (d *demonstration) awaitFinished(t *testing.T) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				t.Fatalf("the demo has ended:\n%s", d.output)
			}
			fmt.Fprintln(d.output, line)
			if strings.HasPrefix(line, finished) {
				return
			}
		case <-timeout:
			t.Fatalf("the demo has not finished:\n%s", d.output)
		}
	}
}

// writePicture has Chromium draw a page.
func writePicture(t *testing.T, dir string, height int, page func(io.Writer) error) {
	t.Helper()
	chromium, path := required(t, "CHROMIUM"), filepath.Join(dir, "grafana.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := page(file); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	to := *picture
	if to == "" {
		to = filepath.Join(dir, "grafana.png")
	}
	if to, err = filepath.Abs(to); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	command := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "chromium"), fmt.Sprintf("--window-size=1466,%d", height), "--screenshot="+to, "file://"+path)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", chromium, err, output)
	}
	if info, err := os.Stat(to); err != nil || info.Size() < 10_000 {
		t.Errorf("the picture is not whole: %v, %v", info, err)
	}
}

func required(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run make test-prometheus", name)
	}
	return value
}
