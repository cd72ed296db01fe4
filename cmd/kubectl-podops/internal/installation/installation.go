// Package installation builds the manifests that the plugin was built with, as kustomize builds config/default.
package installation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/config"
	"github.com/podops-dev/podops/pkg/view/doctor"
)

const (
	// imageName is the name of the manager's image in config/manager.
	imageName = "podops-manager"

	// componentsFolder is the folder of the components in config.
	componentsFolder = "components"
)

// releaseImage is the manager image of the release that the plugin belongs to. Releases set it by
// -ldflags -X (hack/release).
//
//nolint:gochecknoglobals // The linker sets variables of packages only.
var releaseImage string

// versionLabelKey is the label with the version of the manager, on its Deployment and its pods.
const versionLabelKey = "app.kubernetes.io/version"

// Options change the manifests as an overlay of config/default does.
type Options struct {
	// Namespace of the manager; the namespace of config/default if empty.
	Namespace string

	// Image of the manager. If empty, the image of the plugin's release; in a plugin without a
	// release the image of config/manager.
	Image string

	// Components are folders of config/components that are switched on.
	Components []string
}

// Components returns the names of all components.
func Components() ([]string, error) {
	entries, err := config.Manifests.ReadDir(componentsFolder)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded components: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// Build returns the objects of config/default and of components, in the order in which they are to be created: CustomResourceDefinitions
// and namespaces first, and webhook configurations, which hold requests, last.
func Build(options Options) ([]*unstructured.Unstructured, error) {
	known, err := Components()
	if err != nil {
		return nil, err
	}
	for _, name := range options.Components {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("component %q does not exist: want one of %s", name, strings.Join(known, ", "))
		}
	}
	files := filesys.MakeFsInMemory()
	err = fs.WalkDir(config.Manifests, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := config.Manifests.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading an embedded manifest: %w", err)
		}
		return files.WriteFile(path.Join("/", name), content)
	})
	if err != nil {
		return nil, fmt.Errorf("copying the manifests: %w", err)
	}
	options.Image = cmp.Or(options.Image, releaseImage)
	overlay, err := yaml.Marshal(buildOverlay(options))
	if err != nil {
		return nil, fmt.Errorf("encoding the kustomization: %w", err)
	}
	if err := files.WriteFile("/overlay/kustomization.yaml", overlay); err != nil {
		return nil, fmt.Errorf("writing the kustomization: %w", err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/overlay")
	if err != nil {
		return nil, fmt.Errorf("building the manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		encoded, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", resource.CurId(), err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(encoded); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", resource.CurId(), err)
		}
		if err := setVersion(object, imageVersion(options.Image)); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(turn(a), turn(b)) })
	return objects, nil
}

func buildOverlay(options Options) types.Kustomization {
	overlay := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{"../default"},
	}
	if options.Namespace != cluster.DefaultManagerNamespace {
		overlay.Namespace = options.Namespace
	}
	for _, name := range options.Components {
		overlay.Components = append(overlay.Components, path.Join("..", componentsFolder, name))
	}
	if options.Image != "" {
		overlay.Images = []types.Image{parseImage(options.Image)}
	}
	return overlay
}

// setVersion sets the label with the version of a Deployment and its pods. An empty version changes nothing.
func setVersion(object *unstructured.Unstructured, version string) error {
	if object.GetKind() != "Deployment" || version == "" {
		return nil
	}
	for _, labels := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		if err := unstructured.SetNestedField(object.Object, version, append(labels, versionLabelKey)...); err != nil {
			return fmt.Errorf("setting the version of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// imageVersion returns the tag of an image, which is also valid as a label. An image without a tag is of an
// unknown version, as is that of config/manager.
func imageVersion(image string) string {
	if image == "" {
		return ""
	}
	name, _, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(path.Base(name), ":")
	if tag == "" || len(validation.IsValidLabelValue(tag)) > 0 {
		return "unknown"
	}
	return tag
}

// parseImage splits a reference into the parts that kustomize sets.
func parseImage(reference string) types.Image {
	image := types.Image{Name: imageName}
	if name, digest, ok := strings.Cut(reference, "@"); ok {
		image.NewName, image.Digest = name, digest
		return image
	}
	image.NewName, image.NewTag = reference, "latest"
	if at := strings.LastIndex(reference, ":"); at > strings.LastIndex(reference, "/") {
		image.NewName, image.NewTag = reference[:at], reference[at+1:]
	}
	return image
}

// turn orders kinds of objects by when they are created.
func turn(object *unstructured.Unstructured) int {
	order := []string{"CustomResourceDefinition", "Namespace", "", "Deployment", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
	if at := slices.Index(order, object.GetKind()); at >= 0 {
		return at
	}
	return slices.Index(order, "")
}

// ManagerImage returns the image of the manager among objects.
func ManagerImage(objects []*unstructured.Unstructured) (string, error) {
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
			return "", fmt.Errorf("decoding %s: %w", object.GetName(), err)
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			return container.Image, nil
		}
	}
	return "", errors.New("the manifests have no Deployment with a container")
}

// CRDs returns the CustomResourceDefinitions among objects.
func CRDs(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool {
		return object.GetKind() != "CustomResourceDefinition"
	})
}

// Compared returns the objects of the manifests that doctor compares.
func Compared(objects []*unstructured.Unstructured) (doctor.Installation, error) {
	var compared doctor.Installation
	var errs []error
	for _, object := range objects {
		switch object.GetKind() {
		case "MutatingWebhookConfiguration":
			compared.Mutating = add[admissionregistrationv1.MutatingWebhookConfiguration](compared.Mutating, object, &errs)
		case "ValidatingWebhookConfiguration":
			compared.Validating = add[admissionregistrationv1.ValidatingWebhookConfiguration](compared.Validating, object, &errs)
		case "ValidatingAdmissionPolicy":
			compared.Policies = add[admissionregistrationv1.ValidatingAdmissionPolicy](compared.Policies, object, &errs)
		case "ValidatingAdmissionPolicyBinding":
			compared.Bindings = add[admissionregistrationv1.ValidatingAdmissionPolicyBinding](compared.Bindings, object, &errs)
		case "CustomResourceDefinition":
			compared.CRDs = add[apiextensionsv1.CustomResourceDefinition](compared.CRDs, object, &errs)
		}
	}
	return compared, errors.Join(errs...)
}

func add[T any](all []T, object *unstructured.Unstructured, errs *[]error) []T {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		*errs = append(*errs, fmt.Errorf("decoding %s %s: %w", object.GetKind(), object.GetName(), err))
		return all
	}
	return append(all, typed)
}

// Probe returns a valid PodTransitionRule that selects no pod, for dry runs.
func Probe(namespace string) *appsv1alpha1.PodTransitionRule {
	never := &metav1.LabelSelector{MatchLabels: map[string]string{"podops.kusionstack.io/probe": "true"}}
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "podops-probe-"},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: never, Rules: []appsv1alpha1.TransitionRule{{Name: "probe", LabelCheck: &appsv1alpha1.LabelCheck{Requires: never}}},
		},
	}
}
