package install_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// overlay is a kustomization of a user.
type overlay struct {
	// base is the folder config of the repository: a path, or a URL without the part after the repository.
	base, query string

	namespace  string // empty: that of config/default
	components []string
}

// write writes the kustomization into a folder of its own, and returns the folder.
func (o overlay) write() string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	base := o.base
	if base == "" {
		relative, err := filepath.Rel(folder, configFolder())
		Expect(err).NotTo(HaveOccurred())
		base = relative
	}
	kustomization := map[string]any{"resources": []string{base + "/default" + o.query}}
	if o.namespace != "" {
		kustomization["namespace"] = o.namespace
	}
	var components []string
	for _, name := range o.components {
		components = append(components, base+"/components/"+name+o.query)
	}
	if components != nil {
		kustomization["components"] = components
	}
	encoded, err := yaml.Marshal(kustomization)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), encoded, 0o600)).To(Succeed())
	return folder
}

// configFolder returns the absolute path of config.
func configFolder() string {
	GinkgoHelper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "..", "config"))
	Expect(err).NotTo(HaveOccurred())
	return folder
}

// allComponents returns the names of the folders of config/components.
func allComponents() []string {
	GinkgoHelper()
	entries, err := os.ReadDir(filepath.Join(configFolder(), "components"))
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// combinations returns no component, each alone, all but each, and all. Any two components are both on, both off, and
// each on without the other.
func combinations(names []string) [][]string {
	found := [][]string{nil}
	for _, name := range names {
		found = append(found, []string{name})
	}
	for i := range names {
		found = append(found, slices.Delete(slices.Clone(names), i, i+1))
	}
	return append(found, names)
}

// buildAll returns the manifests with each combination, in the order of combinations.
func buildAll(ctx context.Context, namespace string, combinations [][]string) []string {
	GinkgoHelper()
	rendered := make([]string, len(combinations))
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i, combination := range combinations {
		folder := overlay{namespace: namespace, components: combination}.write()
		group.Go(func() error {
			defer GinkgoRecover()
			rendered[i] = kubectl(ctx, "kustomize", folder)
			return nil
		})
	}
	Expect(group.Wait()).To(Succeed())
	return rendered
}

// parse returns the objects of rendered manifests.
func parse(rendered string) []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+rendered, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		objects = append(objects, object)
	}
	return objects
}

// keys returns the identity of each object.
func keys(objects []*unstructured.Unstructured) []string {
	var found []string
	for _, object := range objects {
		found = append(found, fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName()))
	}
	slices.Sort(found)
	return found
}

var _ = Describe("The components of config", func() {
	It("can be combined, in any namespace", func(ctx context.Context) {
		names := allComponents()
		Expect(names).To(ContainElements("adapters", "deletes-fail", "network-policies", "service-monitor", "webhook-secrets"))
		// A dry run writes nothing: an object that another combination has, too, gets the same answer.
		checked := map[string]bool{}
		for _, namespace := range []string{"", otherNamespace} {
			alone := map[string][]string{} // keys of the objects, by component
			all := combinations(names)
			for i, rendered := range buildAll(ctx, namespace, all) {
				combination := all[i]
				By(fmt.Sprintf("applying %v in %q", combination, namespace))
				if namespace != "" {
					Expect(rendered).NotTo(ContainSubstring(defaultNamespace), "a name that does not follow the namespace")
				}
				objects := parse(rendered)

				want := slices.Clone(alone[""])
				for _, name := range combination {
					want = append(want, alone[name]...)
				}
				switch got := keys(objects); len(combination) {
				case 0:
					alone[""] = got
				case 1:
					Expect(got).To(ContainElements(want), "a component removes nothing")
					alone[combination[0]] = slices.DeleteFunc(got, func(key string) bool { return slices.Contains(alone[""], key) })
				default:
					Expect(got).To(ConsistOf(want), "components add the same objects together as alone")
				}

				for _, object := range objects {
					encoded, err := object.MarshalJSON()
					Expect(err).NotTo(HaveOccurred())
					if checked[string(encoded)] {
						continue
					}
					checked[string(encoded)] = true
					dryRun(ctx, object)
				}
			}
		}
	})
})

