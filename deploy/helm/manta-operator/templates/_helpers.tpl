{{- define "manta.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "manta.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "manta.selector" -}}
app.kubernetes.io/name: {{ include "manta.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "manta.labels" -}}
{{ include "manta.selector" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "manta.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "manta.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The namespaces to watch, comma-separated; empty for all. */}}
{{- define "manta.watchNamespace" -}}
{{- $named := .Values.watchNamespace | default list -}}
{{- if kindIs "string" $named -}}{{- $named = splitList "," $named -}}{{- end -}}
{{- if $named -}}
{{- join "," $named -}}
{{- else if .Values.singleNamespaceInstall -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/* Returns "true" if a feature gate is on. */}}
{{- define "manta.gate" -}}
{{- range .list -}}{{- if and (eq .name $.name) .enabled -}}true{{- end -}}{{- end -}}
{{- end -}}

{{- define "manta.featureGates" -}}
{{- $gates := list -}}
{{- range .Values.featureGates -}}{{- $gates = append $gates (printf "%s=%t" .name .enabled) -}}{{- end -}}
--feature-gates={{ join "," $gates }}
{{- end -}}

{{/* Fails on numbers that KubeRay's chart rejects too. */}}
{{- define "manta.check" -}}
{{- $workers := .Values.reconcileConcurrency | toString -}}
{{- if not (regexMatch "^[1-9][0-9]*$" $workers) -}}
{{- fail (printf "values.reconcileConcurrency must be a positive integer, got %q" $workers) -}}
{{- end -}}
{{- $qps := .Values.kubeClient.qps | toString -}}
{{- if not (regexMatch "^-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?$" $qps) -}}
{{- fail (printf "values.kubeClient.qps must be a valid float number, got %q" $qps) -}}
{{- end -}}
{{- $burst := .Values.kubeClient.burst | toString -}}
{{- if not (regexMatch "^[0-9]+$" $burst) -}}
{{- fail (printf "values.kubeClient.burst must be a non-negative integer, got %q" $burst) -}}
{{- end -}}
{{- end -}}

{{/* The number of replicas. All of them answer webhooks, and only the leader reconciles; without an election all would. */}}
{{- define "manta.replicas" -}}
{{- if and .Values.webhooks.enabled .Values.leaderElectionEnabled -}}
{{- max (int .Values.replicas) (int .Values.webhooks.minReplicas) -}}
{{- else -}}
{{- .Values.replicas -}}
{{- end -}}
{{- end -}}

{{- define "manta.webhookConfiguration" -}}
kuberay-validating-webhook-configuration
{{- end -}}

{{/* Returns "true" if the operator creates the webhook's certificates itself. */}}
{{- define "manta.selfSigned" -}}
{{- $from := .Values.webhooks.certificates -}}
{{- if not (has $from (list "self-signed" "cert-manager")) -}}
{{- fail (printf "values.webhooks.certificates must be self-signed or cert-manager, got %q" $from) -}}
{{- end -}}
{{- if eq $from "self-signed" -}}true{{- end -}}
{{- end -}}
