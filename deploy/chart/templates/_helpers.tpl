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

{{- /* "yes" if the agent runs on the nodes, and so first installations can wait for each other. */}}
{{- define "criproxy.agent" -}}
{{- if and .Values.agent.enabled (eq .Values.action "install") }}yes{{ end }}
{{- end }}

{{- /* Fails if something is asked for that the agent would do, and there is none. */}}
{{- define "criproxy.refuseWithoutAgent" -}}
{{- if and (eq .Values.action "install") (not .Values.agent.enabled) }}
{{- if .Values.nodePolicies }}
{{- fail "nodePolicies needs agent.enabled: without the agent, no node takes a NodePolicy" }}
{{- end }}
{{- if .Values.devicePlugin.configurations }}
{{- fail "devicePlugin.configurations needs agent.enabled: without the agent, nobody reads the label nvidia.com/device-plugin.config" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fails if values contradict each other. */}}
{{- define "criproxy.refuseContradictions" -}}
{{- if eq .Values.action "install" }}
{{- with .Values.devicePlugin }}
{{- if and .configurations (not .enabled) }}
{{- fail "devicePlugin.configurations needs devicePlugin.enabled: without the device plugin, nobody uses them" }}
{{- end }}
{{- if and .defaultConfiguration (not (hasKey (.configurations | default dict) .defaultConfiguration)) }}
{{- fail (printf "devicePlugin.defaultConfiguration is %q, which is not in devicePlugin.configurations (%s)" .defaultConfiguration (keys (.configurations | default dict) | sortAlpha | join ", " | default "empty")) }}
{{- end }}
{{- end }}
{{- $names := dict }}
{{- range .Values.nodePolicies }}
{{- if hasKey $names .name }}
{{- fail (printf "nodePolicies has two of the name %q: give each a name of its own" .name) }}
{{- end }}
{{- $_ := set $names .name true }}
{{- end }}
{{- end }}
{{- end }}

{{- define "criproxy.gate" -}}
{{- if and (include "criproxy.agent" .) (gt (int .Values.firstInstallsAtOnce) 0) }}yes{{ end }}
{{- end }}

{{- /* The name of objects that are in no namespace. */}}
{{- define "criproxy.clusterName" -}}
{{ .Release.Namespace | default "default" }}-{{ include "criproxy.name" . }}
{{- end }}

{{- /* Which nodes change when, for people: a DaemonSet makes new pods on all nodes that have none, without a pause. */}}
{{- define "criproxy.pace" -}}
{{- if and .Release.IsInstall (include "criproxy.gate" .) -}}
its nodes, {{ .Values.firstInstallsAtOnce }} at a time
{{- else if .Release.IsInstall -}}
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
{{- if and (eq .Values.action "install") (not .Values.allNodes) (not (include "criproxy.gate" .)) (not (include "criproxy.selects" .Values)) }}
{{- $now := lookup "apps/v1" "DaemonSet" .Release.Namespace (include "criproxy.name" .) | default dict }}
{{- if or .Release.IsInstall (include "criproxy.selects" (dig "spec" "template" "spec" dict $now)) }}
{{- fail "no nodeSelector or required node affinity limits criproxy to some nodes, so this would restart every kubelet of the cluster at once: set nodeSelector to the nodes with which you want to begin, firstInstallsAtOnce to let nodes wait for each other, or allNodes=true to insist" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "criproxy.serviceAccount" -}}
{{- $name := .Values.serviceAccount.name | default (ternary (include "criproxy.name" .) "default" .Values.serviceAccount.create) }}
{{- if and (eq $name "default") (include "criproxy.agent" .) }}
{{- fail "the agent needs a service account of its own, since all pods of the namespace could use the rights of the account `default`: set serviceAccount.create=true, or serviceAccount.name to another one, or agent.enabled=false" }}
{{- end }}
{{- $name }}
{{- end }}

{{- /* A container without rights on the node: not root, since as root it could do to the node's processes without
       capabilities, criproxy among them, what they may do. Nor nobody (65534): with hostPID, that would be so for each
       process of that user, and exporters often are. */}}
{{- define "criproxy.unprivileged" -}}
image: {{ include "criproxy.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  runAsNonRoot: true
  runAsUser: 62820
  runAsGroup: 62820
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The same with the socket of the daemon that the agent uses, and with the token for the API server. */}}
{{- define "criproxy.agentContainer" -}}
{{ include "criproxy.unprivileged" . }}
env:
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
{{- end }}

{{- define "criproxy.agentMounts" -}}
- {name: control, mountPath: /run/criproxy, readOnly: true}
- {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- /* The port of an address; empty for a socket or nothing. */}}
{{- define "criproxy.port" -}}
{{- if and . (not (hasPrefix "unix:" .)) }}{{ regexFind "[0-9]+$" . }}{{ end }}
{{- end }}

{{- /* "yes" if other machines reach this address. */}}
{{- define "criproxy.isOpen" -}}
{{- if and . (not (regexMatch "^(unix:|:|127\\.|localhost:|\\[::1\\])" .)) }}yes{{ end }}
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
