package podtransitionrule_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

const selectWeb = `selector: {matchLabels: {app: web}}`

// Each rule of the schema has one entry that it accepts and at least one that it rejects,
// with the error text. Specs are written as users write them, since Go types cannot express
// invalid ones.
var _ = Describe("The spec", func() {
	DescribeTable("is accepted", expectTaken,
		Entry("with a selector of labels", `{selector: {matchLabels: {app: web}}, rules: [{name: a, labelCheck: {requires: {}}}]}`),
		Entry("with a selector of expressions", `{selector: {matchExpressions: [{key: app, operator: Exists}]}, rules: [{name: a, labelCheck: {requires: {}}}]}`),
		Entry("with 64 rules", manyRules(64)),
		Entry("with two rules of different names", `{`+selectWeb+`, rules: [{name: a, labelCheck: {requires: {}}}, {name: b, labelCheck: {requires: {}}}]}`),
	)

	DescribeTable("is rejected", expectRefused,
		Entry("without a selector", `{rules: [{name: a, labelCheck: {requires: {}}}]}`, "spec.selector", "Required value"),
		Entry("with an empty selector", `{selector: {}, rules: [{name: a, labelCheck: {requires: {}}}]}`, "spec.selector", "an empty selector would catch every pod"),
		Entry("with a selector of no requirements", `{selector: {matchLabels: {}, matchExpressions: []}, rules: [{name: a, labelCheck: {requires: {}}}]}`, "spec.selector", "an empty selector would catch every pod"),
		Entry("without rules", `{`+selectWeb+`}`, "spec.rules", "Required value"),
		Entry("with no rule in the list", `{`+selectWeb+`, rules: []}`, "spec.rules", "at least 1"),
		Entry("with 65 rules", manyRules(65), "spec.rules", "64 items"),
		Entry("with two rules of one name", `{`+selectWeb+`, rules: [{name: a, labelCheck: {requires: {}}}, {name: a, labelCheck: {requires: {}}}]}`, "spec.rules[1]", "Duplicate value"),
	)
})

