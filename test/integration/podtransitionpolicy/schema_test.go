package podtransitionpolicy_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/podops-dev/podops/test/expect"
)

// allowAll is a module that compiles.
const allowAll = `module: "package rule\n\nallow := true\n"`

var _ = Describe("A policy", func() {
	DescribeTable("is accepted", func(ctx context.Context, name, spec string) { created(ctx, policy(name, spec)) },
		Entry("with a module alone", "taken-1", `{`+allowAll+`}`),
		Entry("with a description", "taken-2", `{`+allowAll+`, description: "`+strings.Repeat("d", 1024)+`"}`),
		Entry("with a schema of parameters", "taken-3",
			`{`+allowAll+`, parameters: {openAPIV3Schema: {type: object, properties: {number: {type: integer, default: 3}}}}}`),
	)

	DescribeTable("is rejected", func(ctx context.Context, spec string, texts ...string) {
		Expect(admin.Create(ctx, policy("refused", spec))).To(expect.BeRefused(422, texts...))
	},
		Entry("without a module", `{}`, "spec.module", "Required value"),
		Entry("with an empty module", `{module: ""}`, "spec.module", "at least 1"),
		Entry("with a module of 16385 bytes", `{module: "`+strings.Repeat("#", 16385)+`"}`, "spec.module", "16384"),
		Entry("with a long description", `{`+allowAll+`, description: "`+strings.Repeat("d", 1025)+`"}`, "spec.description", "1024"),
		Entry("with parameters of no schema", `{`+allowAll+`, parameters: {}}`, "spec.parameters.openAPIV3Schema", "Required value"),
		Entry("with a schema that is not an object", `{`+allowAll+`, parameters: {openAPIV3Schema: [1]}}`, "spec.parameters.openAPIV3Schema", "must be of type object"),
		Entry("with a schema that is not structural", `{`+allowAll+`, parameters: {openAPIV3Schema: {type: object, properties: {number: {}}}}}`,
			"spec.parameters.openAPIV3Schema.properties[number].type", "must not be empty"),
		Entry("with a schema that refers to another", `{`+allowAll+`, parameters: {openAPIV3Schema: {type: object, properties: {number: {$ref: "https://example.com/n.json"}}}}}`,
			"spec.parameters.openAPIV3Schema.properties[number].$ref", "references are not followed"),
	)
})
