package main

import (
	"bytes"
	"cmp"
	"fmt"
	"text/template"
)

// side is with or without PodOps.
type side string

const (
	withPodOps    side = "with"
	withoutPodOps side = "without"
)

const (
	// podPort and otherPort are the ports that every pod's servers listen on. Requests go to the first one at first.
	podPort, otherPort = 8080, 8081

	// drainPort is the port of the drain endpoint of every pod.
	drainPort = 8082

	// maxUnavailable is the bound of both sides: without PodOps the Deployment and the
	// operation controller respect it, with PodOps the rule enforces it.
	maxUnavailable = "25%"

	firstImage  = "registry.example.com/web:v1"
	secondImage = "registry.example.com/web:v2"

	firstCPU, secondCPU = "10m", "20m"
)

// workload is a Deployment, StatefulSet or DaemonSet, and with PodOps the Service that names the load balancer,
// before it, and the rule. Only then a pod of it has the control label.
var workload = template.Must(template.New("workload").Parse(`{{ if .PodOps }}apiVersion: v1
kind: Service
metadata:
  name: web
{{- if not .Drains }}
  labels:
    kusionstack.io/control: "true"
  annotations:
    podops.dev/haproxy-runtime: "unix:{{ .Socket }}"
    podops.dev/haproxy-backend: "{{ .Backend }}"
{{- end }}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: {{ .Port }}}]
---
{{ end }}apiVersion: apps/v1
kind: {{ .Kind }}
metadata:
  name: web
spec:
{{- if eq .Kind "Deployment" }}
  replicas: {{ .Replicas }}
  strategy:
    rollingUpdate: {maxUnavailable: "{{ .MaxUnavailable }}", maxSurge: "{{ .MaxUnavailable }}"}
{{- else if eq .Kind "StatefulSet" }}
  replicas: {{ .Replicas }}
  podManagementPolicy: Parallel
{{- else }}
  updateStrategy:
    rollingUpdate: {maxUnavailable: "{{ .MaxUnavailable }}"}
{{- end }}
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels:
        app: web
{{- if .PodOps }}
        kusionstack.io/control: "true"
{{- if .Drains }}
      annotations:
        podopslifecycle.kusionstack.io/drain-endpoint: ":{{ .DrainPort }}/drain"
        podopslifecycle.kusionstack.io/drain-timeout: "2m"
{{- end }}
{{- end }}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: {{ .Image }}
        ports: [{containerPort: {{ .Port }}}]
        resources: {requests: {cpu: {{ .CPU }}}}
{{- if .PodOps }}
---
apiVersion: apps.kusionstack.io/v1alpha1
kind: PodTransitionRule
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  rules:
  - name: availability
    availablePolicy: { {{- .Policy -}} }
{{- end }}
`))

// values are the values of the template.
type values struct {
	PodOps          bool
	Kind            string
	Replicas        int
	Policy          string // the availablePolicy of the rule; empty: maxUnavailable
	Socket, Backend string

	// Drains is true for pods with a drain endpoint behind a Service without an adapter.
	Drains bool
}

func (v values) manifest() (string, error) {
	var text bytes.Buffer
	if err := workload.Execute(&text, map[string]any{
		"PodOps": v.PodOps, "Kind": v.Kind, "Replicas": v.Replicas, "Socket": v.Socket, "Backend": v.Backend,
		"Policy":         cmp.Or(v.Policy, fmt.Sprintf("maxUnavailableValue: %q", maxUnavailable)),
		"MaxUnavailable": maxUnavailable, "Image": firstImage, "Port": podPort, "CPU": firstCPU,
		"Drains": v.Drains, "DrainPort": drainPort,
	}); err != nil {
		return "", fmt.Errorf("writing the workload: %w", err)
	}
	return text.String(), nil
}
