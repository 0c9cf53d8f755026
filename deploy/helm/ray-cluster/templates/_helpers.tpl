{{- define "cluster.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "cluster.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* rayStartParams with the deprecated initArgs; every value is a string. */}}
{{- define "cluster.rayStartParams" -}}
{{- $params := dict -}}
{{- range $key, $value := merge (dict) (.rayStartParams | default dict) (.initArgs | default dict) -}}
{{- $_ := set $params $key (toString $value) -}}
{{- end -}}
{{- toYaml $params -}}
{{- end -}}

{{/* The Pod template of a group: dict root, group, name of the container, resources by default. */}}
{{- define "cluster.template" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- $image := $group.image | default dict -}}
{{- $repository := $image.repository | default $root.Values.image.repository -}}
{{- $tag := $image.tag | default $root.Values.image.tag | toString -}}
metadata:
  labels:
    {{- include "cluster.labels" $root | nindent 4 }}
    {{- with $group.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $group.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $key := list "initContainers" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "resourceClaims" "dnsConfig" "volumes" }}
  {{- with get $group $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $key := list "priorityClassName" "restartPolicy" "runtimeClassName" "serviceAccountName" }}
  {{- with get $group $key }}
  {{ $key }}: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- with $group.priority }}
  priority: {{ . }}
  {{- end }}
  {{- with $group.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: {{ printf "%s:%s" $repository $tag | quote }}
      imagePullPolicy: {{ $image.pullPolicy | default $root.Values.image.pullPolicy }}
      {{- with concat ($root.Values.common.containerEnv | default list) ($group.containerEnv | default list) }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- range $key := list "envFrom" "ports" "lifecycle" "command" "args" "securityContext" "volumeMounts" }}
      {{- with get $group $key }}
      {{ $key }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with $group.resources | default .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with $group.sidecarContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* A worker group: dict root, group, name. */}}
{{- define "cluster.workers" -}}
{{- $resources := dict "cpu" "1" "memory" "1Gi" -}}
groupName: {{ .name }}
replicas: {{ .group.replicas | default 0 }}
minReplicas: {{ .group.minReplicas | default 0 }}
maxReplicas: {{ if hasKey .group "maxReplicas" }}{{ .group.maxReplicas }}{{ else }}2147483647{{ end }}
numOfHosts: {{ .group.numOfHosts | default 1 }}
rayStartParams:
  {{- include "cluster.rayStartParams" .group | nindent 2 }}
template:
  {{- include "cluster.template" (dict "root" .root "group" .group "container" "ray-worker" "resources" (dict "limits" $resources "requests" $resources)) | nindent 2 }}
{{- end -}}
