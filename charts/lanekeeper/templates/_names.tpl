{{/* The image, by digest where one is given. */}}
{{- define "lanekeeper.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{/* Labels of every object. Takes a list of the root and the part's name. */}}
{{- define "lanekeeper.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: lanekeeper
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What selects the pods of a part. */}}
{{- define "lanekeeper.selector" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: lanekeeper
{{- end -}}

{{/* Restricted, for pods. */}}
{{- define "lanekeeper.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Restricted, for containers. */}}
{{- define "lanekeeper.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where Qdrant is, or nothing. */}}
{{- define "lanekeeper.qdrantUrl" -}}
{{- if and .Values.qdrant.trial.enabled .Values.qdrant.url -}}
{{- fail "give qdrant.url or set qdrant.trial.enabled, not both: lanes have one place for their vectors" -}}
{{- end -}}
{{- if .Values.qdrant.trial.enabled -}}
http://lanekeeper-qdrant.{{ .Release.Namespace }}.svc:6334
{{- else -}}
{{ .Values.qdrant.url }}
{{- end -}}
{{- end -}}

{{/* The port of Qdrant's URL; the client takes 6334 where none is given. */}}
{{- define "lanekeeper.qdrantPort" -}}
{{- $host := (urlParse (include "lanekeeper.qdrantUrl" .)).host -}}
{{- if regexMatch ":[0-9]+$" $host }}{{ regexFind "[0-9]+$" $host }}{{ else }}6334{{ end -}}
{{- end -}}

{{/* Of everything of `helm test`: nothing of it stays in the cluster between two runs. */}}
{{- define "lanekeeper.test.annotations" -}}
helm.sh/hook: test
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
