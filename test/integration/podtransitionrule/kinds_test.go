package podtransitionrule_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
)

const (
	maxUnavailableText = "maxUnavailableValue must be a whole number from 0"
	minAvailableText   = "minAvailableValue must be a whole number from 0"
	maxUnavailablePath = "spec.rules[0].availablePolicy.maxUnavailableValue"
	minAvailablePath   = "spec.rules[0].availablePolicy.minAvailableValue"
)

var _ = Describe("An availablePolicy", func() {
	DescribeTable("is accepted", expectPolicyTaken,
		Entry("with no pod", `{maxUnavailableValue: 0}`),
		Entry("with 0%", `{maxUnavailableValue: "0%"}`),
		Entry("with one pod", `{maxUnavailableValue: 1}`),
		Entry("with the largest count", `{maxUnavailableValue: 2147483647}`),
		Entry("with a percentage of one digit", `{maxUnavailableValue: "1%"}`),
		Entry("with all pods", `{maxUnavailableValue: "100%"}`),
		Entry("with no pod that must stay", `{minAvailableValue: 0}`),
		Entry("with 0% that must stay", `{minAvailableValue: "0%"}`),
		Entry("with all pods that must stay", `{minAvailableValue: "100%"}`),
		Entry("with both bounds", `{maxUnavailableValue: "25%", minAvailableValue: 3}`),
		Entry("in the nested spelling", `{maxUnavailable: {value: "25%"}, minAvailable: {value: 3}}`),
		Entry("in the short spelling", `{maxUnavailable: 25%, minAvailable: 3}`),
	)

	DescribeTable("is rejected", expectPolicyRefused,
		Entry("with no bound", `{}`, "spec.rules[0].availablePolicy", "at least 1 properties"),
		Entry("with a policy that is not evaluated", `{maxUnavailablePolicy: {expFunc: {coeff: "1"}}}`, "spec.rules[0].availablePolicy", "are not evaluated"),
		Entry("with a lower policy that is not evaluated", `{minAvailableValue: 1, minAvailablePolicy: {}}`, "spec.rules[0].availablePolicy", "are not evaluated"),
		Entry("with an older spelling that has no value", `{maxUnavailable: {}}`, "spec.rules[0].availablePolicy.maxUnavailable.value", "Required value"),

		Entry("with a long text in the short spelling", `{maxUnavailable: half of them}`, "spec.rules[0].availablePolicy.maxUnavailable", "4 bytes"),
		Entry("with a long text in the nested spelling", `{minAvailable: {value: half of them}}`, "spec.rules[0].availablePolicy.minAvailable.value", "4 bytes"),
		Entry("with more than a value in the nested spelling", `{minAvailable: {value: 1, values: 2}}`, "spec.rules[0].availablePolicy.minAvailable", "at most 1 item"),
		Entry("with a list", `{minAvailable: [1]}`, "spec.rules[0].availablePolicy.minAvailable", "at most 0 items"),

		Entry("with a negative count", `{maxUnavailableValue: -1}`, maxUnavailablePath, maxUnavailableText),
		Entry("with 101%", `{maxUnavailableValue: "101%"}`, maxUnavailablePath, maxUnavailableText),
		Entry("with 150%", `{maxUnavailableValue: "150%"}`, maxUnavailablePath, maxUnavailableText),
		Entry("with a count in quotes", `{maxUnavailableValue: "5"}`, maxUnavailablePath, maxUnavailableText),
		Entry("with a space before the sign", `{maxUnavailableValue: "50 %"}`, maxUnavailablePath, maxUnavailableText),
		Entry("with a leading zero", `{maxUnavailableValue: "05%"}`, maxUnavailablePath, maxUnavailableText),
		Entry("with a fraction", `{maxUnavailableValue: 1.5}`, maxUnavailablePath, "integer"),
		Entry("with more than 32 bits", `{maxUnavailableValue: 2147483648}`, maxUnavailablePath, maxUnavailableText),
		Entry("with a long text", `{maxUnavailableValue: "half of them"}`, maxUnavailablePath, "4 bytes"),

		Entry("with a negative count that must stay", `{minAvailableValue: -1}`, minAvailablePath, minAvailableText),
		Entry("with 101% that must stay", `{minAvailableValue: "101%"}`, minAvailablePath, minAvailableText),
		Entry("with a count in quotes that must stay", `{minAvailableValue: "5"}`, minAvailablePath, minAvailableText),
		Entry("with more than 32 bits that must stay", `{minAvailableValue: 2147483648}`, minAvailablePath, minAvailableText),
	)
})

