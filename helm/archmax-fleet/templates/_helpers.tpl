{{- define "archmax.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "archmax.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "archmax.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "archmax.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "archmax.selector" -}}
app.kubernetes.io/name: {{ include "archmax.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "archmax.labels" -}}
{{ include "archmax.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "archmax.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "archmax.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "archmax.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- /* A value as the text of a variable: YAML numbers are floats here, and large ones would be written as 1e+06. */ -}}
{{- define "archmax.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) -}}{{ printf "%.0f" . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- define "archmax.externalRedis" -}}
{{- if or .Values.secrets.redisUrl.value .Values.secrets.redisUrl.existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "archmax.bundledRedis" -}}
{{- if and .Values.redis.bundled (not (include "archmax.externalRedis" .)) -}}true{{- end -}}
{{- end -}}

{{- define "archmax.usesS3" -}}
{{- if or (hasPrefix "s3://" .Values.store.url) (eq .Values.workspace.source "s3") -}}true{{- end -}}
{{- end -}}

{{- define "archmax.secretName" -}}
{{ include "archmax.fullname" . }}-secrets
{{- end -}}

{{- /* Whether a secret is given: (list $ "modelApiKey") */ -}}
{{- define "archmax.hasSecret" -}}
{{- $given := index (index . 0).Values.secrets (index . 1) -}}
{{- if or $given.value $given.existingSecret -}}true{{- end -}}
{{- end -}}

{{- /* Where a secret is: (list $ "modelApiKey" "model-api-key"); the key in the chart's own Secret is the third. */ -}}
{{- define "archmax.secretRef" -}}
{{- $root := index . 0 -}}
{{- $given := index $root.Values.secrets (index . 1) -}}
secretKeyRef:
  {{- if $given.existingSecret }}
  name: {{ $given.existingSecret }}
  key: {{ $given.key }}
  {{- else }}
  name: {{ include "archmax.secretName" $root }}
  key: {{ index . 2 }}
  {{- end }}
{{- end -}}

{{- /* Flower's path without slashes around it: empty and "/" mean none. */ -}}
{{- define "archmax.flowerPrefix" -}}
{{- .Values.flower.urlPrefix | trimAll "/" -}}
{{- end -}}

{{- define "archmax.flowerPath" -}}
{{- with (include "archmax.flowerPrefix" .) -}}/{{ . }}{{- end -}}
{{- end -}}

{{- define "archmax.storeUrl" -}}
{{ .Values.store.url | default "file:///var/lib/archmax/sessions" }}
{{- end -}}

{{- define "archmax.storeClaim" -}}
{{ .Values.store.volume.existingClaim | default (printf "%s-sessions" (include "archmax.fullname" .)) }}
{{- end -}}

{{- /* A pool with the defaults it does not override, as JSON: (list $ $pool) */ -}}
{{- define "archmax.pool" -}}
{{- mergeOverwrite (deepCopy (index . 0).Values.workers.defaults) (deepCopy (index . 1)) | toJson -}}
{{- end -}}

{{- /* Seconds the longest step of a turn may take: three attempts at a call and the waits between them. */ -}}
{{- define "archmax.stepSeconds" -}}
{{- $call := .Values.settings.call_timeout_seconds | default 120 | float64 -}}
{{- addf (mulf $call 3) 60 | ceil | int64 -}}
{{- end -}}

{{- /* A queue label's pattern for Prometheus: (list "turns|children" $globs) without their exclusions */ -}}
{{- define "archmax.queuePattern" -}}
{{- $parts := list -}}
{{- range . -}}
{{- $parts = append $parts (. | replace "." "\\\\." | replace "*" ".*" | replace "?" ".") -}}
{{- end -}}
archmax\\.(turns|children)\\.({{ join "|" $parts }})
{{- end -}}

{{- /* The selector of the queues a pool serves: {queue=~"…",queue!~"…"} */ -}}
{{- define "archmax.queueSelector" -}}
{{- $named := list -}}
{{- $excluded := list -}}
{{- range . -}}
{{- if hasPrefix "!" . -}}{{- $excluded = append $excluded (trimPrefix "!" .) -}}{{- else -}}{{- $named = append $named . -}}{{- end -}}
{{- end -}}
{{- $matchers := list -}}
{{- if $named -}}{{- $matchers = append $matchers (printf "queue=~\"%s\"" (include "archmax.queuePattern" $named)) -}}{{- end -}}
{{- if $excluded -}}{{- $matchers = append $matchers (printf "queue!~\"%s\"" (include "archmax.queuePattern" $excluded)) -}}{{- end -}}
{{- if $matchers -}}{ {{- join "," $matchers -}} }{{- end -}}
{{- end -}}