var _ = Describe("The repository as a remote base", Ordered, func() {
	var repository, rendered string // rendered has all components, in another namespace

	BeforeAll(func(ctx context.Context) {
		repository = "file://" + remote(ctx)
		rendered = kubectl(ctx, "kustomize", overlay{
			base: repository + "//config", query: "?ref=v0.0.1", namespace: otherNamespace, components: allComponents(),
		}.write())
	})

	It("is applied with all components, in another namespace", func(ctx context.Context) {
		objects := parse(rendered)
		DeferCleanup(deleteAll, objects)
		file := filepath.Join(GinkgoT().TempDir(), "rendered.yaml")
		Expect(os.WriteFile(file, []byte(rendered), 0o600)).To(Succeed())
		apply := []string{"--kubeconfig", writeKubeconfig(localContext), "apply", "--server-side", "-f", file}
		Expect(kubectl(ctx, apply...)).NotTo(ContainSubstring("Warning"))
		awaitKinds(ctx)

		By("reading it back")
		var versions []string
		stored := func(object *unstructured.Unstructured) *unstructured.Unstructured {
			GinkgoHelper()
			found := &unstructured.Unstructured{}
			found.SetGroupVersionKind(object.GroupVersionKind())
			Expect(server.client.Get(ctx, client.ObjectKeyFromObject(object), found)).To(Succeed())
			return found
		}
		for _, object := range objects {
			if object.GetKind() != "CustomResourceDefinition" { // its controllers write the status
				versions = append(versions, stored(object).GetResourceVersion())
			}
		}

		By("looking at the webhooks")
		var validating admissionregistrationv1.ValidatingWebhookConfiguration
		Expect(server.client.Get(ctx, client.ObjectKey{Name: "podops-validating"}, &validating)).To(Succeed())
		for _, webhook := range validating.Webhooks {
			Expect(webhook.ClientConfig.Service.Namespace).To(Equal(otherNamespace))
			if webhook.Name == "deletes.pods.podops.kusionstack.io" {
				Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
			}
		}
		var namespace corev1.Namespace
		Expect(server.client.Get(ctx, client.ObjectKey{Name: otherNamespace}, &namespace)).To(Succeed())
		Expect(namespace.Labels).To(HaveKeyWithValue("kusionstack.io/control", "false"))

		By("reviewing the rights of the manager")
		manager := "system:serviceaccount:" + otherNamespace + ":podops-controller-manager"
		for _, right := range []authorizationv1.ResourceAttributes{
			{Verb: "patch", Resource: "pods", Namespace: "shop"},
			{Verb: "update", Resource: "secrets", Name: "podops-webhook-certs", Namespace: otherNamespace},
			{Verb: "patch", Resource: "services", Namespace: "shop"},
			{Verb: "get", Resource: "secrets", Namespace: "shop"},
			{Verb: "list", Resource: "nodes"},
		} {
			Expect(mayDo(ctx, manager, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &right})).To(BeTrue(), "%+v", right)
		}
		metrics := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
		reader := "system:serviceaccount:" + otherNamespace + ":podops-metrics-reader"
		Expect(mayDo(ctx, reader, authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: metrics})).To(BeTrue())
		elsewhere := "system:serviceaccount:" + defaultNamespace + ":podops-controller-manager"
		Expect(mayDo(ctx, elsewhere, authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Namespace: "shop"},
		})).To(BeFalse())

		By("deleting a pod that is not under PodOps, as the manager")
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}
		Expect(server.client.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(server.client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		})
		// The API server observes a policy some time after it is written.
		Eventually(ctx, func(ctx context.Context) error {
			return clientAs(manager).Delete(ctx, pod.DeepCopy(), client.DryRunAll)
		}).WithTimeout(time.Minute).Should(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("ValidatingAdmissionPolicy 'podops-manager'"))))

		By("applying it again, without a change")
		Expect(kubectl(ctx, apply...)).NotTo(ContainSubstring("Warning"))
		var again []string
		for _, object := range objects {
			if object.GetKind() != "CustomResourceDefinition" {
				again = append(again, stored(object).GetResourceVersion())
			}
		}
		Expect(again).To(Equal(versions))
	})

	It("is built from the examples of docs/install.md", func(ctx context.Context) {
		examples := yamlOf(filepath.Join("..", "..", "..", "docs", "install.md"), "## Kustomize")
		Expect(examples).To(HaveLen(2), "a kustomization, and patches to append")
		kustomization := strings.NewReplacer(
			"https://github.com/podops-dev/podops//", repository+"//",
			"?ref=<tag or commit>", "?ref=v0.0.1",
			"config/components/adapters?ref=<the same>", "config/components/network-policies?ref=v0.0.1",
		).Replace(strings.Join(examples, ""))
		folder := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(kustomization), 0o600)).To(Succeed())
		rendered := kubectl(ctx, "kustomize", folder)
		Expect(rendered).To(And(
			ContainSubstring("namespace: my-podops"), Not(ContainSubstring(defaultNamespace)), ContainSubstring("image: registry.example/podops-manager:v1"),
			ContainSubstring("- --enable-adapters=haproxy"), ContainSubstring("cidr: 10.0.8.0/24"), ContainSubstring("cidr: 10.0.0.0/28")))
		for _, object := range parse(rendered) {
			if kind := object.GetKind(); kind == "Deployment" || kind == "NetworkPolicy" {
				object.SetNamespace(defaultNamespace) // which exists
				dryRun(ctx, object)
			}
		}
	})

	It("has the same objects as install with --podops-namespace and --components", func(ctx context.Context) {
		out, err := exec.CommandContext(ctx, plugin(), "install", "--dry-run", //nolint:gosec // The plugin of this repository.
			"--podops-namespace", otherNamespace, "--components", strings.Join(allComponents(), ",")).Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(parse(string(out))).To(ConsistOf(parse(rendered)))
	})
})

