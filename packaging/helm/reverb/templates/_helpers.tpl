{{/* The name of all objects: the release's, with the chart's unless it contains it already. Leaves room for the
     suffix "-NUMBER" of a pod, which is a host name. */}}
{{- define "reverb.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods. They can never change. */}}
{{- define "reverb.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "reverb.labels" -}}
{{ include "reverb.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The addresses of all servers, separated by commas, as clients take them. */}}
{{- define "reverb.addresses" -}}
{{- $name := include "reverb.fullname" . -}}
{{- $addresses := list -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc:%d" $name $i $name $.Release.Namespace (int $.Values.port)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}
