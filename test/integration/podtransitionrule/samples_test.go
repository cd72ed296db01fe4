package podtransitionrule_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/test/samples"
)

const manual = "podtransitionrule-manual.md"

// files has, for each YAML sample, the files of testdata with its lines. The document has lost the
// indentation; where two are possible, both are a file.
func files() map[string][]string {
	return map[string][]string{
		manual + ", Rule Definition, 1": {"rule-definition.yaml"},
		manual + ", maxUnavailable, 1":  {"max-unavailable.yaml"},
		manual + ", minAvailable, 1":    {"min-available.yaml"},
		manual + ", Label Check, 1":     {"label-check.yaml"},
		manual + ", Webhook, 1":         {"webhook.yaml", "webhook-poll-beside.yaml"},
	}
}

var _ = Describe("Every YAML sample of the documents", func() {
	all, err := samples.All()
	Expect(err).NotTo(HaveOccurred())

	for _, sample := range all {
		if sample.Language != "yaml" {
			continue
		}
		It("is accepted with strict validation: "+sample.Name(), func(ctx context.Context) {
			Expect(files()[sample.Name()]).NotTo(BeEmpty())
			for _, name := range files()[sample.Name()] {
				text, err := os.ReadFile(filepath.Join("testdata", name))
				Expect(err).NotTo(HaveOccurred())
				Expect(unindented(string(text))).To(Equal(unindented(sample.Text)), "%s and the document differ by more than indentation", name)

				object := asRule(string(text), strings.TrimSuffix(name, ".yaml"))
				Expect(admin.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())
				DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })

				By("reading it as the rule that the manager evaluates")
				stored := &appsv1alpha1.PodTransitionRule{}
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), stored)).To(Succeed())
				Expect(stored.Spec.Rules).NotTo(BeEmpty())
				for i := range stored.Spec.Rules {
					path := field.NewPath("spec", "rules").Index(i)
					_, errs := spec.Normalize(&stored.Spec.Rules[i], path)
					Expect(append(errs, spec.Validate(stored.Spec.Rules[i], path)...)).To(BeEmpty())
				}
			}
		})
	}
})

// asRule returns the object of a sample. A sample without a kind is what a rule does: it becomes the only
// rule of a PodTransitionRule.
func asRule(text, name string) *unstructured.Unstructured {
	GinkgoHelper()
	content := map[string]any{}
	Expect(yaml.UnmarshalStrict([]byte(text), &content)).To(Succeed())
	if content["kind"] == nil {
		content["name"] = "sample"
		content = map[string]any{
			"apiVersion": appsv1alpha1.GroupVersion().String(),
			"kind":       "PodTransitionRule",
			"metadata":   map[string]any{"name": name},
			"spec":       map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "foo"}}, "rules": []any{content}},
		}
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetNamespace(namespace)
	return object
}

func unindented(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
