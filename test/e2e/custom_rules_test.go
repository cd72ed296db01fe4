package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// regoRule is a rule with an inline module.
func regoRule(name, module string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: name, Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\n" + module}}
}

// policyRule is a rule that refers to a PodTransitionPolicy.
func policyRule(name, policy, parameters string) appsv1alpha1.TransitionRule {
	rule := appsv1alpha1.TransitionRule{Name: name, Rego: &appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: policy}}}
	if parameters != "" {
		rule.Rego.Parameters = &apiextensionsv1.JSON{Raw: []byte(parameters)}
	}
	return rule
}

// policy creates a PodTransitionPolicy that is deleted with the scenario, after its rules.
func (p scenario) policy(ctx context.Context, name, module, schema string) *appsv1alpha1.PodTransitionPolicy {
	GinkgoHelper()
	policy := &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace + "-" + name},
		Spec: appsv1alpha1.PodTransitionPolicySpec{
			Module:     "package rule\n\n" + module,
			Parameters: &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(schema)}},
		},
	}
	Expect(p.admin.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(p.admin.DeleteAllOf(ctx, &appsv1alpha1.PodTransitionRule{}, client.InNamespace(p.namespace))).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(p.admin.Delete(ctx, policy)) }).Should(Succeed())
	})
	return policy
}

// beginAll begins an update of every pod.
func (p scenario) beginAll(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range p.list(ctx) {
		p.begin(ctx, pod, "updater", "update")
	}
}

