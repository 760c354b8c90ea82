"""The object store on S3, or any server that speaks it with conditional writes.

boto3 is synchronous: requests run in a pool of threads, as many as connections; waiting between tries does not occupy
one. botocore's own retries are off, because a silent retry of a conditional write turns "I wrote it" into "somebody
did". Ours, after any reply that is missing or says nothing:

* reads, listings, deletions and unconditional writes are repeated;
* a conditional write is looked for: the object with our bytes means stored, another's means refused, the state
  before means try again. It is then returned as `EtagAfterLoss`.

A conflict on the very first try is answered as such. Not supported: directory buckets (S3 Express), whose listings
have no order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import boto3
from botocore.config import Config

from storage.keys import MAX_KEY, check_key, check_prefix
from storage.objects import (
    EtagAfterLoss,
    InvalidKey,
    ListedObject,
    StoreConfigurationError,
    StoredObject,
    StoreUnavailable,
)
from storage.s3errors import REQUEST_ERRORS, Failure, Meaning, failure_of, failure_of_code

T = TypeVar("T")

ServerSideEncryption: TypeAlias = Literal["AES256", "aws:kms", "aws:kms:dsse"]

_BATCH = 1000
_BACKOFF_FIRST_SECONDS = 0.1
_BACKOFF_MOST_SECONDS = 2.0
_CHECK_SECONDS = 3.0
#: boto3 sessions are not safe to share while they make clients.
_MAKING_CLIENTS = threading.Lock()
#: S3 allows 1,024 bytes for prefix and key.
_MAX_PREFIX = 1024 - MAX_KEY


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Without these, botocore looks where it always does: environment, shared files, the machine's role."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class S3Store:
    """Objects of `bucket` below `prefix`.

    `endpoint_url` is for servers other than AWS; their buckets are addressed by path. `sse` asks for server-side
    encryption, with `kms_key_id` for the two KMS kinds. `threads` bounds requests under way. A request whose answer
    is missing or asks for patience is repeated until `retry_seconds` have passed since the first.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        credentials: S3Credentials | None = None,
        sse: ServerSideEncryption | None = None,
        kms_key_id: str | None = None,
        threads: int = 16,
        connect_timeout_seconds: float = 3.0,
        read_timeout_seconds: float = 10.0,
        retry_seconds: float = 15.0,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self.name = f"s3://{bucket}/{self._prefix}" + (f" at {endpoint_url}" if endpoint_url else "")
        try:
            check_prefix(self._prefix)
        except InvalidKey as error:
            raise StoreConfigurationError(self.name, f"the prefix {error.problem}") from None
        if len(self._prefix) > _MAX_PREFIX:
            raise StoreConfigurationError(self.name, f"the prefix is longer than {_MAX_PREFIX} bytes")
        if kms_key_id is not None and sse not in ("aws:kms", "aws:kms:dsse"):
            raise StoreConfigurationError(
                self.name, "a KMS key needs the encryption 'aws:kms' or 'aws:kms:dsse'"
            )
        self._endpoint_url, self._region, self._credentials = endpoint_url, region, credentials
        self._written_with = _encryption(sse, kms_key_id)
        self._retry_seconds = retry_seconds
        self._config = Config(
            signature_version="s3v4",
            connect_timeout=connect_timeout_seconds,
            read_timeout=read_timeout_seconds,
            max_pool_connections=threads,
            retries={"total_max_attempts": 1, "mode": "standard"},
            tcp_keepalive=True,
            s3={"addressing_style": "path" if endpoint_url else "auto"},
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="s3-store")
        self._client: Any = None
        #: requests sent, by operation, repetitions included
        self.requests: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"S3Store({self.name!r})"

    async def get(self, key: str) -> StoredObject | None:
        return await self._get(key, _Patience("get", check_key(key), self._retry_seconds))

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        check_key(key)
        if if_absent and if_match is not None:
            raise ValueError("a write takes one condition: if_absent or if_match")
        patience = _Patience("put", key, self._retry_seconds)
        return await self._put(key, body, if_absent=if_absent, if_match=if_match, patience=patience)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        """Raises `StoreUnavailable` also when the server's pages do not move on."""
        request: dict[str, Any] = {"Prefix": self._prefix + check_prefix(prefix), "MaxKeys": _BATCH}
        if check_prefix(after or ""):
            request["StartAfter"] = f"{self._prefix}{after}"
        while True:
            page = await self._repeated(
                "list", prefix, lambda s3: s3.list_objects_v2(Bucket=self._bucket, **request)
            )
            for item in page.get("Contents", ()):
                # Others may keep things below our prefix whose names are not keys: a console's folder markers.
                key = item["Key"][len(self._prefix) :]
                with contextlib.suppress(InvalidKey):
                    yield ListedObject(check_key(key), item["Size"], _milliseconds(item["LastModified"]))
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == request.get("ContinuationToken"):
                raise StoreUnavailable("list", prefix, "the server's pages do not move on")
            request.pop("StartAfter", None)
            request["ContinuationToken"] = token

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = [check_key(key) for key in keys]
        for start in range(0, len(wanted), _BATCH):
            await self._delete(wanted[start : start + _BATCH])

    async def check(self) -> None:
        """Write, refuse and remove a probe: what a process asks before it relies on this store.

        Raises: `StoreConfigurationError` with one line for a missing bucket, bad credentials or permissions, a wrong
        clock, an endpoint that does not answer, or a server without conditional writes.
        """
        key = f"_probe/{uuid.uuid4().hex}"

        async def put(body: str, **condition: Any) -> str | None:
            patience = _Patience("put", key, _CHECK_SECONDS)
            return await self._put(key, f"{body} {key}".encode(), patience=patience, **condition)

        try:
            await put("first", if_absent=True)
            twice = await put("second", if_absent=True)
            unmatched = await put("third", if_match='"00000000000000000000000000000000"')
            await self._delete([key])
        except StoreUnavailable as error:
            raise StoreConfigurationError(self.name, error.problem) from error
        if twice is not None or unmatched is not None:
            raise StoreConfigurationError(
                self.name, "the server ignores the conditions of conditional writes"
            )

    async def close(self) -> None:
        self._pool.shutdown(wait=False)
        if self._client is not None:
            self._client.close()

    # Operations with their repetitions

    async def _get(self, key: str, patience: _Patience) -> StoredObject | None:
        def request(s3: Any) -> StoredObject:
            answer = s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
            with contextlib.closing(answer["Body"]) as body:
                return StoredObject(body.read(), answer["ETag"], _milliseconds(answer["LastModified"]))

        while True:
            try:
                return await self._once("get", request)
            except Failure as failure:
                if failure.meaning is Meaning.MISSING:
                    return None
                await patience.after(self._worth_repeating(failure))

    async def _put(
        self,
        key: str,
        body: bytes,
        *,
        patience: _Patience,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> str | None:
        condition: dict[str, str] = {}
        if if_absent:
            condition["IfNoneMatch"] = "*"
        elif if_match is not None:
            condition["IfMatch"] = if_match

        def request(s3: Any) -> str:
            named = {"Bucket": self._bucket, "Key": self._prefix + key}
            return s3.put_object(**named, Body=body, **condition, **self._written_with)["ETag"]

        repeated = False
        while True:
            try:
                etag = await self._once("put", request)
            except Failure as failure:
                refused = failure.meaning is Meaning.REFUSED
                if refused or (failure.meaning is Meaning.MISSING and if_match is not None):
                    return await self._mine(key, body) if repeated else None
                await patience.after(self._worth_repeating(failure))
                repeated = True
                if condition and failure.meaning is Meaning.UNKNOWN:
                    found = await self._get(key, patience)
                    if found is not None and found.body == body:
                        return EtagAfterLoss(found.etag)
                    if (found.etag if found is not None else None) != if_match:
                        return None
            else:
                return EtagAfterLoss(etag) if repeated and condition else etag

    async def _mine(self, key: str, body: bytes) -> str | None:
        """The etag if an earlier try of ours is what refused this one."""
        found = await self.get(key)
        return EtagAfterLoss(found.etag) if found is not None and found.body == body else None

    async def _delete(self, keys: Sequence[str]) -> None:
        patience = _Patience("delete", keys[0], self._retry_seconds)
        while keys:
            try:
                answer = await self._once("delete", self._deletion(keys))
            except Failure as failure:
                await patience.after(self._worth_repeating(failure))
                continue
            keys, failure = self._not_deleted(answer.get("Errors", ()))
            if failure is not None:
                await patience.after(failure)

    def _deletion(self, keys: Sequence[str]) -> Callable[[Any], Any]:
        named = {"Objects": [{"Key": self._prefix + key} for key in keys], "Quiet": True}
        return lambda s3: s3.delete_objects(Bucket=self._bucket, Delete=named)

    def _not_deleted(self, errors: Iterable[dict[str, str]]) -> tuple[Sequence[str], Failure | None]:
        """The keys of a batch that are still there, and what the server said of the last of them."""
        left: dict[str, Failure] = {}
        for error in errors:
            failure = failure_of_code(error.get("Code", ""), error.get("Message", ""), 0)
            if failure.meaning is not Meaning.MISSING:
                left[error.get("Key", "")[len(self._prefix) :]] = self._worth_repeating(failure)
        return tuple(left), next(reversed(left.values()), None)

    async def _repeated(self, operation: str, key: str, request: Callable[[Any], T]) -> T:
        patience = _Patience(operation, key, self._retry_seconds)
        while True:
            try:
                return await self._once(operation, request)
            except Failure as failure:
                await patience.after(self._worth_repeating(failure))

    def _worth_repeating(self, failure: Failure) -> Failure:
        if failure.meaning in (Meaning.NOT_DONE, Meaning.UNKNOWN):
            return failure
        raise StoreConfigurationError(self.name, failure.problem) from failure.__cause__

    # One request

    async def _once(self, operation: str, request: Callable[[Any], T]) -> T:
        """Send one request. Raises: `Failure`."""
        self.requests[operation] += 1
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._in_thread, request)

    def _in_thread(self, request: Callable[[Any], T]) -> T:
        try:
            return request(self._connected())
        except REQUEST_ERRORS as error:
            raise failure_of(error) from error

    def _connected(self) -> Any:
        """The client: one for all threads, made by the first to need it (150 ms, so never on the event loop)."""
        with _MAKING_CLIENTS:
            if self._client is None:
                try:
                    self._client = self._connect()
                except ValueError as error:  # botocore's word for a malformed endpoint
                    raise Failure(Meaning.CONFIGURATION, str(error)) from error
            return self._client

    def _connect(self) -> Any:
        keys = self._credentials
        client = _session().client(
            "s3",
            endpoint_url=self._endpoint_url,
            region_name=self._region,
            aws_access_key_id=keys.access_key_id if keys else None,
            aws_secret_access_key=keys.secret_access_key if keys else None,
            aws_session_token=keys.session_token if keys else None,
            config=self._config,
        )
        client.meta.events.register_last("before-call.s3", _send_at_once)
        return client


