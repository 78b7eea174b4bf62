{{- define "watchword.name" -}}
{{- if contains "watchword" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-watchword{{ end }}
{{- end }}

{{- define "watchword.selector" -}}
app.kubernetes.io/name: watchword
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "watchword.labels" -}}
{{ include "watchword.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "watchword.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .tls }}
  scheme: HTTPS
  {{- end }}
timeoutSeconds: 10
{{- end }}

{{- define "watchword.pod" -}}
{{- $shared := eq .Values.store "postgresql" }}
{{- $tls := hasKey .Values.settings "WATCHWORD_TLS_CERT" -}}
metadata:
  labels:
    {{- include "watchword.selector" . | nindent 4 }}
  {{- if or .Values.policyFile .Values.podAnnotations }}
  annotations:
    {{- with .Values.policyFile }}
    checksum/policy-file: {{ sha256sum . }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 45  # five of preStop, 30 of the requests in flight
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ int64 .Values.user }}
    runAsGroup: {{ int64 .Values.user }}
    fsGroup: {{ int64 .Values.user }}
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: watchword
      image: {{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        - name: WATCHWORD_HOST
          value: 0.0.0.0
        - name: WATCHWORD_PORT
          value: "8080"
        - name: WATCHWORD_METRICS_ADDRESS
          value: 0.0.0.0:9090
        - name: WATCHWORD_DATA_DIR
          value: /data
        - name: WATCHWORD_TRUSTED_GROUP
          value: {{ int64 .Values.user | quote }}
        {{- with .Values.publicUrl }}
        - name: WATCHWORD_PUBLIC_URL
          value: {{ . | quote }}
        {{- end }}
        {{- with .Values.secret.name }}
        - name: WATCHWORD_MASTER_KEY_FILE
          value: /run/secrets/watchword/{{ $.Values.secret.masterKey }}
        {{- end }}
        {{- if $shared }}
        - name: WATCHWORD_DATABASE_URL_FILE
          value: /run/secrets/watchword/{{ .Values.secret.databaseUrl }}
        {{- end }}
        {{- if .Values.policyFile }}
        - name: WATCHWORD_POLICY_FILE
          value: /run/watchword/policies.yaml
        {{- end }}
        {{- range $setting, $key := .Values.secret.files }}
        - name: {{ $setting }}
          value: /run/secrets/watchword/{{ $key }}
        {{- end }}
        {{- range $setting, $value := .Values.settings }}
        - name: {{ $setting }}
          value: {{ $value | quote }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8080
        - name: metrics
          containerPort: 9090
      startupProbe:
        {{- include "watchword.probe" (dict "path" "/health/live" "tls" $tls) | nindent 8 }}
        periodSeconds: 2
        failureThreshold: 90
      livenessProbe:
        {{- include "watchword.probe" (dict "path" "/health/live" "tls" $tls) | nindent 8 }}
        periodSeconds: 10
        failureThreshold: 3
      readinessProbe:
        {{- include "watchword.probe" (dict "path" "/health/ready" "tls" $tls) | nindent 8 }}
        periodSeconds: 5
        failureThreshold: 2
      lifecycle:
        preStop:  # until no proxy sends requests here any more
          exec:
            command: [sleep, "5"]
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: data
          mountPath: /data
        - name: tmp
          mountPath: /tmp
        {{- if .Values.secret.name }}
        - name: secret
          mountPath: /run/secrets/watchword
          readOnly: true
        {{- end }}
        {{- if .Values.policyFile }}
        - name: policy-file
          mountPath: /run/watchword
          readOnly: true
        {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.affinity }}
  affinity:
    {{- toYaml .Values.affinity | nindent 4 }}
  {{- else if $shared }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "watchword.selector" . | nindent 16 }}
  {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if $shared }}
    - name: data
      emptyDir: {}
    {{- else if .Values.persistence.existingClaim }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ .Values.persistence.existingClaim }}
    {{- end }}
    {{- with .Values.secret.name }}
    - name: secret
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- if .Values.policyFile }}
    - name: policy-file
      configMap:
        name: {{ include "watchword.name" . }}
        defaultMode: 0440
    {{- end }}
{{- end }}
