package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/config"
)

// Texts in the place of values, which no manifest contains. The first two are valid where the plugin reads them.
const (
	namespaceMark = "namespace-of-values"
	imageMark     = "image-of-values:tag-of-values"
	versionMark   = "tag-of-values" // the plugin takes it from the image

	replicasMark  = "REPLICAS-OF-VALUES"
	resourcesMark = "RESOURCES-OF-VALUES"
	flagsMark     = "FLAGS-OF-VALUES"
	podMark       = "POD-OF-VALUES"
)

// plugin is the path of the kubectl plugin, which has the manifests.
type plugin string

// objects returns the objects that the plugin installs.
func (p plugin) objects(ctx context.Context, namespace, image string, components ...string) ([]*unstructured.Unstructured, error) {
	arguments := []string{"install", "--dry-run", "--podops-namespace", namespace, "--image", image, "--components", strings.Join(components, ",")}
	var complaint bytes.Buffer
	command := exec.CommandContext(ctx, string(p), arguments...) //nolint:gosec // The plugin of this repository.
	command.Stderr = &complaint
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("running kubectl podops install --dry-run: %w\n%s", err, complaint.String())
	}
	objects, err := decode(output)
	for _, object := range objects {
		// kustomize gives kinds that it does not know a namespace, which the API server removes: these have none.
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			unstructured.RemoveNestedField(object.Object, "metadata", "namespace")
		}
	}
	return objects, err
}

// decode returns the objects of YAML documents, except empty documents.
func decode(documents []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decoding manifests: %w", err)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// components returns the names of the components of config.
func components() ([]string, error) {
	entries, err := config.Manifests.ReadDir("components")
	if err != nil {
		return nil, fmt.Errorf("reading the components: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// variant is a text of an object with a component; empty: the object is not there.
type variant struct{ component, text string }

// templates returns a template for each object. An object that a component adds or changes is conditional.
func templates(ctx context.Context, p plugin) (map[string]string, error) {
	base, err := texts(ctx, p)
	if err != nil {
		return nil, err
	}
	variants := map[string][]variant{}
	names, err := components()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		with, err := texts(ctx, p, name)
		if err != nil {
			return nil, err
		}
		for file, text := range with {
			if base[file] != text {
				variants[file] = append(variants[file], variant{name, text})
			}
		}
		for file := range base {
			if _, ok := with[file]; !ok {
				variants[file] = append(variants[file], variant{name, ""})
			}
		}
	}
	files := map[string]string{}
	for file, text := range base {
		files[file] = text
	}
	for file, changed := range variants {
		if len(changed) > 1 {
			return nil, fmt.Errorf("the components %s and %s change %s: the chart has a condition for one", changed[0].component, changed[1].component, file)
		}
		files[file] = conditional(changed[0], base[file])
	}
	for file, text := range files {
		files[file] = "{{- /* Written by make chart. */ -}}\n" + text
	}
	return files, nil
}

// conditional returns the text of a variant where its component is switched on, and otherwise another text.
func conditional(v variant, otherwise string) string {
	condition := fmt.Sprintf("{{- if has %q .Values.components }}\n", v.component)
	if otherwise == "" {
		return condition + v.text + "{{- end }}\n"
	}
	return condition + v.text + "{{- else }}\n" + otherwise + "{{- end }}\n"
}

// texts returns the templates of the objects with components, by the names of their files.
func texts(ctx context.Context, p plugin, names ...string) (map[string]string, error) {
	objects, err := p.objects(ctx, namespaceMark, imageMark, names...)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, object := range objects {
		text, err := template(object)
		if err != nil {
			return nil, err
		}
		file := "templates/" + strings.ToLower(object.GetKind()) + "-" + strings.ReplaceAll(object.GetName(), ":", "-") + ".yaml"
		if object.GetNamespace() != "" && object.GetNamespace() != namespaceMark {
			file = strings.TrimSuffix(file, ".yaml") + "-in-" + object.GetNamespace() + ".yaml"
		}
		if _, ok := files[file]; ok {
			return nil, fmt.Errorf("two objects have the file %s", file)
		}
		files[file] = text
	}
	return files, nil
}

// template returns the template of an object.
func template(object *unstructured.Unstructured) (string, error) {
	switch object.GetKind() {
	case "Deployment":
		if err := markDeployment(object); err != nil {
			return "", err
		}
	case "CustomResourceDefinition":
		// helm uninstall would delete every rule with it.
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[keepAnnotation] = "keep"
		object.SetAnnotations(annotations)
	}
	encoded, err := yaml.Marshal(object.Object)
	if err != nil {
		return "", fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	text := fill(string(encoded))
	if object.GetKind() == "Namespace" {
		text = "{{- if .Values.createNamespace }}\n" + text + "{{- end }}\n"
	}
	return text, nil
}

const keepAnnotation = "helm.sh/resource-policy"

// markDeployment puts marks into the fields of the Deployment that values set.
func markDeployment(deployment *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("the Deployment has %d containers: %w", len(containers), err)
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("the container of the Deployment is no object")
	}
	arguments, _, err := unstructured.NestedStringSlice(container, "args")
	if err != nil {
		return fmt.Errorf("reading the arguments of the manager: %w", err)
	}
	container["resources"] = resourcesMark
	return errors.Join(
		unstructured.SetNestedStringSlice(container, append(arguments, flagsMark), "args"),
		unstructured.SetNestedSlice(deployment.Object, containers, "spec", "template", "spec", "containers"),
		unstructured.SetNestedField(deployment.Object, podMark, "spec", "template", "spec", "aaa"), // sorted to the top
		unstructured.SetNestedField(deployment.Object, replicasMark, "spec", "replicas"),
	)
}

var markedLine = regexp.MustCompile(`(?m)^( *)(?:aaa: |(\w+: )|- )(` + strings.Join([]string{replicasMark, resourcesMark, flagsMark, podMark}, "|") + `)$`)

// fill returns a text with its marks replaced by values, and with braces that are no template escaped.
func fill(text string) string {
	text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`)
	text = markedLine.ReplaceAllStringFunc(text, func(line string) string {
		parts := markedLine.FindStringSubmatch(line)
		indent, field := parts[1], parts[2]
		switch parts[3] {
		case replicasMark:
			return indent + field + "{{ .Values.replicas }}"
		case resourcesMark:
			return fmt.Sprintf("%s%s{{- toYaml .Values.resources | nindent %d }}", indent, field, len(indent)+2)
		case flagsMark:
			const each = "%[1]s{{- range $name, $value := .Values.flags }}\n%[1]s- {{ printf \"--%%s=%%v\" $name $value | quote }}\n%[1]s{{- end }}"
			return fmt.Sprintf(each, indent)
		default:
			return podFields(indent)
		}
	})
	return strings.NewReplacer(
		namespaceMark, "{{ .Values.namespace }}",
		imageMark, "{{ .Values.image }}",
		versionMark, `{{ include "podops.version" . | quote }}`,
	).Replace(text)
}

// podFields returns the optional fields of the pods that clusters differ in.
func podFields(indent string) string {
	var lines []string
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "tolerations"} {
		lines = append(lines, fmt.Sprintf("%s{{- with .Values.%s }}\n%s%s:\n%s  {{- toYaml . | nindent %d }}\n%s{{- end }}",
			indent, field, indent, field, indent, len(indent)+2, indent))
	}
	return strings.Join(slices.Clip(lines), "\n")
}
