{{/* Pieces of NetworkPolicies, each a list of rules. */}}
{{- define "lanekeeper.egress.dns" -}}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
{{- define "lanekeeper.egress.apiServer" -}}
- to:
    {{- range .Values.networkPolicies.apiServer.cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports:
    {{- range .Values.networkPolicies.apiServer.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- define "lanekeeper.egress.external" -}}
{{- range .Values.networkPolicies.external }}
- to:
    - ipBlock: {cidr: {{ .cidr | quote }}}
  ports:
    - {protocol: TCP, port: {{ .port }}}
{{- end }}
{{- end }}
{{- define "lanekeeper.egress.stores" -}}
# Lanes live in any namespace. Whoever else wears the label still lacks the certificate.
- to:
    - namespaceSelector: {}
      podSelector:
        matchLabels: {app.kubernetes.io/name: lane-store, app.kubernetes.io/managed-by: lanekeeper}
  ports:
    - {protocol: TCP, port: 7443}
{{- end }}
{{- define "lanekeeper.egress.embedders" -}}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace }}}
      podSelector:
        matchLabels: {app.kubernetes.io/name: embedder}
  ports:
    - {protocol: TCP, port: 7070}
{{- end }}
{{- define "lanekeeper.egress.qdrant" -}}
{{- if .Values.qdrant.trial.enabled }}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace }}}
      podSelector:
        matchLabels:
          {{- include "lanekeeper.selector" "lanekeeper-qdrant" | nindent 10 }}
  ports:
    - {protocol: TCP, port: 6334}
{{- else if .Values.qdrant.url }}
{{- $host := regexReplaceAll ":[0-9]+$" (urlParse .Values.qdrant.url).host "" }}
{{- if regexMatch "^[^.]+\\.[^.]+\\.svc(\\..*)?$" $host }}
# A Service of the cluster: its namespace stands in its name. Any other address goes under `external`.
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ index (splitList "." $host) 1 }}}
  ports:
    - {protocol: TCP, port: {{ include "lanekeeper.qdrantPort" . }}}
{{- end }}
{{- end }}
{{- end }}
{{- define "lanekeeper.ingress.metrics" -}}
{{- with .Values.networkPolicies.metricsFrom }}
- from:
    {{- toYaml . | nindent 4 }}
  ports:
    - {protocol: TCP, port: 9090}
{{- end }}
{{- end }}