var _ = Describe("A webhook", func() {
	DescribeTable("is accepted", expectWebhookTaken,
		Entry("with a URL", `{clientConfig: {url: "http://example.com/check"}}`),
		Entry("with the poll in the other place", `{clientConfig: {url: "https://example.com"}, poll: {url: "https://example.com/task"}}`),
		Entry("with everything", `{failurePolicy: Ignore, clientConfig: {url: "https://example.com", caBundle: Cg==, poll: {url: "https://example.com/task", rawQueryKey: task, intervalSeconds: 1, timeoutSeconds: 604800}}, parameters: [{key: a, value: b}, {key: c, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}`),
	)

	DescribeTable("is rejected", expectWebhookRefused,
		Entry("without a URL", `{clientConfig: {}}`, "spec.rules[0].webhook.clientConfig.url", "Required value"),
		Entry("with a URL of another scheme", `{clientConfig: {url: "file:///etc/passwd"}}`, "spec.rules[0].webhook.clientConfig.url", "should match"),
		Entry("with a failure policy that does not exist", `{failurePolicy: Retry, clientConfig: {url: "https://example.com"}}`, "spec.rules[0].webhook.failurePolicy", `"Fail", "Ignore"`),
		Entry("with a poll without a URL", `{clientConfig: {url: "https://example.com", poll: {}}}`, "spec.rules[0].webhook.clientConfig.poll.url", "Required value"),
		Entry("with a poll URL of another scheme", `{clientConfig: {url: "https://example.com", poll: {url: "ftp://example.com"}}}`, "spec.rules[0].webhook.clientConfig.poll.url", "should match"),
		Entry("with a poll interval of 0", `{clientConfig: {url: "https://example.com", poll: {url: "https://example.com", intervalSeconds: 0}}}`, "spec.rules[0].webhook.clientConfig.poll.intervalSeconds", "greater than or equal to 1"),
		Entry("with a poll that may take longer than a week", `{clientConfig: {url: "https://example.com", poll: {url: "https://example.com", timeoutSeconds: 604801}}}`, "spec.rules[0].webhook.clientConfig.poll.timeoutSeconds", "less than or equal to 604800"),
		Entry("with one parameter twice", `{clientConfig: {url: "https://example.com"}, parameters: [{key: a, value: b}, {key: a, value: c}]}`, "spec.rules[0].webhook.parameters[1]", "Duplicate value"),
		Entry("with a parameter without a value", `{clientConfig: {url: "https://example.com"}, parameters: [{key: a}]}`, "spec.rules[0].webhook.parameters[0]", "exactly one of value or valueFrom"),
		Entry("with a parameter of an empty value", `{clientConfig: {url: "https://example.com"}, parameters: [{key: a, value: ""}]}`, "spec.rules[0].webhook.parameters[0].value", "at least 1 chars"),
		Entry("with a parameter of two values", `{clientConfig: {url: "https://example.com"}, parameters: [{key: a, value: b, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}`, "spec.rules[0].webhook.parameters[0]", "exactly one of value or valueFrom"),
		Entry("with 33 parameters", `{clientConfig: {url: "https://example.com"}, parameters: [`+parameters(33)+`]}`, "spec.rules[0].webhook.parameters", "32 items"),
	)
})

var _ = Describe("A Rego rule", func() {
	DescribeTable("is accepted", expectRegoTaken,
		Entry("as a module with parameters", `{module: package rule, parameters: {anything: [1, {a: b}]}}`),
		Entry("as a reference", `{policyRef: {name: shared}}`),
	)

	DescribeTable("is rejected", expectRegoRefused,
		Entry("with neither", `{}`, "spec.rules[0].rego", "exactly one of module or policyRef"),
		Entry("with both", `{module: package rule, policyRef: {name: shared}}`, "spec.rules[0].rego", "exactly one of module or policyRef"),
		Entry("with a reference to nothing", `{policyRef: {name: ""}}`, "spec.rules[0].rego.policyRef.name", "at least 1"),
		Entry("with parameters that are not an object", `{module: package rule, parameters: [1]}`, "spec.rules[0].rego.parameters", "must be of type object"),
	)
})

func expectPolicyTaken(ctx context.Context, policy string) {
	GinkgoHelper()
	expectRuleTaken(ctx, `{name: a, availablePolicy: `+policy+`}`)
}

func expectPolicyRefused(ctx context.Context, policy string, texts ...string) {
	GinkgoHelper()
	expectRuleRefused(ctx, `{name: a, availablePolicy: `+policy+`}`, texts...)
}

func expectWebhookTaken(ctx context.Context, webhook string) {
	GinkgoHelper()
	expectRuleTaken(ctx, `{name: a, webhook: `+webhook+`}`)
}

func expectWebhookRefused(ctx context.Context, webhook string, texts ...string) {
	GinkgoHelper()
	expectRuleRefused(ctx, `{name: a, webhook: `+webhook+`}`, texts...)
}

func expectRegoTaken(ctx context.Context, rego string) {
	GinkgoHelper()
	expectRuleTaken(ctx, `{name: a, rego: `+rego+`}`)
}

func expectRegoRefused(ctx context.Context, rego string, texts ...string) {
	GinkgoHelper()
	expectRuleRefused(ctx, `{name: a, rego: `+rego+`}`, texts...)
}
