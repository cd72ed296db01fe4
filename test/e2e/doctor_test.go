package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/observed"
)

// podops runs the plugin as the administrator, and returns its output and its exit code.
func (c *cluster) podops(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	GinkgoHelper()
	var out, complaints bytes.Buffer
	command := exec.CommandContext(ctx, requireProgram("kubectl-podops"), append(args, "--kubeconfig", c.kubeconfig)...)
	command.Stdout, command.Stderr = &out, &complaints
	err := command.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return out.String(), complaints.String(), ended.ExitCode()
	}
	Expect(err).NotTo(HaveOccurred())
	return out.String(), complaints.String(), 0
}

// diagnosed returns the report of doctor on the namespace of the scenario.
func (p scenario) diagnosed(ctx context.Context) doctor.Report {
	GinkgoHelper()
	out, complaints, _ := p.podops(ctx, "doctor", "-n", p.namespace, "--long", "1s", "-o", "json")
	var report doctor.Report
	Expect(json.Unmarshal([]byte(out), &report)).To(Succeed(), "%s%s", out, complaints)
	return report
}

// reinstall applies the manifests of the suite again, over any remainder of them, and starts a
// manager.
func reinstall(ctx context.Context, c *cluster) {
	GinkgoHelper()
	managers.stopAll()
	c.kubectl(ctx, "delete", "--ignore-not-found", "mutatingwebhookconfiguration/"+certificates.MutatingConfigurationName,
		"validatingwebhookconfiguration/"+certificates.ValidatingConfigurationName)
	Eventually(ctx, func(ctx context.Context) error {
		return exec.CommandContext(ctx, requireProgram("kubectl"), "--kubeconfig", c.kubeconfig, "apply", "--server-side", "--force-conflicts",
			"-k", filepath.Join("..", "..", "config", "local")).Run()
	}).Should(Succeed())
	Expect(managerprocess.WriteKubeconfig(ctx, c.config, managers.kubeconfig)).To(Succeed())
	managers.start(ctx)
	awaitWebhooks(ctx, c)
}

// awaitWebhooks waits until a manager leads and the webhooks answer.
func awaitWebhooks(ctx context.Context, c *cluster) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) error {
		return c.admin.Create(ctx, &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"},
			Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels()}, Rules: []appsv1alpha1.TransitionRule{approved()},
			},
		}, client.DryRunAll)
	}).Should(Succeed())
}

// checksOf returns the checks of the findings, sorted.
func checksOf(report doctor.Report) []doctor.ID {
	var ids []doctor.ID
	for _, finding := range report.Findings {
		ids = append(ids, finding.Check)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

var _ = Describe("kubectl podops doctor", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	It("finds nothing in a cluster without faults", Label(mainStories), func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("1"))
		p.deployment(ctx, 3, nil)
		Eventually(ctx, p.diagnosed).Should(And(HaveField("Findings", BeEmpty()), HaveField("NotChecked", BeEmpty()), HaveField("Checks", len(doctor.IDs()))))
		_, _, code := p.podops(ctx, "doctor", "-n", p.namespace, "--fail-on=warning")
		Expect(code).To(Equal(0))
	})

	It("states which checks a user may not run", func(ctx context.Context) {
		out, _, code := p.podops(ctx, "doctor", "-n", p.namespace, "--as", "jane")
		Expect(code).To(Equal(1))
		Expect(out).To(And(ContainSubstring("not checked: webhook-missing"), ContainSubstring(`User "jane" cannot get`)))
	})

	It("finds each fault", func(ctx context.Context) {
		By("removing the manager and its webhooks, so that each object can have a fault")
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) { reinstall(ctx, p.cluster) })
		mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Expect(p.admin.Get(ctx, client.ObjectKey{Name: certificates.MutatingConfigurationName}, mutating)).To(Succeed())
		Expect(p.admin.Delete(ctx, mutating)).To(Succeed())
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: certificates.ValidatingConfigurationName}}
		Expect(p.admin.Delete(ctx, validating)).To(Succeed())
		Expect(observed.WebhookConfigurations(ctx, p.admin)).To(Succeed())

		p.seedRules(ctx)
		p.seedPods(ctx)
		p.seedInstallation(ctx, mutating)

		// The cluster has a supported version, and needs its CustomResourceDefinitions first.
		var want []doctor.ID
		for _, id := range doctor.IDs() {
			if id != "crd-missing" && id != "kubernetes-version" {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		Eventually(ctx, p.diagnosed).Should(WithTransform(checksOf, Equal(want)))
		out, _, code := p.podops(ctx, "doctor", "-n", p.namespace, "--long", "1s")
		GinkgoWriter.Println(out)
		Expect(code).To(Equal(2))

		By("removing a CustomResourceDefinition")
		p.kubectl(ctx, "delete", "crd", "podoperations.apps.kusionstack.io")
		Eventually(ctx, p.diagnosed).Should(And(WithTransform(checksOf, ContainElement(doctor.ID("crd-missing"))),
			HaveField("NotChecked", ContainElement(HaveField("Check", doctor.ID("operation-without-controller"))))))
	})
})

