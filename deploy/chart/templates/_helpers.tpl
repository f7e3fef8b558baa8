{{- define "criproxy.labels" -}}
app.kubernetes.io/name: criproxy
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "criproxy.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "criproxy.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-node
{{- end }}

{{- /* How many nodes change at a time, for people. */}}
{{- define "criproxy.pace" -}}
{{- if eq .Values.updateStrategy "RollingUpdate" }}, {{ .Values.maxUnavailable }} at a time{{ else }} whose pods are deleted{{ end }}
{{- end }}

{{- define "criproxy.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "criproxy.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* A container that changes the node: its root directory is at /host, and its processes are visible. */}}
{{- define "criproxy.onNode" -}}
image: {{ include "criproxy.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  privileged: true
  readOnlyRootFilesystem: true
{{- with .Values.initResources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: host, mountPath: /host, mountPropagation: HostToContainer}
  - {name: files, mountPath: /files, readOnly: true}
{{- end }}

{{- define "criproxy.files" -}}
{{- with .Values.policy }}
policy.yaml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.devicePlugin.enabled }}
defaults: |
  # {{ include "criproxy.image" . }}: another image changes this file, and so restarts the unit.
  CRIPROXY_DEVICE_PLUGIN_OPTIONS="{{ join " " .Values.devicePlugin.options }}"
  {{- if .Values.devicePlugin.nvidiaConfig }}
  CONFIG_FILE="/etc/criproxy/nvidia.yaml"
  {{- end }}
  {{- range $name, $value := .Values.devicePlugin.env }}
  {{ $name }}="{{ $value }}"
  {{- end }}
{{- with .Values.devicePlugin.nvidiaConfig }}
nvidia.yaml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
