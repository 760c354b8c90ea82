{{- /* What every container of the fleet may do: nothing but compute and talk. */ -}}
{{- define "archmax.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "archmax.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.pod.runAsUser }}
runAsGroup: {{ .Values.pod.runAsUser }}
fsGroup: {{ .Values.pod.runAsUser }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* The start of a pod's spec: (list $ "component") */ -}}
{{- define "archmax.podCommon" -}}
{{- $root := index . 0 -}}
{{- $pod := $root.Values.pod -}}
serviceAccountName: {{ include "archmax.serviceAccount" $root }}
automountServiceAccountToken: false
# a service's variables would be read as settings: ARCHMAX_API_PORT=tcp://…
enableServiceLinks: false
securityContext:
  {{- include "archmax.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $pod.spread }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "archmax.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ index . 1 }}
{{- end }}
{{- end -}}

{{- /* Labels and annotations of a pod: (list $ "component") */ -}}
{{- define "archmax.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "archmax.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
  {{- with $root.Values.pod.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  {{- /* the chart's own random values would roll every pod at every upgrade, so the given ones are digested */}}
  archmax/secrets: {{ printf "%s%s" (toJson $root.Values.secrets) (toJson $root.Values.redis.password) | sha256sum | trunc 16 | quote }}
  {{- with $root.Values.pod.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The variables every process of the fleet reads. */ -}}
{{- define "archmax.env" -}}
- name: ARCHMAX_ROOT
  value: {{ .Values.workspace.path | quote }}
- name: ARCHMAX_STORE
  value: {{ include "archmax.storeUrl" . | quote }}
- name: ARCHMAX_REDIS_URL
  valueFrom:
    {{- include "archmax.secretRef" (list . "redisUrl" "redis-url") | nindent 4 }}
{{- if include "archmax.usesS3" . }}
{{- with .Values.store.s3.endpointUrl }}
- name: ARCHMAX_S3_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.store.s3.region }}
- name: ARCHMAX_S3_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .Values.store.s3.sse }}
- name: ARCHMAX_S3_SSE
  value: {{ . | quote }}
{{- end }}
{{- with .Values.store.s3.kmsKeyId }}
- name: ARCHMAX_S3_KMS_KEY_ID
  value: {{ . | quote }}
{{- end }}
{{- if include "archmax.hasSecret" (list . "s3AccessKeyId") }}
- name: ARCHMAX_S3_ACCESS_KEY_ID
  valueFrom:
    {{- include "archmax.secretRef" (list . "s3AccessKeyId" "s3-access-key-id") | nindent 4 }}
{{- end }}
{{- if include "archmax.hasSecret" (list . "s3SecretAccessKey") }}
- name: ARCHMAX_S3_SECRET_ACCESS_KEY
  valueFrom:
    {{- include "archmax.secretRef" (list . "s3SecretAccessKey" "s3-secret-access-key") | nindent 4 }}
{{- end }}
{{- end }}
{{- if include "archmax.hasSecret" (list . "webhookSecret") }}
- name: ARCHMAX_WEBHOOK_SECRET
  valueFrom:
    {{- include "archmax.secretRef" (list . "webhookSecret" "webhook-secret") | nindent 4 }}
{{- end }}
{{- if .Values.tracing.endpoint }}
- name: ARCHMAX_OTLP_ENDPOINT
  value: {{ .Values.tracing.endpoint | quote }}
- name: ARCHMAX_OTLP_SAMPLE_RATIO
  value: {{ include "archmax.text" .Values.tracing.sampleRatio | quote }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if not (kindIs "invalid" $value) }}
- name: ARCHMAX_{{ upper $name }}
  value: {{ include "archmax.text" $value | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "archmax.metricsEnv" -}}
{{- if .Values.metrics.enabled -}}
- name: ARCHMAX_METRICS_PORT
  value: {{ .Values.metrics.port | quote }}
- name: ARCHMAX_METRICS_HOST
  value: "0.0.0.0"
{{- end -}}
{{- end -}}