// seedInstallation adds a fault for each check of the installation. The configuration is that of before.
func (p scenario) seedInstallation(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) {
	GinkgoHelper()
	By("adding faults to the installation")
	certificate, _, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: "podops-webhook.podops-system.svc", MaxAge: 24 * time.Hour})
	Expect(err).NotTo(HaveOccurred())
	secret := servingSecret(ctx)
	secret.Data[corev1.TLSCertKey] = certificate
	Expect(p.admin.Update(ctx, secret)).To(Succeed())
	p.review(ctx, admissionregistrationv1.Delete, admissionregistrationv1.Validation{Expression: "true"}) // of others, and denies none
	for _, change := range [][]string{
		{"delete", "validatingadmissionpolicybinding", "podops-pod-binding"},
		{"patch", "validatingadmissionpolicybinding", "podops-pod-status", "--type=merge", "-p", `{"spec":{"validationActions":["Audit"]}}`},
		{"patch", "crd", "trafficadapters.apps.kusionstack.io", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"Another."}]`},
		{"label", "namespace", managerprocess.Namespace, appsv1alpha1.ControlLabelKey + "-"},
		{"annotate", "namespace", p.namespace, appsv1alpha1.BreakGlassAnnotationKey + "=INC-1"},
		{"delete", "lease", "-n", managerprocess.Namespace, managerprocess.Account},
	} {
		p.kubectl(ctx, change...)
	}
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(p.admin.Delete(ctx, servingSecret(ctx)))).To(Succeed())
	})
	faulty := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mutating.Name}}
	for _, webhook := range mutating.Webhooks {
		switch webhook.Name {
		case "pods.podops.kusionstack.io":
			webhook.ClientConfig.URL = nil
			webhook.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: managerprocess.Namespace, Name: certificates.ServiceName, Path: new("/mutate-v1-pod")}
			webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
		case "podtransitionrules.podops.kusionstack.io":
		default:
			continue
		}
		faulty.Webhooks = append(faulty.Webhooks, webhook)
	}
	Expect(p.admin.Create(ctx, faulty)).To(Succeed())
}

// seedRules adds a fault for each check of rules, policies and budgets.
func (p scenario) seedRules(ctx context.Context) {
	GinkgoHelper()
	By("adding faults to rules, policies and budgets")
	requires := func(value string) *appsv1alpha1.LabelCheck {
		return &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"approved": value}}}
	}
	p.ruleNamed(ctx, "never", minAvailable("100%"))
	p.ruleNamed(ctx, "count", maxUnavailable("25"))
	surges := minAvailable("1")
	surges.AvailablePolicy.Surge = intOrString("1")
	p.ruleNamed(ctx, "surges", surges)
	p.ruleNamed(ctx, "yes", appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: requires("yes")})
	p.ruleNamed(ctx, "no", appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: requires("no")})
	p.ruleNamed(ctx, "missing", appsv1alpha1.TransitionRule{Name: "shared", Rego: &appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: "no-such-policy"}}})
	p.patch(ctx, p.ruleNamed(ctx, "elsewhere", approved()), `{"spec":{"selector":{"matchLabels":{"app":"wbe"}}}}`)
	called := webhookRule("https://approvals." + p.namespace + ".svc/approve")
	called.Webhook.ClientConfig.SecretRef = &appsv1alpha1.SecretReference{Name: "no-such-secret"}
	p.patch(ctx, p.ruleNamed(ctx, "called", called), `{"spec":{"maxHold":"20m"}}`)

	reported := p.ruleNamed(ctx, "reported", approved())
	reported.Status.Conditions = []metav1.Condition{condition(appsv1alpha1.ConditionReady, metav1.ConditionFalse, appsv1alpha1.ReasonCompileFailed)}
	reported.Status.Rules = []appsv1alpha1.RuleStatus{{
		Name: "approved", Enforcement: appsv1alpha1.EnforcementEnforce,
		Quarantined: &appsv1alpha1.Quarantine{Since: metav1.Now(), Source: "x", Message: "it does not return in time"},
	}}
	reported.Status.RuleStates = []appsv1alpha1.RuleState{{Name: "approved", WebhookStatus: &appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{
		{TraceID: "t", Phase: appsv1alpha1.TaskFailed, Attempts: 3, Reason: "Timeout", BeginTime: metav1.Now(), LastTime: metav1.Now()},
	}}}}
	Expect(p.admin.Status().Update(ctx, reported)).To(Succeed())

	broken := &appsv1alpha1.PodTransitionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Spec: appsv1alpha1.PodTransitionPolicySpec{Module: "package rule"}}
	Expect(p.admin.Create(ctx, broken)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(p.admin.Delete(ctx, broken))).To(Succeed()) })
	broken.Status.Conditions = []metav1.Condition{condition(appsv1alpha1.ConditionReady, metav1.ConditionFalse, appsv1alpha1.ReasonCompileFailed)}
	Expect(p.admin.Status().Update(ctx, broken)).To(Succeed())

	adapter := &appsv1alpha1.TrafficAdapter{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Spec: appsv1alpha1.TrafficAdapterSpec{
		Controller: "gone", Services: []appsv1alpha1.ServiceMatch{{Type: corev1.ServiceTypeLoadBalancer}},
	}}
	Expect(p.admin.Create(ctx, adapter)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(p.admin.Delete(ctx, adapter))).To(Succeed()) })
	adapter.Status.Conditions = []metav1.Condition{
		condition(appsv1alpha1.ConditionReady, metav1.ConditionFalse, appsv1alpha1.ReasonTooMany),
		condition(appsv1alpha1.ConditionRunning, metav1.ConditionFalse, appsv1alpha1.ReasonLeaseExpired),
	}
	Expect(p.admin.Status().Update(ctx, adapter)).To(Succeed())

	for _, name := range []string{"first", "second"} {
		Expect(p.admin.Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MaxUnavailable: intOrString("0"),
		}})).To(Succeed())
	}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "other", Labels: map[string]string{appsv1alpha1.ControlLabelKey: "true"}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()},
	}
	recreates := deployment.DeepCopy()
	recreates.Name, recreates.Spec.Strategy.Type = "recreates", appsv1.RecreateDeploymentStrategyType
	Expect(p.admin.Create(ctx, recreates)).To(Succeed())
	delete(deployment.Spec.Template.Labels, appsv1alpha1.ControlLabelKey)
	Expect(p.admin.Create(ctx, deployment)).To(Succeed())
	headless := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "headless"}}
	headless.Spec = corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "web"}}
	Expect(p.admin.Create(ctx, headless)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		p.kubectl(ctx, "annotate", "namespace", p.namespace, appsv1alpha1.BreakGlassAnnotationKey+"-")
	})
	p.kubectl(ctx, "label", "namespace", p.namespace, appsv1alpha1.ControlLabelKey+"=false")
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now(), Message: "as the manager reports it"}
}

// seedPods adds a pod for each check of pods. The times in their labels are an hour ago.
func (p scenario) seedPods(ctx context.Context) {
	GinkgoHelper()
	By("adding pods with faults, and a Service that its adapter has left")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "left", Finalizers: []string{resourceconsist.CleanFinalizer("left")}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	Expect(p.admin.Create(ctx, service)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { p.patch(ctx, service, `{"metadata":{"finalizers":null}}`) })
	Expect(p.admin.Delete(ctx, service)).To(Succeed())
	const id, orphan = "upgrade", appsv1alpha1.ProtectionFinalizerPrefix + "/gone"
	ago := strconv.FormatInt(time.Now().Add(-time.Hour).UnixNano(), 10)
	stamped := func(id, operationType string, prefixes ...string) map[string]string {
		all := labels()
		all[appsv1alpha1.OperationTypeLabelPrefix+"/"+id] = operationType
		for _, prefix := range prefixes {
			all[prefix+"/"+id] = ago
		}
		return all
	}
	gated := func(labels map[string]string, change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels = labels
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}
			if change != nil {
				change(pod)
			}
		}
	}
	const operating, waiting = appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.PreCheckLabelPrefix
	const checked, prepare, operate = appsv1alpha1.PreCheckedLabelPrefix, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.OperateLabelPrefix
	untyped := labels()
	untyped[operating+"/"+id] = ago
	offline := labels()
	offline[appsv1alpha1.StayOfflineLabelKey] = "true"
	p.pod(ctx, "gateless", nil)
	p.pod(ctx, "untyped", gated(untyped, nil))
	p.pod(ctx, "waits", gated(stamped(id, "update", operating, waiting), nil))
	p.pod(ctx, "operates", gated(stamped(id, "update", operating, checked, operate), nil))
	p.pod(ctx, "abandoned", gated(stamped(appsv1alpha1.PodOperationIDPrefix+"gone", "restart", operating, waiting), nil))
	p.pod(ctx, "orphaned", gated(stamped(id, "update", operating, checked, prepare), func(pod *corev1.Pod) { pod.Finalizers = []string{orphan} }))
	p.pod(ctx, "expects", gated(labels(), func(pod *corev1.Pod) {
		serviceController{employer: "web"}.announce(pod)
	}))
	misspelt := labels()
	misspelt[appsv1alpha1.ControlLabelKey] = "True"
	p.pod(ctx, "misspelt", gated(misspelt, nil))
	p.pod(ctx, "held", gated(stamped(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, operating, waiting), nil))
	Eventually(ctx, p.seeing("held")).Should(HaveField("Spec.NodeName", Not(BeEmpty())))
	node := p.get(ctx, "held").Spec.NodeName
	p.kubectl(ctx, "cordon", node)
	DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", node) })
	open, closed := corev1.ConditionTrue, corev1.ConditionFalse
	p.setGate(ctx, p.pod(ctx, "offline", gated(offline, nil)), closed, "")
	p.setGate(ctx, p.pod(ctx, "late", gated(labels(), nil)), closed, appsv1alpha1.ReasonKubeletNotSyncing)
	p.setGate(ctx, p.get(ctx, "expects"), open, "")
	DeferCleanup(func(ctx context.Context) {
		for _, pod := range p.list(ctx) {
			Expect(client.IgnoreNotFound(p.admin.Patch(ctx, pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
			Expect(client.IgnoreNotFound(p.admin.Delete(ctx, pod, forced))).To(Succeed())
		}
	})
}

// setGate sets the readiness gate of a pod, as it was set an hour ago.
func (p scenario) setGate(ctx context.Context, pod *corev1.Pod, status corev1.ConditionStatus, reason string) {
	GinkgoHelper()
	name := pod.Name
	Eventually(ctx, func(ctx context.Context) error {
		pod := p.get(ctx, name)
		gate := corev1.PodCondition{
			Type: appsv1alpha1.ServiceReadyGate, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.Type })
		pod.Status.Conditions = append(pod.Status.Conditions, gate)
		return p.admin.Status().Update(ctx, pod)
	}).Should(Succeed())
}