// remote returns the path of a bare repository that has config as it is here, under the tag v0.0.1.
func remote(ctx context.Context) string {
	GinkgoHelper()
	work, bare := GinkgoT().TempDir(), filepath.Join(GinkgoT().TempDir(), "podops.git")
	Expect(os.CopyFS(filepath.Join(work, "config"), os.DirFS(configFolder()))).To(Succeed())
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."},
		{"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "config"},
		{"tag", "v0.0.1"}, {"clone", "--quiet", "--bare", work, bare},
	} {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", work}, args...)...).CombinedOutput() //nolint:gosec // The arguments are above.
		Expect(err).NotTo(HaveOccurred(), string(out))
	}
	return bare
}

// dryRun applies an object in a dry run, which must succeed without a warning.
func dryRun(ctx context.Context, object *unstructured.Unstructured) {
	GinkgoHelper()
	encoded, err := object.MarshalJSON()
	Expect(err).NotTo(HaveOccurred())
	Expect(server.client.Patch(ctx, object.DeepCopy(), client.RawPatch(types.ApplyPatchType, encoded),
		client.DryRunAll, client.FieldOwner("kubectl"), client.ForceOwnership, client.FieldValidation(metav1.FieldValidationStrict),
	)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	Expect(server.warnings.texts).To(BeEmpty(), "%s %s", object.GetKind(), object.GetName())
}

// yamlOf returns the YAML examples of a section of a page.
func yamlOf(page, heading string) []string {
	GinkgoHelper()
	content, err := os.ReadFile(page) //nolint:gosec // A page of this repository.
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(content), "\n"+heading+"\n")
	Expect(found).To(BeTrue(), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var examples []string
	for _, part := range strings.Split(section, "```yaml\n")[1:] {
		example, _, closed := strings.Cut(part, "```")
		Expect(closed).To(BeTrue())
		examples = append(examples, example)
	}
	return examples
}

// mayDo reports whether the API server permits an access to a user.
func mayDo(ctx context.Context, user string, access authorizationv1.SubjectAccessReviewSpec) bool {
	GinkgoHelper()
	access.User = user
	review := &authorizationv1.SubjectAccessReview{Spec: access}
	Expect(server.client.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// deleteAll deletes objects, and waits until they are gone; but no namespace, which no controller would remove.
func deleteAll(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, object := range slices.Backward(objects) {
		if object.GetKind() != "Namespace" {
			Expect(client.IgnoreNotFound(server.client.Delete(ctx, object))).To(Succeed())
		}
	}
	for _, object := range objects {
		if object.GetKind() != "Namespace" {
			Eventually(ctx, func(ctx context.Context) error {
				current := object.DeepCopy()
				err := server.client.Get(ctx, client.ObjectKeyFromObject(object), current)
				if err == nil && object.GetKind() == "CustomResourceDefinition" {
					// The API server may have failed to list its objects, and retries at the next change, or minutes later.
					retry := fmt.Appendf(nil, `{"metadata":{"annotations":{"test.podops.dev/retry":%q}}}`, time.Now().Format(time.RFC3339Nano))
					err = server.client.Patch(ctx, current, client.RawPatch(types.MergePatchType, retry))
				}
				return err
			}).WithTimeout(time.Minute).WithPolling(time.Second).Should(Satisfy(apierrors.IsNotFound), "%s %s", object.GetKind(), object.GetName())
		}
	}
}
