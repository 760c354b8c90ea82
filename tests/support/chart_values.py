"""The values the chart is rendered with, by what they are for."""

from __future__ import annotations

from typing import Any

#: every printable ASCII character that some layer reads as its own: YAML, shell, URL, Go template, Redis configuration
NASTY = """p#a$s%s'w"o\\r d&+/:@?=;{{ .Values }}`|<>[]^~*!"""
#: what may stand in a basic-auth password: no comma, since Flower separates users by it
NASTY_AUTH = f"admin:{NASTY}"

EVERYTHING: dict[str, Any] = {
    "fullnameOverride": "everything",
    "image": {"digest": f"sha256:{'a' * 64}", "pullSecrets": ["registry"]},
    "workspace": {"source": "s3", "s3": {"url": "s3://bucket/workspace"}},
    "store": {
        "url": "s3://bucket/sessions",
        "s3": {
            "endpointUrl": "https://s3.example.com",
            "region": "eu-central-1",
            "sse": "aws:kms",
            "kmsKeyId": "key",
        },
    },
    "secrets": {
        "modelApiKey": {"value": NASTY},
        "s3AccessKeyId": {"value": "AKIA"},
        "s3SecretAccessKey": {"value": NASTY},
        "apiKeys": {"value": "k" * 24 + "=read"},
        "webhookSecret": {"value": NASTY},
        "flowerBasicAuth": {"value": NASTY_AUTH},
    },
    "redis": {"password": NASTY},
    "model": {"name": "openai:gpt-x", "apiBaseUrl": "https://models.example.com/v1"},
    "settings": {"event_stream_seconds": 10_000_000, "recursion_limit": 500, "store_fsync": False},
    "extraEnv": [{"name": "ANTHROPIC_API_KEY", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}],
    "api": {"autoscaling": {"enabled": True}, "service": {"type": "NodePort"}},
    "workers": {
        "pools": [
            {"name": "default", "workflows": ["!slow", "!batch-*"]},
            {
                "name": "slow",
                "workflows": ["slow", "batch-*"],
                "concurrency": 20,
                "autoscaling": {"mode": "keda", "minReplicas": 0, "queueAgeSeconds": 2.5},
            },
            {"name": "hpa", "workflows": ["mail"], "autoscaling": {"mode": "hpa"}},
        ]
    },
    "flower": {"urlPrefix": "/ops/flower/"},
    "ingress": {"enabled": True, "flower": True, "tlsSecret": "tls", "className": "nginx"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}},
    "networkPolicy": {
        "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": {"restrict": True, "extra": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
    },
    "metrics": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "alerts": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "tracing": {"endpoint": "http://otel:4318", "sampleRatio": 0.1},
    "pod": {
        "annotations": {"a": "b"},
        "labels": {"team": "x"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
    },
}

MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "smallest": {
        "flower": {"enabled": False},
        "beat": {"enabled": False},
        "metrics": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False},
        "pod": {"spread": False},
    },
    "external redis by value": {
        "secrets": {"redisUrl": {"value": "rediss://u:p%40@redis.example.com:6380/1"}}
    },
    "external redis by secret": {"secrets": {"redisUrl": {"existingSecret": "mine", "key": "url"}}},
    "s3 by role": {"store": {"url": "s3://bucket", "s3": {"region": "eu-west-1"}}},
    "s3 by secret": {
        "store": {"url": "s3://bucket/a/b"},
        "secrets": {
            "s3AccessKeyId": {"existingSecret": "aws", "key": "id"},
            "s3SecretAccessKey": {"existingSecret": "aws", "key": "secret"},
        },
    },
    "workspace on a volume": {
        "workspace": {"source": "volume", "volume": {"existingClaim": "ws", "subPath": "team"}},
        "store": {"volume": {"existingClaim": "sessions"}},
    },
    "workspace from another image": {
        "workspace": {"imageReference": "registry/workspace:1", "path": "/srv/ws"}
    },
    "secrets of one's own": {
        "secrets": {
            name: {"existingSecret": "mine", "key": name}
            for name in ("modelApiKey", "apiKeys", "webhookSecret", "flowerBasicAuth", "redisUrl")
        }
    },
}

#: how a prefix of Flower is written → the path it means
PREFIXES = {"": "", "/": "", "flower": "/flower", "/a/b": "/a/b", "/a/b/": "/a/b"}
