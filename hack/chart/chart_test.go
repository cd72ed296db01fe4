package main

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const folder = "../../charts/podops"

// newPlugin builds the kubectl plugin.
func newPlugin(t *testing.T) plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-podops")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../cmd/kubectl-podops", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, output)
	}
	return plugin(path)
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// render returns the objects that helm renders with values, in the order of their names.
func render(t *testing.T, c *chart.Chart, values map[string]any) ([]*unstructured.Unstructured, error) {
	t.Helper()
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "podops", Namespace: "default", IsInstall: true},
		chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for name, text := range files {
		found, err := decode([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		objects = append(objects, found...)
	}
	return sorted(objects), nil
}

func sorted(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// TestTheChartRendersTheObjectsOfTheManifests compares with the objects that the plugin installs, which are those of
// kustomize.
func TestTheChartRendersTheObjectsOfTheManifests(t *testing.T) {
	p, c := newPlugin(t), load(t)
	names, err := components()
	if err != nil {
		t.Fatal(err)
	}
	type setting struct {
		namespace, image string
		components       []string
	}
	tests := map[string]setting{
		"defaults":           {"podops-system", "podops-manager:dev", nil},
		"another namespace":  {"my-podops", "podops-manager:dev", nil},
		"a registry":         {"podops-system", "registry.example:5000/podops/manager:v1", nil},
		"a digest":           {"podops-system", "registry.example:5000/m@sha256:" + strings.Repeat("a", 64), nil},
		"tag and digest":     {"podops-system", "registry.example/m:v2@sha256:" + strings.Repeat("a", 64), nil},
		"every component":    {"podops-system", "podops-manager:dev", names},
		"all, and elsewhere": {"my-podops", "registry.example/m:v1", names},
	}
	for _, name := range names {
		tests[name] = setting{"podops-system", "podops-manager:dev", []string{name}}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want, err := p.objects(t.Context(), tc.namespace, tc.image, tc.components...)
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]any{"namespace": tc.namespace, "image": tc.image, "components": toAny(tc.components)}
			if name == "defaults" {
				values = nil
			}
			got, err := render(t, c, values)
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range got {
				dropKeep(t, object)
			}
			if diff := gocmp.Diff(sorted(want), got); diff != "" {
				t.Errorf("objects (-kustomize +chart):\n%s", diff)
			}
		})
	}
}

func toAny(names []string) []any {
	list := []any{}
	for _, name := range names {
		list = append(list, name)
	}
	return list
}

// dropKeep removes the annotation by which helm uninstall keeps CustomResourceDefinitions, and fails without it.
func dropKeep(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	if object.GetKind() != "CustomResourceDefinition" {
		return
	}
	annotations := object.GetAnnotations()
	if annotations[keepAnnotation] != "keep" {
		t.Errorf("%s would be deleted with its rules", object.GetName())
	}
	delete(annotations, keepAnnotation)
	object.SetAnnotations(annotations)
}

// TestValues shows the fields that values set besides.
func TestValues(t *testing.T) {
	objects, err := render(t, load(t), map[string]any{
		"createNamespace": false, "replicas": 3,
		"resources":        map[string]any{"limits": map[string]any{"memory": "2Gi"}},
		"flags":            map[string]any{"delete-wait": "5s", "hold-preemption": true},
		"nodeSelector":     map[string]any{"pool": "system"},
		"tolerations":      []any{map[string]any{"operator": "Exists"}},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			t.Error("want no namespace")
		case "Deployment":
			spec := object.Object["spec"].(map[string]any)
			pod := spec["template"].(map[string]any)["spec"].(map[string]any)
			container := pod["containers"].([]any)[0].(map[string]any)
			got := []any{spec["replicas"], container["args"], container["resources"], pod["nodeSelector"], pod["tolerations"], pod["imagePullSecrets"]}
			want := []any{
				int64(3), []any{"--leader-elect", "--health-probe-bind-address=:8081", "--delete-wait=5s", "--hold-preemption=true"},
				map[string]any{"limits": map[string]any{"memory": "2Gi"}, "requests": map[string]any{"cpu": "100m", "memory": "256Mi"}},
				map[string]any{"pool": "system"}, []any{map[string]any{"operator": "Exists"}}, []any{map[string]any{"name": "registry"}},
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("Deployment (-want +got):\n%s", diff)
			}
		}
	}
}

func TestUnknownValuesAreRejected(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"replica":            {"replica": 3},
		"delete-await":       {"flags": map[string]any{"delete-await": "5s"}},
		"hold-preemption":    {"flags": map[string]any{"hold-preemption": "maybe"}},
		"leader-elect":       {"flags": map[string]any{"leader-elect": true}},
		"components":         {"components": []any{"adaptors"}},
		"replicas":           {"replicas": 0},
		"namespace is empty": {"namespace": ""},
	} {
		_, err := render(t, load(t), values)
		if field, _, _ := strings.Cut(name, " "); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: want an error that names the field, got %v", name, err)
		}
	}
}