class _Patience:
    """Waits between tries, longer each time and never in step with others, until its time is over."""

    def __init__(self, operation: str, key: str, seconds: float) -> None:
        self._operation, self._key = operation, key
        self._ends = time.monotonic() + seconds
        self._most = _BACKOFF_FIRST_SECONDS

    async def after(self, failure: Failure) -> None:
        """Raises: `StoreUnavailable` when there is no time for another try."""
        pause = random.uniform(0, self._most)
        self._most = min(self._most * 2, _BACKOFF_MOST_SECONDS)
        if time.monotonic() + pause > self._ends:
            raise StoreUnavailable(self._operation, self._key, failure.problem) from failure
        await asyncio.sleep(pause)


@functools.cache
def _session() -> Any:
    """Holds the parsed service description, 150 ms of work, for the stores of this process."""
    return boto3.session.Session()


def _send_at_once(params: dict[str, Any], **_: Any) -> None:
    """Take out `Expect: 100-continue`, which botocore sends with every body.

    It costs a round trip per write, and a whole second where a proxy does not answer it. Our bodies are small.
    """
    params["headers"].pop("Expect", None)


def _encryption(sse: ServerSideEncryption | None, kms_key_id: str | None) -> dict[str, Any]:
    if sse is None:
        return {}
    asked: dict[str, Any] = {"ServerSideEncryption": sse}
    if sse == "aws:kms":
        asked["BucketKeyEnabled"] = True  # one KMS call per bucket key instead of one per object
    if kms_key_id is not None:
        asked["SSEKMSKeyId"] = kms_key_id
    return asked


def _milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