var _ = Describe("A custom rule", func() {
	var p scenario
	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	It("passes the pods that its module allows, and reports why the others wait", Label(mainStories), func(ctx context.Context) {
		p.rule(ctx, regoRule("tested", `allow if input.pod.labels.tested == "true"

reason := sprintf("%s has not been tested", [input.pod.name])`))
		p.pods(ctx, 2, nil)
		p.label(ctx, p.get(ctx, "web-00"), "tested", "true")
		p.beginAll(ctx)
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", ConsistOf(And(
			HaveField("Name", "web-01"), HaveField("Kind", "rego"), HaveField("Reason", "NotAllowed"), HaveField("Message", "web-01 has not been tested")))))

		By("reporting the same in the events and in the annotation of the pod")
		// A pod has an event once it has waited for some seconds.
		Eventually(ctx, func(ctx context.Context) string {
			describe, _ := p.kubectl(ctx, "--namespace", p.namespace, "describe", "pod", "web-01")
			return describe
		}).Should(ContainSubstring("waits for rule web/tested: web-01 has not been tested (NotAllowed)"))
		Eventually(ctx, p.seeing("web-01")).Should(HaveField("Annotations", HaveKeyWithValue(
			appsv1alpha1.DetailAnnotationPrefix+"/web",
			`{"stage":"PreCheck","passed":false,"rejectInfo":[{"ruleName":"tested","reason":"NotAllowed: web-01 has not been tested"}]}`)))
		p.label(ctx, p.get(ctx, "web-01"), "tested", "true")
		Eventually(ctx, p.seeing("web-01")).Should(And(expect.BeOperable("updater"),
			HaveField("Annotations", Not(HaveKey(HavePrefix(appsv1alpha1.DetailAnnotationPrefix))))))
	})

	It("uses the PodTransitionPolicy that it refers to, which cannot be deleted meanwhile", func(ctx context.Context) {
		policy := p.policy(ctx, "window", `allow if input.parameters.open`,
			`{"type": "object", "properties": {"open": {"type": "boolean", "default": false}}}`)
		p.rule(ctx, policyRule("window", policy.Name, ""))
		p.pods(ctx, 1, nil)
		p.beginAll(ctx)
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", HaveLen(1)))
		Eventually(ctx, func(ctx context.Context) (appsv1alpha1.PodTransitionPolicyStatus, error) {
			err := p.admin.Get(ctx, client.ObjectKeyFromObject(policy), policy)
			return policy.Status, err
		}).Should(And(HaveField("UserCount", int32(1)),
			HaveField("UserNamespaceCount", int32(1)),
			HaveField("Conditions", ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", metav1.ConditionTrue))))))

		By("rejecting its deletion, without names, since the sender of the review is not verified")
		Expect(p.admin.Delete(ctx, policy)).To(MatchError(And(ContainSubstring("is in use by 1 rules"), Not(ContainSubstring(p.namespace+"/web")))))

		By("rejecting unknown parameters")
		Expect(p.admin.Create(ctx, &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "typo"},
			Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels()},
				Rules:    []appsv1alpha1.TransitionRule{policyRule("typo", policy.Name, `{"opened": true}`)},
			},
		})).To(MatchError(ContainSubstring("spec.rules[0].rego.parameters.opened")))

		By("evaluating its rules again when it is edited")
		p.patch(ctx, policy, `{"spec":{"module":%q}}`, "package rule\n\nallow if not input.parameters.open")
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
	})

	It("uses the libraries and the data that its PodTransitionPolicy imports", Label(mainStories), func(ctx context.Context) {
		library, data := p.namespace+"-zones", p.namespace+"-allowed"
		policy := &appsv1alpha1.PodTransitionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: p.namespace + "-zoned"},
			Spec: appsv1alpha1.PodTransitionPolicySpec{Imports: []string{library, data}, Module: fmt.Sprintf(`package rule

import data.config[%q] as allowed
import data.lib[%q] as zones

allow if zones.zone(input.pod) in allowed.zones

reason := sprintf("zone %%s is closed", [zones.zone(input.pod)])
`, data, library)},
		}
		shared := func(name, spec string) *appsv1alpha1.PodTransitionPolicy {
			made := &appsv1alpha1.PodTransitionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(json.Unmarshal([]byte(spec), &made.Spec)).To(Succeed())
			return made
		}
		zones := shared(library, fmt.Sprintf(`{"module": "package lib[\"%s\"]\n\nzone(pod) := pod.labels.zone\n"}`, library))
		allowed := shared(data, `{"data": {"zones": ["b"]}}`)
		DeferCleanup(func(ctx context.Context) {
			Expect(p.admin.DeleteAllOf(ctx, &appsv1alpha1.PodTransitionRule{}, client.InNamespace(p.namespace))).To(Succeed())
			for _, one := range []*appsv1alpha1.PodTransitionPolicy{policy, zones, allowed} {
				Eventually(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(p.admin.Delete(ctx, one)) }).Should(Succeed())
			}
		})
		status := func(name string) func(context.Context) (appsv1alpha1.PodTransitionPolicyStatus, error) {
			return func(ctx context.Context) (appsv1alpha1.PodTransitionPolicyStatus, error) {
				stored := &appsv1alpha1.PodTransitionPolicy{}
				err := p.admin.Get(ctx, client.ObjectKey{Name: name}, stored)
				return stored.Status, err
			}
		}
		ready := func(status metav1.ConditionStatus, reason string) OmegaMatcher {
			return HaveField("Conditions", ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", status), HaveField("Reason", reason))))
		}
		waits := func(reason, message string) OmegaMatcher {
			return HaveField("Status.Blocked", ConsistOf(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
		}

		By("withholding pods while an import does not exist")
		Expect(p.admin.Create(ctx, policy)).To(Succeed())
		p.rule(ctx, policyRule("zoned", policy.Name, ""))
		p.pods(ctx, 2, nil)
		p.label(ctx, p.get(ctx, "web-00"), "zone", "a")
		p.begin(ctx, p.get(ctx, "web-00"), "updater", "update")
		Eventually(ctx, p.seeingRule("web")).Should(waits("PolicyNotFound", "which does not exist"))
		Eventually(ctx, status(policy.Name)).Should(ready(metav1.ConditionFalse, "PolicyNotFound"))

		By("evaluating it once both exist")
		Expect(p.admin.Create(ctx, zones)).To(Succeed())
		Expect(p.admin.Create(ctx, allowed)).To(Succeed())
		Eventually(ctx, p.seeingRule("web")).Should(waits("NotAllowed", "zone a is closed"))
		Eventually(ctx, status(policy.Name)).Should(ready(metav1.ConditionTrue, "Compiled"))
		Eventually(ctx, status(library)).Should(And(ready(metav1.ConditionTrue, "Compiled"), HaveField("UserCount", int32(1))))

		By("rejecting a delete, and an edit with which it would not compile")
		Expect(p.admin.Delete(ctx, zones)).To(MatchError(ContainSubstring("is imported by " + policy.Name)))
		edited := zones.DeepCopy()
		edited.Spec.Module = strings.Replace(zones.Spec.Module, "zone(pod)", "zone_of(pod)", 1)
		Expect(p.admin.Patch(ctx, edited, client.MergeFrom(zones))).To(MatchError(And(ContainSubstring("would no longer compile: "+policy.Name), ContainSubstring("undefined function"))))

		By("evaluating its rules again when data that it imports is edited")
		p.patch(ctx, allowed, `{"spec":{"data":{"zones":["a","b"]}}}`)
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))

		By("withholding pods again when an import is deleted all the same")
		p.patch(ctx, allowed, `{"metadata":{"annotations":{%q:"true"}}}`, appsv1alpha1.IgnoreUsersAnnotationKey)
		Expect(p.admin.Delete(ctx, allowed)).To(Succeed())
		p.begin(ctx, p.get(ctx, "web-01"), "updater", "update")
		Eventually(ctx, p.seeingRule("web")).Should(waits("PolicyNotFound", data))
		p.label(ctx, p.get(ctx, "web-01"), "zone", "b")
		allowed = shared(data, `{"data": {"zones": ["b"]}}`)
		Expect(p.admin.Create(ctx, allowed)).To(Succeed())
		Eventually(ctx, p.seeing("web-01")).Should(expect.BeOperable("updater"))
	})

	It("that reads the node of a pod is evaluated again when the node changes", func(ctx context.Context) {
		p.rule(ctx, regoRule("cordoned", `allow if input.node.unschedulable

reason := sprintf("node %s is %s, and not cordoned", [input.node.name, input.node.conditions.Ready])`))
		p.pods(ctx, 1, nil)
		p.beginAll(ctx)
		node := p.get(ctx, "web-00").Spec.NodeName
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", ConsistOf(And(
			HaveField("Reason", "NotAllowed"), HaveField("Message", "node "+node+" is True, and not cordoned")))))
		DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", node) })
		p.kubectl(ctx, "cordon", node)
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))
	})

	It("that reads who requests a removal binds one client, and no other", func(ctx context.Context) {
		p.rule(ctx, regoRule("no-evictions", `deny contains sprintf("%s evicts nothing here", [input.operation.request.user]) if {
	input.operation.request.method == "Eviction"
}`))
		p.pods(ctx, 2, nil)
		Expect(p.evict(ctx, p.get(ctx, "web-00"))).To(expect.BeRefused(429, "evicts nothing here"))
		p.kubectl(ctx, "--namespace", p.namespace, "delete", "pod", "web-01")
		Eventually(ctx, p.list).Should(ConsistOf(HaveField("Name", "web-00")))

		By("putting the pod back into service once its eviction is not repeated")
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
	})

	It("that reads the groups of a requester believes nothing that clients write", func(ctx context.Context) {
		p.rule(ctx, regoRule("sre", `allow if "sre" in input.operation.request.groups

reason := sprintf("%s (%s) is not in the group sre", [input.operation.request.user, input.operation.request.actor])`))
		p.pods(ctx, 2, nil)
		jane, joe := p.with(p.as("jane", []string{"system:masters", "dev"})), p.with(p.as("joe", []string{"system:masters", "sre"}))
		waits := ConsistOf(And(HaveField("Reason", "NotAllowed"), HaveField("Message", "jane (Client) is not in the group sre")))
		forged := `{"operating.podopslifecycle.kusionstack.io/updater":{"value":"1","type":"update","actor":"Client","user":"joe","groups":["sre"]}}`
		own := func(ctx context.Context) string {
			return p.get(ctx, "web-00").Annotations[appsv1alpha1.RequestersAnnotationKey]
		}

		By("naming another requester with the request")
		jane.patch(ctx, p.get(ctx, "web-00"), `{"metadata":{"labels":{"operating.podopslifecycle.kusionstack.io/updater":"1",
			"operation-type.podopslifecycle.kusionstack.io/updater":"update"},"annotations":{%q:%q}}}`, appsv1alpha1.RequestersAnnotationKey, forged)
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", waits))
		written := own(ctx)
		Expect(written).To(And(ContainSubstring(`"user":"jane"`), Not(ContainSubstring("sre"))))

		By("naming another requester later, dropping the annotation, and by pods/status")
		jane.annotate(ctx, p.get(ctx, "web-00"), appsv1alpha1.RequestersAnnotationKey, forged)
		Expect(own(ctx)).To(Equal(written))
		jane.patch(ctx, p.get(ctx, "web-00"), `{"metadata":{"annotations":null}}`)
		Expect(own(ctx)).To(Equal(written))
		status := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1alpha1.RequestersAnnotationKey, forged))
		Expect(jane.admin.Status().Patch(ctx, p.get(ctx, "web-00"), status)).To(expect.BeRefused(403, appsv1alpha1.RequestersAnnotationKey))
		Expect(own(ctx)).To(Equal(written))

		By("deleting the pod by a label, and by a request")
		jane.label(ctx, p.get(ctx, "web-01"), appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", HaveLen(2)))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", ContainElement(HaveField("Message", "jane (Label) is not in the group sre"))))
		jane.patch(ctx, p.get(ctx, "web-01"), `{"metadata":{"labels":{%q:null}}}`, appsv1alpha1.ToDeleteLabelKey)
		Eventually(ctx, p.seeing("web-01")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		Expect(jane.evict(ctx, p.get(ctx, "web-01"))).To(expect.BeRefused(429, "jane (Evictor) is not in the group sre"))
		Eventually(ctx, func(ctx context.Context) error { return joe.evict(ctx, p.get(ctx, "web-01")) }).Should(Succeed())

		By("beginning the operation as another user")
		joe.begin(ctx, p.get(ctx, "web-00"), "updater", "update")
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))
		Expect(own(ctx)).To(And(ContainSubstring(`"user":"joe"`), ContainSubstring(`"sre"`)))
		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{appsv1alpha1.OperatingLabelPrefix + "/updater": nil})
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		Expect(own(ctx)).To(BeEmpty())
	})

	DescribeTable("is rejected with the location of the error",
		func(ctx context.Context, module string, names ...string) {
			file := filepath.Join(GinkgoT().TempDir(), "rule.yaml")
			manifest := "apiVersion: apps.kusionstack.io/v1alpha1\nkind: PodTransitionRule\nmetadata: {name: web, namespace: " + p.namespace + "}\nspec:\n  " +
				selector + "\n  rules:\n  - name: mine\n    rego:\n      module: |\n" + indent(indent(indent(indent(module))))
			Expect(os.WriteFile(file, []byte(manifest), 0o600)).To(Succeed())
			refusal := p.kubectlFails(ctx, "apply", "-f", file)
			for _, name := range append(names, "spec.rules[0].rego.module") {
				Expect(refusal).To(ContainSubstring(name))
			}
		},
		Entry("a syntax error", "package rule\n\nallow if {\n", "web/mine.rego:4:", "rego_parse_error"),
		Entry("a typo in a field", "package rule\n\nallow if input.pod.lables.app == \"web\"", "3:10", "lables"),
		Entry("a builtin that uses the network", "package rule\n\nallow if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"}).status_code == 200", "3:10", "http.send"),
		Entry("a package of the library", "package podops.rules.labelcheck\n\nallow := true", "1:", "package"),
		Entry("both entry points", "package rule\n\nallow := true\n\ndeny contains \"no\"", "allow", "deny"),
		Entry("no entry point", "package rule\n\nyes := true", "allow", "deny"),
		Entry("an unused variable", "package rule\n\nallow if {\n\tx := 1\n}", "4:2", "unused"),
	)

	It("that loops is interrupted and quarantined, and affects no other rule", func(ctx context.Context) {
		p.ruleNamed(ctx, "slow", regoRule("loops", `allow if {
	some i in numbers.range(1, 5000)
	some j in numbers.range(1, 5000)
	some k in numbers.range(1, 5000)
	i * j * k < 0
}`))
		p.pods(ctx, 4, nil)
		p.beginAll(ctx)
		other := newScenario(ctx)
		other.rule(ctx, maxUnavailable("1"))
		other.pods(ctx, 1, nil)
		other.beginAll(ctx)
		Eventually(ctx, other.list).Should(HaveEach(expect.BeOperable("updater")))

		Eventually(ctx, p.seeingRule("slow")).Should(And(
			HaveField("Status.Blocked", HaveLen(4)), HaveField("Status.Blocked", HaveEach(HaveField("Reason", "PolicyTooExpensive"))),
			HaveField("Status.Rules", ConsistOf(HaveField("Quarantined", Not(BeNil())))),
			HaveField("Status.Conditions", ContainElement(And(HaveField("Type", "Stalled"), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "PolicyTooExpensive"))))))
		Expect(p.list(ctx)).To(HaveEach(And(expect.BeWaiting("updater"), expect.BeAvailable())))
		Expect(managers.metric(ctx, "podops_rule_quarantined", p.namespace)).To(Equal("1"))

		By("lifting it when the module is edited")
		rule, err := p.seeingRule("slow")(ctx)
		Expect(err).NotTo(HaveOccurred())
		p.patch(ctx, rule, `{"spec":{"rules":[{"name":"loops","rego":{"module":"package rule\n\nallow := true"}}]}}`)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Eventually(ctx, func(ctx context.Context) string { return managers.metric(ctx, "podops_rule_quarantined", p.namespace) }).Should(BeEmpty())
	})

	It("that reads other pods bounds pods that wait at once", Label(mainStories), func(ctx context.Context) {
		applied, _ := p.kubectl(ctx, "apply", "-f", filepath.Join("..", "..", "config", "samples", "policies", "one-per-shard.yaml"), "--namespace", p.namespace, "--server-side", "--force-conflicts")
		Expect(applied).To(ContainSubstring("podtransitionpolicy"))
		p.rule(ctx, policyRule("shard", "one-per-shard", `{"shard_label": "shard"}`))
		p.pods(ctx, 6, func(pod *corev1.Pod) { pod.Labels["shard"] = string(pod.Name[len(pod.Name)-1]%2 + '0') })
		p.beginAll(ctx)
		Eventually(ctx, p.list).Should(ContainElements(manyTimes(2, expect.BeOperable("updater"))...))
		Consistently(ctx, p.list).Should(ContainElements(manyTimes(4, expect.BeWaiting("updater"))...))
	})

	It("withholds the requests that its dry run counted", func(ctx context.Context) {
		trial := regoRule("tested", `deny contains sprintf("%s has not been tested", [input.pod.name]) if not input.pod.labels.tested`)
		trial.Enforcement = appsv1alpha1.EnforcementDryRun
		rule := p.rule(ctx, trial)
		// All old pods request their permit at once, as far as the rule permits it.
		deployment := p.deployment(ctx, 6, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: intOrString("100%")}
		})
		for i, pod := range p.list(ctx) {
			if i < 2 {
				p.label(ctx, pod, "tested", "true")
			}
		}
		roll := func() {
			p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":{"rolled":%q}}}}}`, time.Now().String())
		}
		old := uids(p.list(ctx))
		roll()
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Rules", ConsistOf(And(HaveField("WouldWithhold", int64(4)), HaveField("Evaluated", int64(6)), HaveField("Withheld", int64(0))))))
		Eventually(ctx, p.list).Should(And(HaveLen(6), HaveEach(HaveField("UID", Not(BeElementOf(old))))))
		p.awaitAvailable(ctx, 6)

		for i, pod := range p.list(ctx) {
			if i < 2 {
				p.label(ctx, pod, "tested", "true")
			}
		}
		p.patch(ctx, rule, `{"spec":{"rules":[{"name":"tested","enforcement":"Enforce","rego":{"module":%q}}]}}`, trial.Rego.Module)
		p.awaitObserved(ctx, rule)
		roll()
		Eventually(ctx, p.seeingRule("web")).Should(And(
			HaveField("Status.Rules", ConsistOf(And(HaveField("Withheld", int64(4)), HaveField("WouldWithhold", int64(0)), HaveField("Enforcement", appsv1alpha1.EnforcementEnforce)))),
			HaveField("Status.Blocked", HaveLen(4))))
	})
})

// kubectlFails runs kubectl, expects it to fail, and returns its output.
func (c *cluster) kubectlFails(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := exec.CommandContext(ctx, requireProgram("kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...).CombinedOutput()
	Expect(err).To(HaveOccurred(), string(output))
	return string(output)
}

// metric returns the value of a series with the label of a namespace, at the leader; empty
// when the series does not exist.
func (f *managerSet) metric(ctx context.Context, name, namespace string) string {
	GinkgoHelper()
	for _, m := range f.running() {
		series := regexp.MustCompile(`(?m)^` + name + `\{[^}]*namespace="` + namespace + `"[^}]*\} (\S+)$`)
		if found := series.FindStringSubmatch(m.metrics(ctx)); found != nil {
			return strings.TrimSpace(found[1])
		}
	}
	return ""
}
