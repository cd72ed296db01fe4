package podtransitionrule_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/operator"
)

// Objects that were stored under a schema without bounds meet a manager, and a schema, with
// bounds.
var _ = Describe("A PodTransitionRule that was stored before the bounds", Serial, Ordered, func() {
	const patience = time.Minute
	var selector, modules, honest *unstructured.Unstructured

	BeforeAll(func(ctx context.Context) {
		bounded := schemaOf(ctx)
		DeferCleanup(func(ctx context.Context) { install(ctx, bounded) })
		install(ctx, &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: ptr.To(true),
		}})
		rule := `{name: a, labelCheck: {requires: {}}}`
		module := `{name: a, rego: {module: "package rule #` + strings.Repeat("x", 16000) + `"}}, `
		selector = named("large-selector", `{selector: `+expressions(1, "app", "In", 150_000)+`, rules: [`+rule+`]}`)
		modules = named("large-modules", `{`+selectWeb+`, rules: [`+strings.Repeat(module, 20)+`]}`)
		honest = named("honest", specOf(rule))
		// The API server takes a moment to use the schema.
		Eventually(func() error { return admin.Create(ctx, selector.DeepCopy()) }, patience).Should(Succeed())
		Expect(admin.Create(ctx, modules.DeepCopy())).To(Succeed())
		Expect(admin.Create(ctx, honest.DeepCopy())).To(Succeed())
		install(ctx, bounded)
		Eventually(func() error {
			return admin.Create(ctx, object(`{selector: `+labels(65)+`, rules: [`+rule+`]}`))
		}, patience).Should(HaveOccurred())
		startManager(ctx)
	})

	It("is not loaded and has a condition, and others are evaluated", func(ctx context.Context) {
		Eventually(stalled(ctx, selector), patience).WithContext(ctx).Should(And(HavePrefix("True TooLarge"), ContainSubstring("spec.selector.matchExpressions[0].values: Too many: 150000")))
		Eventually(stalled(ctx, modules), patience).WithContext(ctx).Should(And(HavePrefix("True TooLarge"), ContainSubstring("at most 262144 are allowed")))
		Eventually(stalled(ctx, honest), patience).WithContext(ctx).Should(HavePrefix("False NotStalled"))
	})

	It("withholds the pods that its selector matches when the selector is within its bounds", func(ctx context.Context) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "web-", Labels: map[string]string{
				"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue,
				appsv1alpha1.OperatingLabelPrefix + "/a": "1", appsv1alpha1.OperationTypeLabelPrefix + "/a": "update",
				appsv1alpha1.PreCheckLabelPrefix + "/a": "1",
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}
		Expect(admin.Create(ctx, pod)).To(Succeed())
		Eventually(func(g Gomega) {
			blocked := stored(ctx, g, modules).Status.Blocked
			g.Expect(blocked).To(HaveLen(1))
			g.Expect(blocked[0].Name).To(Equal(pod.Name))
			g.Expect(blocked[0].Reason).To(Equal("TooLarge"))
		}, patience).Should(Succeed())
	})

	It("is loaded once an edit makes it smaller", func(ctx context.Context) {
		small := map[string]any{"spec": object(specOf(`{name: a, labelCheck: {requires: {}}}`)).Object["spec"]}
		patch, err := json.Marshal(small)
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.Patch(ctx, modules, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		Eventually(stalled(ctx, modules), patience).WithContext(ctx).Should(HavePrefix("False NotStalled"))
	})

	It("can be labelled and deleted", func(ctx context.Context) {
		Expect(admin.Patch(ctx, selector, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`)))).To(Succeed())
		Expect(admin.Delete(ctx, selector)).To(Succeed())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(selector), &appsv1alpha1.PodTransitionRule{})).To(Satisfy(apierrors.IsNotFound))
	})

	It("is evaluated under an older CustomResourceDefinition, whose status has fewer fields", func(ctx context.Context) {
		older := schemaOf(ctx).DeepCopy()
		status := older.OpenAPIV3Schema.Properties["status"]
		for _, added := range []string{"blockedBy", "offTraffic", "targets", "permits"} {
			Expect(status.Properties).To(HaveKey(added))
			delete(status.Properties, added)
		}
		install(ctx, older)
		Eventually(stalled(ctx, created(ctx, "under-an-older-schema")), patience).WithContext(ctx).Should(HavePrefix("False NotStalled"))
	})

	It("is evaluated again after its CustomResourceDefinition was deleted and installed", func(ctx context.Context) {
		crd := crdOf(ctx)
		Expect(admin.Delete(ctx, crd)).To(Succeed())
		Eventually(func() error { return admin.Get(ctx, client.ObjectKeyFromObject(crd), crdNamed(crd.Name)) }, patience).
			Should(Satisfy(apierrors.IsNotFound))
		again := crdNamed(crd.Name)
		again.Spec = crd.Spec
		Expect(admin.Create(ctx, again)).To(Succeed())
		var rule client.Object
		Eventually(func() (err error) {
			rule = named("after-the-deletion", specOf(`{name: a, labelCheck: {requires: {}}}`))
			return admin.Create(ctx, rule)
		}, patience).Should(Succeed())
		Eventually(stalled(ctx, rule), 2*patience).WithContext(ctx).Should(HavePrefix("False NotStalled"))
	})
})

// created returns a rule that is stored.
func created(ctx context.Context, name string) client.Object {
	GinkgoHelper()
	rule := named(name, specOf(`{name: a, labelCheck: {requires: {}}}`))
	Expect(admin.Create(ctx, rule)).To(Succeed())
	return rule
}

func crdNamed(name string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// startManager runs the manager, without leader election and servers that no test calls, until
// the specs of the container have run.
func startManager(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "podops-system"}}))).To(Succeed())
	options := operator.Options{}
	options.AddFlags(flag.NewFlagSet("manager", flag.ContinueOnError))
	options.MetricsAddress, options.ProbeAddress, options.WebhookBindAddress = "0", "0", "127.0.0.1:0"
	options.Serving.ShutdownDelay = 0
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(running, config, options) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended, time.Minute).Should(Receive(BeNil()))
	})
}

func crdOf(ctx context.Context) *apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: "podtransitionrules.apps.kusionstack.io"}, crd)).To(Succeed())
	return crd
}

func schemaOf(ctx context.Context) *apiextensionsv1.CustomResourceValidation {
	GinkgoHelper()
	return crdOf(ctx).Spec.Versions[0].Schema
}

// install replaces the schema of PodTransitionRules.
func install(ctx context.Context, schema *apiextensionsv1.CustomResourceValidation) {
	GinkgoHelper()
	crd := crdOf(ctx)
	crd.Spec.Versions[0].Schema = schema
	Expect(admin.Update(ctx, crd)).To(Succeed())
}

func named(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	named := object(spec)
	named.SetGenerateName("")
	named.SetName(name)
	return named
}

func stored(ctx context.Context, g Gomega, of client.Object) *appsv1alpha1.PodTransitionRule {
	rule := &appsv1alpha1.PodTransitionRule{}
	g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(of), rule)).To(Succeed())
	return rule
}

// stalled returns a function that reads the condition Stalled of a rule as one line.
func stalled(ctx context.Context, of client.Object) func(Gomega) string {
	return func(g Gomega) string {
		condition := meta.FindStatusCondition(stored(ctx, g, of).Status.Conditions, appsv1alpha1.ConditionStalled)
		g.Expect(condition).NotTo(BeNil())
		return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
	}
}
