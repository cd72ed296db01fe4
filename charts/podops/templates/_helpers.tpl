{{- /* Written by make chart. */ -}}
{{- define "podops.version" -}}
{{- $name := last (splitList "/" (first (splitList "@" .Values.image))) -}}
{{- $tag := "" -}}
{{- if contains ":" $name }}{{ $tag = last (splitList ":" $name) }}{{ end -}}
{{- if regexMatch "^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$" $tag }}{{ $tag }}{{ else }}unknown{{ end -}}
{{- end -}}
