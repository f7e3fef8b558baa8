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

{{- /* Which nodes change when, for people: a DaemonSet makes new pods on all nodes that have none, without a pause. */}}
{{- define "criproxy.pace" -}}
{{- if .Release.IsInstall -}}
all its nodes at the same time
{{- else if eq .Values.updateStrategy "RollingUpdate" -}}
its nodes, {{ .Values.maxUnavailable }} at a time
{{- else -}}
the nodes whose pods you delete
{{- end }}
{{- end }}

{{- /* "yes" if pods with this nodeSelector and this affinity do not run on every node. */}}
{{- define "criproxy.selects" -}}
{{- $required := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list (.affinity | default dict) }}
{{- if or (omit (.nodeSelector | default dict) "kubernetes.io/os" "kubernetes.io/arch") $required }}yes{{ end }}
{{- end }}

{{- /* Fails if all nodes would change at once, unless somebody insists: nodes that already have a pod do not. */}}
{{- define "criproxy.refuseAllNodes" -}}
{{- if and (eq .Values.action "install") (not .Values.allNodes) (not (include "criproxy.selects" .Values)) }}
{{- $now := lookup "apps/v1" "DaemonSet" .Release.Namespace (include "criproxy.name" .) | default dict }}
{{- if or .Release.IsInstall (include "criproxy.selects" (dig "spec" "template" "spec" dict $now)) }}
{{- fail "no nodeSelector or required node affinity limits criproxy to some nodes, so this would restart every kubelet of the cluster at once: set nodeSelector to the nodes with which you want to begin, or allNodes=true to insist" }}
{{- end }}
{{- end }}
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
