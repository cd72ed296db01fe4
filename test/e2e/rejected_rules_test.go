package e2e_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// selector and check are valid parts of a rule.
const (
	selector = "selector: {matchLabels: {app: web}}"
	check    = "labelCheck: {requires: {matchLabels: {a: b}}}"
)

// oneRule is a spec with one rule.
func oneRule(rule string) string {
	return selector + "\nrules:\n- name: the-rule\n  " + rule
}

func available(bound string) string { return oneRule("availablePolicy: {" + bound + "}") }

func webhook(config string) string { return oneRule("webhook: {clientConfig: {" + config + "}}") }

var _ = Describe("A PodTransitionRule", func() {
	var p scenario
	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	DescribeTable("is rejected with an error that names the field",
		func(ctx context.Context, spec string, names ...string) {
			_, refusal := p.createRule(ctx, spec)
			Expect(refusal).To(expect.BeRefused(422, names...))
		},
		Entry("without a selector", "rules: [{name: r, "+check+"}]", "spec.selector"),
		Entry("with an empty selector", "selector: {}\nrules: [{name: r, "+check+"}]", "spec.selector"),
		Entry("with an invalid selector", "selector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}\nrules: [{name: r, "+check+"}]", "spec.selector", "Like"),
		Entry("without rules", selector+"\nrules: []", "spec.rules"),
		Entry("with two rules of one name", selector+"\nrules: [{name: r, "+check+"}, {name: r, "+check+"}]", "spec.rules[1]", "Duplicate", `"name":"r"`),
		Entry("with 65 rules", selector+"\nrules:\n"+manyRules(65), "spec.rules"),
		Entry("with a name of 300 characters", selector+"\nrules: [{name: "+strings.Repeat("r", 300)+", "+check+"}]", "spec.rules[0].name"),
		Entry("with two kinds of check in one rule", oneRule("availablePolicy: {maxUnavailableValue: 1}\n  "+check), "spec.rules[0]", "exactly one of availablePolicy, labelCheck"),
		Entry("with no kind of check", oneRule("stage: PreCheck"), "spec.rules[0]", "exactly one of availablePolicy, labelCheck"),
		Entry("with an unknown stage", oneRule("stage: Sometimes\n  "+check), "spec.rules[0].stage"),
		Entry("with an unknown enforcement", oneRule("enforcement: Maybe\n  "+check), "spec.rules[0].enforcement"),
		Entry("with an invalid filter", oneRule("filter: {labelSelector: {matchExpressions: [{key: a, operator: In}]}}\n  "+check), "spec.rules[0].filter.labelSelector"),
		Entry("with an invalid labelCheck", oneRule("labelCheck: {requires: {matchExpressions: [{key: a, operator: In}]}}"), "spec.rules[0].labelCheck.requires"),
		Entry("with neither bound", available(""), "spec.rules[0].availablePolicy", "set maxUnavailableValue, such as 25%, minAvailableValue, or both"),
		Entry("with maxUnavailableValue -1", available("maxUnavailableValue: -1"), "maxUnavailableValue"),
		Entry("with maxUnavailableValue 150%", available("maxUnavailableValue: 150%"), "maxUnavailableValue"),
		Entry("with maxUnavailableValue 101%", available("maxUnavailableValue: 101%"), "maxUnavailableValue"),
		Entry("with maxUnavailableValue 50 %", available("maxUnavailableValue: 50 %"), "maxUnavailableValue"),
		Entry(`with maxUnavailableValue "5"`, available(`maxUnavailableValue: "5"`), "maxUnavailableValue"),
		Entry("with maxUnavailableValue 1.5", available("maxUnavailableValue: 1.5"), "maxUnavailableValue"),
		Entry("with maxUnavailableValue 2147483648", available("maxUnavailableValue: 2147483648"), "maxUnavailableValue"),
		Entry("with minAvailableValue -1", available("minAvailableValue: -1"), "minAvailableValue"),
		Entry("with two different spellings of one bound", available("maxUnavailableValue: 1, maxUnavailable: {value: 2}"), "maxUnavailable.value", "maxUnavailableValue"),
		Entry("with a bound that is not evaluated", available("maxUnavailablePolicy: {expFunc: {coeff: '1'}}"), "maxUnavailablePolicy", "not evaluated"),
		Entry("with a webhook that has credentials in its URL", webhook("url: 'https://me:secret@example.com/'"), "spec.rules[0].webhook.clientConfig.url", "password"),
		Entry("with a webhook whose host is an address in disguise", webhook("url: 'https://0x7f000001/'"), "spec.rules[0].webhook.clientConfig.url"),
		Entry("with a webhook at the metadata address of clouds", webhook("url: 'http://169.254.169.254/'"), "spec.rules[0].webhook.clientConfig.url", "169.254.169.254 is link-local", "--rule-webhook-allow-cidr"),
		Entry("with a webhook at the NAT64 form of that address", webhook("url: 'http://[64:ff9b::a9fe:a9fe]/'"), "spec.rules[0].webhook.clientConfig.url", "NAT64", "--rule-webhook-allow-host"),
		Entry("with a webhook that is polled on this machine", webhook("url: 'https://example.com/', poll: {url: 'https://[::1]/'}"), "spec.rules[0].webhook.clientConfig.poll.url", "loopback"),
		Entry("with a webhook with an invalid caBundle", webhook("url: 'https://example.com/', caBundle: bm90aGluZw=="), "spec.rules[0].webhook.clientConfig.caBundle"),
		Entry("with a webhook that would send its Secret without TLS", webhook("url: 'http://example.com/', secretRef: {name: s}"), "spec.rules[0].webhook.clientConfig.secretRef", "https"),
		Entry("with a webhook that refers to an unknown field of pods", oneRule("webhook: {clientConfig: {url: 'https://example.com/'}, parameters: [{key: a, valueFrom: {fieldRef: {fieldPath: spec.foo.bar}}}]}"), "spec.rules[0].webhook.parameters[0].valueFrom.fieldRef.fieldPath", "foo"),
		Entry("with Rego that has no entry point", oneRule("rego: {module: 'package rule'}"), "spec.rules[0].rego.module", "allow", "deny"),
		Entry("with Rego and a policy at once", oneRule("rego: {module: 'package rule', policyRef: {name: p}}"), "spec.rules[0].rego", "exactly one of module or policyRef"),
	)

	DescribeTable("is stored in one spelling",
		func(ctx context.Context, spec, warning string, stored types.GomegaMatcher) {
			warnings, refusal := p.createRule(ctx, spec)
			Expect(refusal).NotTo(HaveOccurred())
			if warning == "" {
				Expect(warnings).To(BeEmpty())
			} else {
				Expect(warnings).To(ContainElement(ContainSubstring(warning)))
			}
			rule, err := p.seeingRule("web")(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(rule.Spec.Rules[0]).To(stored)
		},
		Entry("maxUnavailable.value", available("maxUnavailable: {value: 50%}"), "",
			And(HaveField("AvailablePolicy.MaxUnavailableValue.StrVal", "50%"), HaveField("AvailablePolicy.MaxUnavailable", BeNil()))),
		Entry("minAvailable.value", available("minAvailable: {value: 5}"), "",
			And(HaveField("AvailablePolicy.MinAvailableValue.IntVal", int32(5)), HaveField("AvailablePolicy.MinAvailable", BeNil()))),
		Entry("both spellings with one value", available("maxUnavailableValue: 1, maxUnavailable: {value: 1}"), "",
			HaveField("AvailablePolicy.MaxUnavailable", BeNil())),
		Entry("stage PreTrafficOff", oneRule("stage: PreTrafficOff\n  "+check), "PreCheck", HaveField("Stage", appsv1alpha1.StagePreCheck)),
		Entry("stage PreTrafficOn", oneRule("stage: PreTrafficOn\n  "+check), "PostCheck", HaveField("Stage", appsv1alpha1.StagePostCheck)),
		Entry("no stage and no enforcement", oneRule(check), "",
			And(HaveField("Stage", appsv1alpha1.StagePreCheck), HaveField("Enforcement", appsv1alpha1.EnforcementEnforce))),
		Entry("a maximum of 0", available("maxUnavailableValue: 0"), "passes only while there are more pods than desired",
			HaveField("AvailablePolicy.MaxUnavailableValue.IntVal", int32(0))),
		Entry("a maximum of 0%", available("maxUnavailableValue: 0%"), "passes only while there are more pods than desired",
			HaveField("AvailablePolicy.MaxUnavailableValue.StrVal", "0%")),
		Entry("a bound without capacity", available("minAvailableValue: 100%"), "passes only while there are more pods than desired",
			HaveField("AvailablePolicy.MinAvailableValue.StrVal", "100%")),
	)
})

// createRule creates the PodTransitionRule web as a user writes it, and returns the
// warnings and the error of the answer.
func (p scenario) createRule(ctx context.Context, spec string) (warnings []string, refusal error) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	manifest := fmt.Sprintf("apiVersion: apps.kusionstack.io/v1alpha1\nkind: PodTransitionRule\nmetadata: {name: web, namespace: %s}\nspec:\n%s",
		p.namespace, indent(spec))
	Expect(yaml.Unmarshal([]byte(manifest), &object.Object)).To(Succeed(), manifest)
	config := rest.CopyConfig(p.config)
	config.WarningHandlerWithContext = nil
	config.WarningHandler = warningsTo(func(text string) { warnings = append(warnings, text) })
	user, err := client.New(config, client.Options{Scheme: p.scheme})
	Expect(err).NotTo(HaveOccurred())
	refusal = user.Create(ctx, object)
	return warnings, refusal
}

// warningsTo passes the warnings of answers to a function.
type warningsTo func(string)

// HandleWarningHeader passes one warning.
func (w warningsTo) HandleWarningHeader(_ int, _ string, text string) { w(text) }

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

func manyRules(count int) string {
	var rules strings.Builder
	for i := range count {
		fmt.Fprintf(&rules, "- {name: r%d, %s}\n", i, check)
	}
	return strings.TrimSpace(rules.String())
}
