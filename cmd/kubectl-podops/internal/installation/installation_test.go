package installation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/installation"
)

func TestBuildOrdersObjectsByWhenTheyMayExist(t *testing.T) {
	objects, err := installation.Build(installation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	if first, last := kinds[0], kinds[len(kinds)-1]; first != "CustomResourceDefinition" || last != "ValidatingWebhookConfiguration" {
		t.Errorf("the first object is a %s, the last a %s", first, last)
	}
	if slices.Index(kinds, "Namespace") > slices.Index(kinds, "Deployment") {
		t.Error("the Deployment comes before its namespace")
	}
}

func TestBuildSetsNamespaceAndImage(t *testing.T) {
	for name, test := range map[string]struct{ image, want, version string }{
		"none":               {"", "podops-manager:dev", "dev"},
		"a tag":              {"registry.example:5000/podops:v1", "registry.example:5000/podops:v1", "v1"},
		"no tag, but a port": {"registry.example:5000/podops", "registry.example:5000/podops:latest", "unknown"},
		"a digest":           {"podops@sha256:ab12", "podops@sha256:ab12", "unknown"},
		"a tag and a digest": {"registry.example/podops:v0.1.0@sha256:ab12", "registry.example/podops:v0.1.0@sha256:ab12", "v0.1.0"},
		"a tag, no label":    {"podops:-v1-", "podops:-v1-", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := installation.Build(installation.Options{Namespace: "elsewhere", Image: test.image})
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				if namespace := object.GetNamespace(); namespace != "" && namespace != "elsewhere" {
					t.Errorf("%s %s is in namespace %s", object.GetKind(), object.GetName(), namespace)
				}
				if object.GetKind() != "Deployment" {
					continue
				}
				containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, containers[0].(map[string]any)["image"]); diff != "" {
					t.Errorf("image (-want +got):\n%s", diff)
				}
				inPods, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
				if err != nil {
					t.Fatal(err)
				}
				for _, labels := range []map[string]string{object.GetLabels(), inPods} {
					if got := labels["app.kubernetes.io/version"]; got != test.version {
						t.Errorf("version %q, want %q", got, test.version)
					}
				}
				if selector, _, _ := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels"); len(selector) != 2 {
					t.Errorf("selector %v, which cannot be changed", selector)
				}
			}
		})
	}
}

func TestBuildSwitchesComponentsOn(t *testing.T) {
	components, err := installation.Components()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(components, "deletes-fail") || !slices.Contains(components, "adapters") {
		t.Fatalf("components %v", components)
	}
	objects, err := installation.Build(installation.Options{Components: []string{"adapters"}})
	if err != nil {
		t.Fatal(err)
	}
	named := func(object *unstructured.Unstructured) bool { return object.GetName() == "podops-adapters" }
	if !slices.ContainsFunc(objects, named) {
		t.Error("the component adapters has no ClusterRole podops-adapters")
	}
	if _, err := installation.Build(installation.Options{Components: []string{"../local"}}); err == nil || !strings.Contains(err.Error(), "adapters, ") {
		t.Errorf("a component that does not exist: got %v, want the names of all", err)
	}
}

// Doctor compares with the components that the installation has.
func TestComparedHasTheFailurePolicyOfDeletesFail(t *testing.T) {
	policyOf := func(components ...string) admissionregistrationv1.FailurePolicyType {
		t.Helper()
		objects, err := installation.Build(installation.Options{Components: components})
		if err != nil {
			t.Fatal(err)
		}
		compared, err := installation.Compared(objects)
		if err != nil {
			t.Fatal(err)
		}
		for _, webhook := range compared.Validating[0].Webhooks {
			if webhook.Name == "deletes.pods.podops.kusionstack.io" {
				return *webhook.FailurePolicy
			}
		}
		t.Fatal("no webhook holds deletes")
		return ""
	}
	if got := policyOf(); got != admissionregistrationv1.Ignore {
		t.Errorf("failurePolicy %s without the component", got)
	}
	if got := policyOf("deletes-fail"); got != admissionregistrationv1.Fail {
		t.Errorf("failurePolicy %s with the component", got)
	}
}

func TestCRDsAreOfPodOpsOnly(t *testing.T) {
	objects, err := installation.Build(installation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	crds := installation.CRDs(objects)
	if len(crds) != 5 || len(objects) < 30 {
		t.Errorf("%d CRDs of %d objects, want 5 and the objects unchanged", len(crds), len(objects))
	}
}

func TestComparedHasWhatDoctorCompares(t *testing.T) {
	objects, err := installation.Build(installation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	compared, err := installation.Compared(objects)
	if err != nil {
		t.Fatal(err)
	}
	got := []int{len(compared.Mutating), len(compared.Validating), len(compared.CRDs)}
	if diff := cmp.Diff([]int{1, 1, 5}, got); diff != "" || len(compared.Policies) != len(compared.Bindings) || len(compared.Policies) < 5 {
		t.Errorf("configurations and CRDs (-want +got):\n%s%d policies, %d bindings", diff, len(compared.Policies), len(compared.Bindings))
	}
}
