package podtransitionrule_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Each bound of a label selector has the largest accepted and the smallest rejected value.
// Bounds of PodOps types are in the tables of their kinds.
var _ = Describe("A label selector", func() {
	DescribeTable("is accepted in every field", func(ctx context.Context, selector string) {
		expectTaken(ctx, `{selector: `+selector+`, rules: [{name: a, labelCheck: {requires: {}}}]}`)
		expectRuleTaken(ctx, `{name: a, labelCheck: {requires: `+selector+`}}`)
		expectRuleTaken(ctx, `{name: a, filter: {labelSelector: `+selector+`}, labelCheck: {requires: {}}}`)
	},
		Entry("with 64 labels", labels(64)),
		Entry("with 32 expressions", expressions(32, "key", "Exists", 0)),
		Entry("with 64 values", expressions(1, "key", "In", 64)),
		Entry("with the longest key and value", `{matchLabels: {`+longKey(317)+`: `+strings.Repeat("v", 63)+`}}`),
		Entry("with the longest key of an expression", expressions(1, longKey(317), "Exists", 0)),
	)

	DescribeTable("is rejected in every field", func(ctx context.Context, selector, path, text string) {
		expectRefused(ctx, `{selector: `+selector+`, rules: [{name: a, labelCheck: {requires: {}}}]}`, "spec.selector."+path, text)
		expectRuleRefused(ctx, `{name: a, labelCheck: {requires: `+selector+`}}`, "spec.rules[0].labelCheck.requires."+path, text)
		expectRuleRefused(ctx, `{name: a, filter: {labelSelector: `+selector+`}, labelCheck: {requires: {}}}`, "spec.rules[0].filter.labelSelector."+path, text)
	},
		Entry("with 65 labels", labels(65), "matchLabels", "64 items"),
		Entry("with 33 expressions", expressions(33, "key", "Exists", 0), "matchExpressions", "32 items"),
		Entry("with 65 values", expressions(1, "key", "In", 65), "matchExpressions[0].values", "64 items"),
		Entry("with a value of 64 characters", `{matchExpressions: [{key: a, operator: In, values: [`+strings.Repeat("v", 64)+`]}]}`, "matchExpressions[0].values[0]", "63 bytes"),
		Entry("with a label of 64 characters", `{matchLabels: {a: `+strings.Repeat("v", 64)+`}}`, "matchLabels.a", "63 bytes"),
		Entry("with a key of 318 characters", `{matchLabels: {`+longKey(318)+`: v}}`, "matchLabels", "a label key has at most 317 characters"),
		Entry("with a key of 318 characters in an expression", expressions(1, longKey(318), "Exists", 0), "matchExpressions[0].key", "317 bytes"),
		Entry("with an operator of 17 characters", expressions(1, "key", strings.Repeat("o", 17), 0), "matchExpressions[0].operator", "16 bytes"),
	)
})

var _ = Describe("Parameters", func() {
	It("are accepted up to 256", func(ctx context.Context) {
		expectRegoTaken(ctx, `{module: package rule, parameters: {`+fields(256)+`}}`)
	})
	It("are rejected from 257", func(ctx context.Context) {
		expectRegoRefused(ctx, `{module: package rule, parameters: {`+fields(257)+`}}`, "spec.rules[0].rego.parameters", "256 items")
	})
})

// Server-side apply merges by the types of the schema, before any webhook is called.
var _ = Describe("Server-side apply", func() {
	DescribeTable("accepts each spelling of a bound", func(ctx context.Context, spelling string) {
		applied := object(specOf(`{name: a, availablePolicy: {` + spelling + `}}`))
		applied.SetGenerateName("")
		applied.SetName("applied")
		for range 2 { // the second one merges with the stored object
			Expect(admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership)).To(Succeed())
		}
		read := &appsv1alpha1.PodTransitionRule{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(applied), read)).To(Succeed())
		Expect(admin.Delete(ctx, read)).To(Succeed())
	},
		Entry("canonical", `maxUnavailableValue: 25%`),
		Entry("nested", `maxUnavailable: {value: 25%}`),
		Entry("short, a percentage", `maxUnavailable: 25%`),
		Entry("short, a count", `maxUnavailable: 3`),
	)
})

func labels(count int) string { return `{matchLabels: {` + fields(count) + `}}` }

// fields returns count entries of a map.
func fields(count int) string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf("k%d: v", i)
	}
	return strings.Join(list, ", ")
}

func expressions(count int, key, operator string, values int) string {
	one := fmt.Sprintf("{key: %s, operator: %s, values: [%s]}", key, operator, numbered("v", values))
	return `{matchExpressions: [` + strings.TrimSuffix(strings.Repeat(one+", ", count), ", ") + `]}`
}

// longKey is a label key of that length.
func longKey(length int) string {
	return strings.Repeat("d", 253) + "/" + strings.Repeat("n", length-254)
}
