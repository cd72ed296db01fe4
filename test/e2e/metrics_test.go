package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("Metrics", func() {
	It("show where the pods of a rollout stand, and are documented", func(ctx context.Context) {
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
		m := managers.launch("--metrics-secure=true")
		Eventually(ctx, m.Ready).Should(Succeed())
		p := newScenario(ctx)
		scrape := p.metricsReader(ctx, m)
		of := func(name, labels string) string { return fmt.Sprintf(`%s{namespace=%q,%s}`, name, p.namespace, labels) }
		budget := func(state string) string {
			return of("podops_poddisruptionbudget_pods", fmt.Sprintf("poddisruptionbudget=%q,state=%q", "web", state))
		}
		phase := func(name, phase string) string { return of(name, fmt.Sprintf("phase=%q", phase)) }

		p.rule(ctx, approved(), maxUnavailable("1"))
		p.deployment(ctx, 2, nil)
		p.disruptionBudget(ctx, "web", "1")
		old := uids(p.list(ctx))
		Eventually(ctx, scrape).Should(And(
			HaveKeyWithValue(phase("podops_pods", "Available"), 2.0),
			HaveKeyWithValue(of("podops_rule_unavailable_pods", `podtransitionrule="web",rule="max-unavailable"`), 0.0),
			HaveKeyWithValue(of("podops_rule_unavailable_pods_limit", `podtransitionrule="web",rule="max-unavailable"`), 1.0),
			HaveKeyWithValue(budget("allowed"), 1.0), HaveKeyWithValue(budget("in_use"), 0.0), HaveKeyWithValue(budget("left"), 1.0),
			HaveKeyWithValue(fmt.Sprintf("podops_rules_waived_total{exception=%q,namespace=%q}", "BreakGlass", p.namespace), 0.0),
			HaveKeyWithValue(of("podops_deletes_unguarded_total", `reason="Forced"`), 0.0),
		))

		By("holding a delete that a rule withholds")
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, scrape).Should(And(
			HaveKeyWithValue(phase("podops_pods", "PreCheck"), BeNumerically(">=", 1)),
			HaveKeyWithValue(phase("podops_pods_oldest_seconds", "PreCheck"), BeNumerically(">", 0)),
			HaveKeyWithValue(fmt.Sprintf("podops_deletes_pending{namespace=%q}", p.namespace), BeNumerically(">=", 1)),
			HaveKeyWithValue("podops_deletes_held_total", BeNumerically(">=", 1)),
			HaveKeyWithValue(of("podops_podtransitionrule_pods", `podtransitionrule="web",state="waiting"`), BeNumerically(">=", 1)),
			HaveKeyWithValue("podops_scale_downs_kept", BeNumerically(">=", 1)),
		))

		By("finishing the rollout")
		p.approve(ctx)
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(
			HaveLen(2), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle())), WithTransform(uids, Not(ContainElements(BeElementOf(old))))))
		Eventually(ctx, scrape).Should(And(
			HaveKeyWithValue(phase("podops_pods", "Available"), 2.0),
			Not(HaveKey(phase("podops_pods", "PreCheck"))),
			Not(HaveKey(fmt.Sprintf("podops_deletes_pending{namespace=%q}", p.namespace))),
			HaveKeyWithValue(`podops_deletes_ended_total{outcome="Removed"}`, BeNumerically(">=", 2)),
			HaveKeyWithValue(`podops_permits_total{stage="PreCheck"}`, BeNumerically(">=", 2)),
			HaveKeyWithValue(`podops_pod_phase_duration_seconds_count{phase="PreCheck"}`, BeNumerically(">=", 2)),
			HaveKeyWithValue(`podops_pod_phase_duration_seconds_count{phase="Terminating"}`, BeNumerically(">=", 2)),
			HaveKeyWithValue("podops_scale_downs_kept", 0.0),
			HaveKeyWithValue(`podops_webhook_certificate_expiry_timestamp_seconds{certificate="serving"}`, BeNumerically(">", time.Now().Unix())),
			HaveKeyWithValue(budget("allowed"), 1.0), HaveKeyWithValue(budget("in_use"), 0.0), HaveKeyWithValue(budget("left"), 1.0),
		))

		By("taking a pod off traffic, which uses the PodDisruptionBudget")
		pod := p.list(ctx)[0]
		p.label(ctx, pod, approvedLabel, "true")
		p.begin(ctx, pod, "inspect", "inspect")
		Eventually(ctx, scrape).Should(And(
			HaveKeyWithValue(budget("allowed"), 1.0), HaveKeyWithValue(budget("in_use"), 1.0), HaveKeyWithValue(budget("left"), 0.0)))
	})
})

// metricsReader returns a function that reads the metrics of a manager, as a ServiceAccount that may, and verifies its
// certificate. The kinds of the metrics of PodOps are those in docs/metrics.md.
func (p scenario) metricsReader(ctx context.Context, m *manager) func(context.Context) (map[string]float64, error) {
	GinkgoHelper()
	documented, err := os.ReadFile("../../docs/metrics.md")
	Expect(err).NotTo(HaveOccurred())
	token := p.token(ctx, "reader")
	p.mayReadMetrics(ctx, "reader")
	trusting := p.trustingWebhookCA(ctx)
	return func(ctx context.Context) (map[string]float64, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.metric+"/metrics", nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := trusting.Do(request)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("status %d: %w", answer.StatusCode, err)
		}
		for _, family := range regexp.MustCompile(`(?m)^# TYPE (podops_\w+) (\w+)$`).FindAllStringSubmatch(string(text), -1) {
			Expect(string(documented)).To(ContainSubstring("| `%s` | %s |", family[1], family[2]))
		}
		return parseMetrics(string(text))
	}
}

// parseMetrics returns the values of the series in the text format.
func parseMetrics(text string) (map[string]float64, error) {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		values[line[:at]] = value
	}
	return values, nil
}

// token returns a token of a new ServiceAccount.
func (p scenario) token(ctx context.Context, account string) string {
	GinkgoHelper()
	Expect(p.admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: account}})).To(Succeed())
	made, err := p.clientset.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return made.Status.Token
}

// mayReadMetrics binds a ServiceAccount to the ClusterRole of readers of metrics.
func (p scenario) mayReadMetrics(ctx context.Context, account string) {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace + "-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "podops-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: account}},
	}
	Expect(p.admin.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(p.admin.Delete(ctx, binding)).To(Succeed()) })
}

// trustingWebhookCA returns a client that trusts the CA of the webhook configurations, and no other.
func (p scenario) trustingWebhookCA(ctx context.Context) *http.Client {
	GinkgoHelper()
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(p.admin.Get(ctx, types.NamespacedName{Name: certificates.ValidatingConfigurationName}, validating)).To(Succeed())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(validating.Webhooks[0].ClientConfig.CABundle)).To(BeTrue())
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: certificates.ServiceName + ".podops-system.svc"},
	}}
}
