package podtransitionpolicy_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/podops-dev/podops/test/expect"
)

// quoted returns a module as a string in YAML.
func quoted(module string) string { return fmt.Sprintf("%q", module) }

// Each module is checked twice: as that of a policy, and inline in a rule.
var _ = Describe("A module", func() {
	DescribeTable("is rejected, with the location of the error", func(ctx context.Context, module, place string, texts ...string) {
		Expect(admin.Create(ctx, policy("refused", `{module: `+quoted(module)+`}`))).
			To(expect.BeRefused(422, append(texts, `spec.module: Invalid value: "refused.rego`+place+`"`)...))
		Expect(admin.Create(ctx, rule("refused", `{module: `+quoted(module)+`}`))).
			To(expect.BeRefused(422, append(texts, `spec.rules[0].rego.module: Invalid value: "refused/r.rego`+place+`"`)...))
	},
		Entry("when it is not Rego", "package rule\n\nallow if }\n", ":3:10", "rego_parse_error"),
		Entry("in another package", "package podops.rules\n\nallow := true\n", ":1:1", "the package is podops.rules: it must be rule"),
		Entry("without an entry point", "package rule\n\nallowed := true\n", ":1:1", "the module has no entry point"),
		Entry("with two entry points", "package rule\n\nallow := true\n\ndeny contains \"x\"\n", ":5:1", "the module has both allow and deny"),
		Entry("that returns a number", "package rule\n\nallow := 7\n", ":3:1", "allow is of type number, it must be true or false"),
		Entry("that denies without a message", "package rule\n\ndeny contains 7\n", ":3:1", "its members must be strings, or objects with message"),
		Entry("that uses the network", "package rule\n\nallow if http.send({\"method\": \"get\", \"url\": \"http://example.com\"}).status_code == 200\n",
			":3:10", "undefined function http.send"),
		Entry("that reads the time", "package rule\n\nallow if time.now_ns() > 0\n", ":3:10", "undefined function time.now_ns"),
		Entry("that shifts bits", "package rule\n\nallow if bits.lsh(1, 400000000) > 0\n", ":3:10", "undefined function bits.lsh"),
		Entry("that walks graphs", "package rule\n\nallow if graph.reachable_paths({\"a\": [\"a\"]}, [\"a\"])\n", ":3:10", "undefined function graph.reachable_paths"),
		Entry("that misspells a field", "package rule\n\nallow if input.pod.lables.a == \"b\"\n", ":3:10", "rego_type_error", "lables"),
		Entry("that reads other data", "package rule\n\nallow if data.podops.compiled\n", ":3:10", "data.podops"),
		Entry("with too many rules", "package rule\n\nallow := true\n"+strings.Repeat("a if true\n", 200), ":203:1", "at most 200 are allowed"),
	)

	It("is rejected when it explodes while it is compiled", func(ctx context.Context) {
		module := "package rule\n\nallow if f == g\n" + doubling("f", 16) + doubling("g", 16)
		// On a busy machine the answer of the first tries is that the module could not be checked in time.
		Eventually(ctx, func() error { return admin.Create(ctx, policy("refused", `{module: `+quoted(module)+`}`)) }).
			Should(expect.BeRefused(422, `spec.module: Invalid value: "refused.rego"`, "podops_compile_limit"))
		Expect(admin.Create(ctx, rule("refused", `{module: `+quoted(module)+`}`))).
			To(expect.BeRefused(422, `spec.rules[0].rego.module: Invalid value: "refused/r.rego"`, "podops_compile_limit"))
	})

	It("is rejected when it is large, before it is compiled", func(ctx context.Context) {
		large := "package rule\n\n# " + strings.Repeat("x", 2<<20) + "\nallow := true\n"
		Expect(admin.Create(ctx, policy("large", `{module: `+quoted(large)+`}`))).To(expect.BeRefused(422, "spec.module", "16384"))
		Expect(admin.Create(ctx, rule("large", `{module: `+quoted(large)+`}`))).To(expect.BeRefused(422, "spec.rules[0].rego.module", "16384"))
	})

	It("may read its parameters, and no others", func(ctx context.Context) {
		const schema = `parameters: {openAPIV3Schema: {type: object, properties: {minutes: {type: integer}}}}`
		Expect(admin.Create(ctx, policy("typed", `{module: "package rule\n\nallow if input.parameters.minuts > 1\n", `+schema+`}`))).
			To(expect.BeRefused(422, `"typed.rego:3:10"`, "undefined ref: input.parameters.minuts"))
		Expect(admin.Create(ctx, policy("untyped", `{module: "package rule\n\nallow if input.parameters.minutes > 1\n"}`))).
			To(expect.BeRefused(422, `"untyped.rego:3:10"`, "undefined ref: input.parameters.minutes"))
		created(ctx, policy("typed", `{module: "package rule\n\nallow if input.parameters.minutes > 1\n", `+schema+`}`))
	})

	It("that is stored is not inspected again", func(ctx context.Context) {
		object := rule("stored", `{module: "package rule\n\nallow := true\n"}`)
		created(ctx, object)
		object.SetLabels(map[string]string{"a": "b"})
		Expect(admin.Update(ctx, object)).To(Succeed())
	})
})

// doubling returns a value that shares its parts: small as text, large when it is compared.
func doubling(name string, levels int) string {
	text := name + "0 := {\"l\": 1, \"r\": 2}\n"
	for i := 1; i <= levels; i++ {
		text += fmt.Sprintf("%s%d := {\"l\": %s%d, \"r\": %s%d}\n", name, i, name, i-1, name, i-1)
	}
	return text + fmt.Sprintf("%s := %s%d\n", name, name, levels)
}