var _ = Describe("A rule", func() {
	DescribeTable("is accepted", expectRuleTaken,
		Entry("with a name of 63 characters", `{name: `+strings.Repeat("n", 63)+`, labelCheck: {requires: {}}}`),
		Entry("with dots, dashes and underscores in its name", `{name: A.b-c_9, labelCheck: {requires: {}}}`),
		Entry("at stage PostCheck", `{name: a, stage: PostCheck, labelCheck: {requires: {}}}`),
		Entry("that only warns", `{name: a, enforcement: Warn, labelCheck: {requires: {}}}`),
		Entry("that only counts", `{name: a, enforcement: DryRun, labelCheck: {requires: {}}}`),
		Entry("for some operation types and some pods", `{name: a, disabled: true, conditions: [update, delete], filter: {labelSelector: {matchLabels: {tier: gold}}}, labelCheck: {requires: {}}}`),
		Entry("with 32 operation types", `{name: a, conditions: [`+numbered("t", 32)+`], labelCheck: {requires: {}}}`),
		Entry("with an availablePolicy", `{name: a, availablePolicy: {maxUnavailableValue: 1}}`),
		Entry("with a labelCheck", `{name: a, labelCheck: {requires: {matchLabels: {approved: "true"}}}}`),
		Entry("with an approval", `{name: a, approval: {}}`),
		Entry("with approvals by 10 users", `{name: a, approval: {minApprovals: 10, allowAuthor: true}, exemptRevisions: Abandoned}`),
		Entry("with a webhook", `{name: a, webhook: {clientConfig: {url: "https://example.com"}}}`),
		Entry("with a module", `{name: a, rego: {module: package rule}}`),
	)

	DescribeTable("is rejected", expectRuleRefused,
		Entry("with approvals by 11 users", `{name: a, approval: {minApprovals: 11}}`, "spec.rules[0].approval.minApprovals", "less than or equal to 10"),
		Entry("with approvals by no user", `{name: a, approval: {minApprovals: 0}}`, "spec.rules[0].approval.minApprovals", "greater than or equal to 1"),
		Entry("with an approval after the operation", `{name: a, stage: PostCheck, approval: {}}`, "spec.rules[0]", "in the stage PreCheck only"),
		Entry("with an approval that no rollout needs", `{name: a, approval: {}, exemptRevisions: Outdated}`, "spec.rules[0]", "it exempts every pod that a rollout replaces"),
		Entry("with an approval and labels", `{name: a, approval: {}, labelCheck: {requires: {}}}`, "spec.rules[0]", "exactly one of availablePolicy, labelCheck, approval, webhook or rego"),
		Entry("without a name", `{labelCheck: {requires: {}}}`, "spec.rules[0].name", "Required value"),
		Entry("with an empty name", `{name: "", labelCheck: {requires: {}}}`, "spec.rules[0].name", "at least 1"),
		Entry("with a name of 64 characters", `{name: `+strings.Repeat("n", 64)+`, labelCheck: {requires: {}}}`, "spec.rules[0].name", "63"),
		Entry("with a name of 300 characters", `{name: `+strings.Repeat("n", 300)+`, labelCheck: {requires: {}}}`, "spec.rules[0].name", "63"),
		Entry("with a space in its name", `{name: "a b", labelCheck: {requires: {}}}`, "spec.rules[0].name", "should match"),
		Entry("at a stage that does not exist", `{name: a, stage: Later, labelCheck: {requires: {}}}`, "spec.rules[0].stage", `"PreCheck", "PostCheck"`),
		Entry("with an enforcement that does not exist", `{name: a, enforcement: Maybe, labelCheck: {requires: {}}}`, "spec.rules[0].enforcement", `"Enforce", "Warn", "DryRun"`),
		Entry("with one operation type twice", `{name: a, conditions: [update, update], labelCheck: {requires: {}}}`, "spec.rules[0].conditions[1]", "Duplicate value"),
		Entry("with an empty operation type", `{name: a, conditions: [""], labelCheck: {requires: {}}}`, "spec.rules[0].conditions[0]", "at least 1"),
		Entry("with an operation type of 64 characters", `{name: a, conditions: [`+strings.Repeat("t", 64)+`], labelCheck: {requires: {}}}`, "spec.rules[0].conditions[0]", "63"),
		Entry("with 33 operation types", `{name: a, conditions: [`+numbered("t", 33)+`], labelCheck: {requires: {}}}`, "spec.rules[0].conditions", "32 items"),
		Entry("of no kind", `{name: a}`, "spec.rules[0]", "exactly one of availablePolicy, labelCheck, approval, webhook or rego"),
		Entry("of two kinds", `{name: a, labelCheck: {requires: {}}, availablePolicy: {maxUnavailableValue: 1}}`, "spec.rules[0]", "exactly one of availablePolicy, labelCheck, approval, webhook or rego"),
		Entry("with a labelCheck without requirements", `{name: a, labelCheck: {}}`, "spec.rules[0].labelCheck.requires", "Required value"),
	)

	It("is stored with its defaults", func(ctx context.Context) {
		stored := &appsv1alpha1.PodTransitionRule{}
		object := object(`{` + selectWeb + `, rules: [{name: a, labelCheck: {requires: {}}}]}`)
		Expect(admin.Create(ctx, object)).To(Succeed())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), stored)).To(Succeed())
		Expect(stored.Spec.Rules).To(HaveLen(1))
		Expect(stored.Spec.Rules[0].Stage).To(Equal(appsv1alpha1.StagePreCheck))
		Expect(stored.Spec.Rules[0].Enforcement).To(Equal(appsv1alpha1.EnforcementEnforce))
	})
})

// expectTaken creates a PodTransitionRule with the spec.
func expectTaken(ctx context.Context, spec string) {
	GinkgoHelper()
	Expect(admin.Create(ctx, object(spec))).To(Succeed())
}

// expectRefused does the same and expects an error with the texts.
func expectRefused(ctx context.Context, spec string, texts ...string) {
	GinkgoHelper()
	Expect(admin.Create(ctx, object(spec))).To(expect.BeRefused(422, texts...))
}

func expectRuleTaken(ctx context.Context, rule string) {
	GinkgoHelper()
	expectTaken(ctx, specOf(rule))
}

func expectRuleRefused(ctx context.Context, rule string, texts ...string) {
	GinkgoHelper()
	expectRefused(ctx, specOf(rule), texts...)
}

// specOf returns a spec with one rule.
func specOf(rule string) string { return `{` + selectWeb + `, rules: [` + rule + `]}` }

// object returns a PodTransitionRule with a spec in YAML.
func object(spec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	text := "{apiVersion: apps.kusionstack.io/v1alpha1, kind: PodTransitionRule, metadata: {namespace: " + namespace + ", generateName: r-}, spec: " + spec + "}"
	Expect(yaml.Unmarshal([]byte(text), object)).To(Succeed())
	return object
}

// numbered returns count words, with commas.
func numbered(word string, count int) string {
	words := make([]string, count)
	for i := range words {
		words[i] = fmt.Sprintf("%s%d", word, i)
	}
	return strings.Join(words, ", ")
}

func manyRules(count int) string {
	rules := make([]string, count)
	for i := range rules {
		rules[i] = fmt.Sprintf("{name: r%d, labelCheck: {requires: {}}}", i)
	}
	return `{` + selectWeb + `, rules: [` + strings.Join(rules, ", ") + `]}`
}

// parameters returns count parameters of a webhook.
func parameters(count int) string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf("{key: p%d, value: v}", i)
	}
	return strings.Join(list, ", ")
}
