"""The chart's script that brings a workspace from S3, against a real S3 server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.helm import CHART
from tests.support.seaweed import Seaweed, seaweed

__all__ = ["seaweed"]
SCRIPT = CHART / "files" / "fetch_workspace.py"


def fetch(server: Seaweed, prefix: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "ARCHMAX_S3_ENDPOINT_URL": server.endpoint_url,
        "ARCHMAX_S3_REGION": "us-east-1",
        "ARCHMAX_S3_ACCESS_KEY_ID": server.credentials.access_key_id,
        "ARCHMAX_S3_SECRET_ACCESS_KEY": server.credentials.secret_access_key,
    }
    command = [sys.executable, str(SCRIPT), f"s3://{server.bucket}/{prefix}", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


def test_a_workspace_is_copied_as_it_lies_below_the_prefix(seaweed: Seaweed, tmp_path: Path) -> None:
    client = seaweed.client()
    for name, text in (
        ("workflows/a/workflow.yaml", "title: A"),
        ("AGENTS.md", "x"),
        ("skills/s/SKILL.md", ""),
    ):
        client.put_object(Bucket=seaweed.bucket, Key=f"fetch/ws/{name}", Body=text.encode())
    client.put_object(Bucket=seaweed.bucket, Key="fetch/ws-other/AGENTS.md", Body=b"not this one")
    done = fetch(seaweed, "fetch/ws/", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 files\n"
    assert (tmp_path / "workflows/a/workflow.yaml").read_text() == "title: A"
    assert (tmp_path / "AGENTS.md").read_text() == "x"


def test_an_empty_prefix_stops_the_pod_by_name(seaweed: Seaweed, tmp_path: Path) -> None:
    done = fetch(seaweed, "fetch/nothing", tmp_path)
    assert done.returncode != 0
    assert f"there is nothing below s3://{seaweed.bucket}/fetch/nothing" in done.stderr
