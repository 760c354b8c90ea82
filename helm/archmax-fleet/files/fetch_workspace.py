"""Copies a workspace from S3 into an empty folder before the fleet starts: fetch_workspace.py s3://bucket/prefix /folder."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3


def fetch(url: str, folder: Path) -> int:
    """How many files there were. Raises: `SystemExit` when there is none, or one would land outside `folder`."""
    place = urlsplit(url)
    prefix = place.path.strip("/")
    prefix = f"{prefix}/" if prefix else ""
    client = boto3.client(
        "s3",
        endpoint_url=os.environ.get("ARCHMAX_S3_ENDPOINT_URL") or None,
        region_name=os.environ.get("ARCHMAX_S3_REGION") or None,
        aws_access_key_id=os.environ.get("ARCHMAX_S3_ACCESS_KEY_ID") or None,
        aws_secret_access_key=os.environ.get("ARCHMAX_S3_SECRET_ACCESS_KEY") or None,
    )
    count = 0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=place.netloc, Prefix=prefix):
        for item in page.get("Contents", ()):
            name = item["Key"].removeprefix(prefix)
            if not name or name.endswith("/"):
                continue
            target = (folder / name).resolve()
            if not target.is_relative_to(folder.resolve()):
                raise SystemExit(f"{item['Key']!r} would land outside the workspace")
            target.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(place.netloc, item["Key"], str(target))
            count += 1
    if not count:
        raise SystemExit(f"there is nothing below {url}")
    return count


if __name__ == "__main__":
    print(f"{fetch(sys.argv[1], Path(sys.argv[2]))} files")
