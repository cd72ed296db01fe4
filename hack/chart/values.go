package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/operator"
)

// helpers has the version label that the plugin derives from an image: its tag.
const helpers = `{{- /* Written by make chart. */ -}}
{{- define "podops.version" -}}
{{- $name := last (splitList "/" (first (splitList "@" .Values.image))) -}}
{{- $tag := "" -}}
{{- if contains ":" $name }}{{ $tag = last (splitList ":" $name) }}{{ end -}}
{{- if regexMatch "^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$" $tag }}{{ $tag }}{{ else }}unknown{{ end -}}
{{- end -}}
`

// managerFlags returns the flags of the manager.
func managerFlags() ([]*flag.Flag, error) {
	// The default of --namespace depends on it.
	if err := os.Unsetenv("POD_NAMESPACE"); err != nil {
		return nil, fmt.Errorf("unsetting POD_NAMESPACE: %w", err)
	}
	set := flag.NewFlagSet("manager", flag.ContinueOnError)
	var options operator.Options
	options.AddFlags(set)
	var flags []*flag.Flag
	set.VisitAll(func(f *flag.Flag) {
		switch f.Name {
		case "leader-elect", "health-probe-bind-address": // The manifests set them.
		default:
			flags = append(flags, f)
		}
	})
	return flags, nil
}

// valuesOf returns values.yaml.
func valuesOf(flags []*flag.Flag) string {
	var text strings.Builder
	text.WriteString(`# Written by make chart. The defaults render the objects of config/default.

# The namespace of the manager. The record of the release is in the namespace of helm install.
namespace: podops-system

# Whether the chart has the namespace. A namespace of yours needs the label kusionstack.io/control: "false", by which the
# webhooks exempt the pods of the manager.
createNamespace: true

# The image of the manager, by tag or digest. There is no published image: make image builds one.
image: podops-manager:dev

imagePullSecrets: []

replicas: 2

# No CPU limit: a throttled webhook makes the API server time out.
resources:
  requests: {cpu: 100m, memory: 256Mi}
  limits: {memory: 1Gi}

nodeSelector: {}

tolerations: []

# Components that are switched on: docs/install.md has their effects.
components: []

# Flags of the manager besides those of config/manager: a name without dashes, and a value, for example
#   delete-wait: 5s
# A value that only looks like a number needs quotes.
flags: {}
`)
	for _, f := range flags {
		fmt.Fprintf(&text, "  # %s: %s (default %s)\n", f.Name, strings.Join(strings.Fields(f.Usage), " "), orNone(f.DefValue))
	}
	return text.String()
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// schemaOf returns values.schema.json, with which helm rejects unknown values.
func schemaOf(flags []*flag.Flag) (string, error) {
	names, err := components()
	if err != nil {
		return "", err
	}
	properties := map[string]any{}
	for _, f := range flags {
		properties[f.Name] = map[string]any{"type": typesOf(f), "description": strings.Join(strings.Fields(f.Usage), " ")}
	}
	object := map[string]any{"type": "object"}
	list := map[string]any{"type": "array", "items": object}
	schema, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
		"required": []string{"namespace", "image", "replicas"},
		"properties": map[string]any{
			"namespace":        map[string]any{"type": "string", "minLength": 1},
			"createNamespace":  map[string]any{"type": "boolean"},
			"image":            map[string]any{"type": "string", "minLength": 1},
			"imagePullSecrets": list,
			"replicas":         map[string]any{"type": "integer", "minimum": 1},
			"resources":        object,
			"nodeSelector":     object,
			"tolerations":      list,
			"components":       map[string]any{"type": "array", "uniqueItems": true, "items": map[string]any{"enum": names}},
			"flags":            map[string]any{"type": "object", "additionalProperties": false, "properties": properties},
			"global":           object, // helm adds it
		},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the schema: %w", err)
	}
	return string(schema) + "\n", nil
}

// typesOf returns the types of JSON that a flag takes. Durations and lists are texts.
func typesOf(f *flag.Flag) []string {
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return []string{"string"}
	}
	switch getter.Get().(type) {
	case bool:
		return []string{"boolean"}
	case time.Duration:
		return []string{"string"}
	case int, int64, uint, uint64, float64:
		return []string{"integer", "number", "string"}
	default:
		return []string{"string"}
	}
}
