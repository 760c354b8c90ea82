"""From an address to a store: `file:///dir`, `s3://bucket/prefix`, `memory:`."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore, StoreConfigurationError

_FORMS = "write file:///dir, s3://bucket/prefix or memory:"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def open_store(
    url: str,
    *,
    fsync: bool = True,
    endpoint_url: str | None = None,
    region: str | None = None,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    sse: str | None = None,
    kms_key_id: str | None = None,
    threads: int = 16,
) -> ObjectStore:
    """The store at `url`. `fsync` is for directories, the rest for S3; what does not apply is ignored.

    Nothing is read, written or connected to yet. Raises: `StoreConfigurationError` naming what is wrong with the
    address or the options.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreConfigurationError(repr(url), f"not an address ({error}): {_FORMS}") from None
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise StoreConfigurationError(_shown(url), f"an address takes no user, query or fragment: {_FORMS}")
    match parts.scheme:
        case "memory" if not parts.netloc and parts.path in ("", "/"):
            return MemoryStore()
        case "file":
            if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
                raise StoreConfigurationError(
                    repr(url), "a directory is named by its whole path: file:///dir"
                )
            folder = unquote(parts.path)
            if "\x00" in folder:
                raise StoreConfigurationError(repr(url), "a directory's name holds no NUL")
            return DirectoryStore(folder, fsync=fsync)
        case "s3":
            if not _BUCKET.fullmatch(parts.netloc):
                raise StoreConfigurationError(
                    repr(url), f"{parts.netloc!r} is no bucket name: s3://bucket/prefix"
                )
            # boto3 takes a third of a second to import, which only stores on S3 need to pay.
            from storage.s3 import S3Credentials, S3Store

            if (access_key_id is None) != (secret_access_key is None):
                raise StoreConfigurationError(repr(url), "an access key id and its secret come together")
            credentials = None
            if access_key_id is not None and secret_access_key is not None:
                credentials = S3Credentials(access_key_id, secret_access_key, session_token)
            match sse:
                case None | "AES256" | "aws:kms" | "aws:kms:dsse":
                    encryption = sse
                case _:
                    problem = f"unknown encryption {sse!r}: 'AES256', 'aws:kms' or 'aws:kms:dsse'"
                    raise StoreConfigurationError(repr(url), problem)
            return S3Store(
                parts.netloc,
                parts.path,
                endpoint_url=endpoint_url,
                region=region,
                credentials=credentials,
                sse=encryption,
                kms_key_id=kms_key_id,
                threads=threads,
            )
        case _:
            raise StoreConfigurationError(repr(url), f"unknown kind of store: {_FORMS}")


def _shown(url: str) -> str:
    """The address up to where a secret could stand."""
    return repr(re.split(r"[?#]|(?<=//)[^/]*@", url, maxsplit=1)[0])