{{- /* The model's endpoint: for workers alone. */ -}}
{{- define "archmax.modelEnv" -}}
{{- with .Values.model.name }}
- name: ARCHMAX_MODEL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.model.apiBaseUrl }}
- name: ARCHMAX_API_BASE_URL
  value: {{ . | quote }}
{{- end }}
{{- if include "archmax.hasSecret" (list . "modelApiKey") }}
- name: ARCHMAX_API_KEY
  valueFrom:
    {{- include "archmax.secretRef" (list . "modelApiKey" "model-api-key") | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "archmax.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
- name: run
  mountPath: /run/archmax
{{- if not (hasPrefix "s3://" (include "archmax.storeUrl" .)) }}
- name: sessions
  mountPath: /var/lib/archmax
{{- end }}
{{- if include "archmax.workspaceVolume" . }}
- name: workspace
  mountPath: {{ .Values.workspace.path }}
  readOnly: true
  {{- if and (eq .Values.workspace.source "volume") .Values.workspace.volume.subPath }}
  subPath: {{ .Values.workspace.volume.subPath }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "archmax.workspaceVolume" -}}
{{- if or (ne .Values.workspace.source "image") .Values.workspace.imageReference -}}true{{- end -}}
{{- end -}}

{{- define "archmax.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.pod.tmpSize }}
- name: run
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- if not (hasPrefix "s3://" (include "archmax.storeUrl" .)) }}
- name: sessions
  persistentVolumeClaim:
    claimName: {{ include "archmax.storeClaim" . }}
{{- end }}
{{- if eq .Values.workspace.source "volume" }}
- name: workspace
  persistentVolumeClaim:
    claimName: {{ required "workspace.volume.existingClaim names the claim that holds the workspace" .Values.workspace.volume.existingClaim }}
    readOnly: true
{{- else if include "archmax.workspaceVolume" . }}
- name: workspace
  emptyDir:
    sizeLimit: 512Mi
{{- end }}
{{- if eq .Values.workspace.source "s3" }}
- name: scripts
  configMap:
    name: {{ include "archmax.fullname" . }}-scripts
{{- end }}
{{- end -}}

{{- /* Brings the workspace where it is not in the image already. */ -}}
{{- define "archmax.initContainers" -}}
{{- if eq .Values.workspace.source "s3" }}
initContainers:
  - name: workspace
    image: {{ include "archmax.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [python, /scripts/fetch_workspace.py]
    args:
      - {{ required "workspace.s3.url is s3://bucket/prefix" .Values.workspace.s3.url | quote }}
      - {{ .Values.workspace.path | quote }}
    env:
      {{- include "archmax.env" . | nindent 6 }}
    securityContext:
      {{- include "archmax.containerSecurity" . | nindent 6 }}
    resources:
      requests: { cpu: 50m, memory: 128Mi }
      limits: { memory: 256Mi }
    volumeMounts:
      - name: workspace
        mountPath: {{ .Values.workspace.path }}
      - name: scripts
        mountPath: /scripts
        readOnly: true
      - name: tmp
        mountPath: /tmp
{{- else if and (eq .Values.workspace.source "image") .Values.workspace.imageReference }}
initContainers:
  - name: workspace
    image: {{ .Values.workspace.imageReference }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [cp, -r, "{{ .Values.workspace.path }}/.", /target]
    securityContext:
      {{- include "archmax.containerSecurity" . | nindent 6 }}
    resources:
      requests: { cpu: 10m, memory: 32Mi }
      limits: { memory: 128Mi }
    volumeMounts:
      - name: workspace
        mountPath: /target
{{- end }}
{{- end -}}

{{- /* A process that touches its heartbeat file works: no client, no interpreter, a few milliseconds. */ -}}
{{- define "archmax.heartbeatProbes" -}}
startupProbe:
  exec:
    command: {{ include "archmax.heartbeatCommand" . }}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
livenessProbe:
  exec:
    command: {{ include "archmax.heartbeatCommand" . }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  exec:
    command: {{ include "archmax.heartbeatCommand" . }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{- define "archmax.heartbeatCommand" -}}
[sh, -c, 'test "$(( $(date +%s) - $(stat -c %Y /run/archmax/heartbeat) ))" -lt 30']
{{- end -}}
