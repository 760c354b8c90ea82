"""API keys: made once, kept as digests, scoped, bound to workflows, limited, listed and revoked.

A key is `amx_<id>_<secret>`. Its record is the object `_apikeys/<id>`; the store is all there is, so every API process of a
fleet knows the same keys, and a revoked one is refused everywhere within `FRESH_SECONDS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final, Literal

from core.errors import ArchmaxError
from core.jsontext import JsonObject, dumps, loads
from engine.spec.paths import slug_ok
from storage.objects import ObjectStore

KEYS: Final = "_apikeys/"
FRESH_SECONDS: Final = 5.0
_HELD: Final = 10_000
_KEY: Final = re.compile(r"amx_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
MIN_FIXED_CHARS: Final = 24
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})(/s|/min)?")


class Scope(StrEnum):
    READ = "read"  #: turns, sessions, events, files, workflows
    ENQUEUE = "enqueue"  #: start, send, deliver, cancel own work
    DECIDE = "decide"  #: decisions and replies
    ADMIN = "admin"  #: everything, deletion and operator reads included


class KeyRefused(ArchmaxError):
    """A key that cannot be made or read from the settings."""

    code: ClassVar[str] = "api-key"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"API key: {self.problem}"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests at once, and as many again spread over `seconds`. Written `5/s` or `30/min`."""

    requests: int
    seconds: Literal[1, 60]

    @classmethod
    def parse(cls, text: str) -> RateLimit:
        """Without a unit it is a second. Raises: `KeyRefused`."""
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise KeyRefused(f"{text!r} is no rate; write 5/s or 30/min")
        return cls(int(match[1]), 60 if match[2] == "/min" else 1)

    def __str__(self) -> str:
        return f"{self.requests}/{'min' if self.seconds == 60 else 's'}"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """`workflows` None: all of them. The secret is nowhere; `digest` is its SHA-256 in hexadecimal.

    `rate_limit` and `max_body_bytes` take the place of what the settings say; None: the settings hold.
    """

    id: str
    name: str
    digest: str
    scopes: frozenset[Scope]
    workflows: frozenset[str] | None
    created_at: int
    revoked_at: int | None = None
    rate_limit: RateLimit | None = None
    max_body_bytes: int | None = None

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def within(self, workflows: frozenset[str] | None) -> bool:
        """Whether it reaches nothing beyond `workflows`; None is all of them."""
        return workflows is None or (self.workflows is not None and self.workflows <= workflows)

    def to_json(self) -> JsonObject:
        """What a list shows."""
        shown: JsonObject = {
            "id": self.id,
            "name": self.name,
            "scopes": sorted(scope.value for scope in self.scopes),
            "workflows": None if self.workflows is None else sorted(self.workflows),
            "rateLimit": None if self.rate_limit is None else str(self.rate_limit),
            "maxBodyBytes": self.max_body_bytes,
            "createdAt": self.created_at,
        }
        if self.revoked_at is not None:
            shown["revokedAt"] = self.revoked_at
        return shown

    def body(self) -> bytes:
        return dumps({"v": 1, **self.to_json(), "digest": self.digest})

    @classmethod
    def read(cls, body: bytes) -> ApiKey:
        o = loads(body)
        rate = o.get("rateLimit")
        return cls(
            id=o["id"],
            name=o["name"],
            digest=o["digest"],
            scopes=frozenset(Scope(scope) for scope in o["scopes"]),
            workflows=None if o["workflows"] is None else frozenset(o["workflows"]),
            created_at=o["createdAt"],
            revoked_at=o.get("revokedAt"),
            rate_limit=None if rate is None else RateLimit.parse(rate),
            max_body_bytes=o.get("maxBodyBytes"),
        )


def parse_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Raises: `KeyRefused`."""
    try:
        scopes = frozenset(Scope(word.strip()) for word in words if word.strip())
    except ValueError as error:
        known = ", ".join(scope.value for scope in Scope)
        raise KeyRefused(f"{error.args[0]}; scopes are {known}") from None
    if not scopes:
        raise KeyRefused("it needs a scope")
    return scopes


def parse_workflows(slugs: Iterable[str] | None) -> frozenset[str] | None:
    """Raises: `KeyRefused`."""
    if slugs is None:
        return None
    given = frozenset(slug.strip() for slug in slugs if slug.strip())
    for slug in given:
        if not slug_ok(slug):
            raise KeyRefused(f"{slug!r} is no workflow's slug")
    return given or None


def fixed_keys(text: str) -> dict[str, ApiKey]:
    """The keys of `ARCHMAX_API_KEYS` by digest. Raises: `KeyRefused`; never shows a key."""
    found: dict[str, ApiKey] = {}
    for number, entry in enumerate((part.strip() for part in text.split(",") if part.strip()), 1):
        key, _, rights = entry.partition("=")
        if len(key) < MIN_FIXED_CHARS:
            raise KeyRefused(
                f"entry {number} of ARCHMAX_API_KEYS has fewer than {MIN_FIXED_CHARS} characters"
            )
        scopes, at, workflows = rights.partition("@")
        digest = _digest(key)
        found[digest] = ApiKey(
            id=f"fixed-{digest[:12]}",
            name=f"ARCHMAX_API_KEYS[{number}]",
            digest=digest,
            scopes=parse_scopes(scopes.split("+")) if scopes else frozenset(Scope),
            workflows=parse_workflows(workflows.split("+")) if at else None,
            created_at=0,
        )
    return found


class KeyStore:
    """The keys of one fleet."""

    def __init__(self, store: ObjectStore, fixed: str | None = None) -> None:
        self._store = store
        self._fixed = fixed_keys(fixed) if fixed else {}
        self._held: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()

    async def create(
        self,
        name: str,
        scopes: Iterable[str],
        workflows: Iterable[str] | None = None,
        *,
        rate_limit: RateLimit | None = None,
        max_body_bytes: int | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and its secret text, which is never shown again. Raises: `KeyRefused`."""
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise KeyRefused("its name is 1 to 100 printable characters")
        if max_body_bytes is not None and max_body_bytes < 1:
            raise KeyRefused("its longest body is at least one byte")
        identity, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        text = f"amx_{identity}_{secret}"
        key = ApiKey(
            id=identity,
            name=name.strip(),
            digest=_digest(text),
            scopes=parse_scopes(scopes),
            workflows=parse_workflows(workflows),
            created_at=time.time_ns() // 1_000_000,
            rate_limit=rate_limit,
            max_body_bytes=max_body_bytes,
        )
        await self._store.put(f"{KEYS}{identity}", key.body(), if_absent=True)
        return key, text

    async def every(self) -> list[ApiKey]:
        """Revoked ones included, oldest first."""
        found: list[ApiKey] = []
        async for item in self._store.list(KEYS):
            held = await self._store.get(item.key)
            if held is not None:
                found.append(ApiKey.read(held.body))
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, id_or_name: str) -> list[ApiKey]:
        """Revoke the key of that id, or every one of that name. Returns those revoked now."""
        revoked: list[ApiKey] = []
        for key in await self.every():
            if key.revoked_at is None and id_or_name in (key.id, key.name):
                dead = replace(key, revoked_at=time.time_ns() // 1_000_000)
                await self._store.put(f"{KEYS}{key.id}", dead.body())
                self._held.pop(key.id, None)
                revoked.append(dead)
        return revoked

    async def find(self, text: str) -> ApiKey | None:
        """The live key behind what a request carries. Raises: `StoreUnavailable`."""
        digest = _digest(text)
        fixed = self._fixed.get(digest)
        if fixed is not None and hmac.compare_digest(fixed.digest, digest):
            return fixed
        match = _KEY.fullmatch(text)
        if match is None:
            return None
        key = await self._record(match[1])
        if key is None or key.revoked_at is not None or not hmac.compare_digest(key.digest, digest):
            return None
        return key

    async def live(self, identity: str) -> ApiKey | None:
        """The key of that id unless it was revoked: for what was once shown its text. Raises: `StoreUnavailable`."""
        fixed = next((key for key in self._fixed.values() if key.id == identity), None)
        if fixed is not None:
            return fixed
        key = await self._record(identity)
        return None if key is None or key.revoked_at is not None else key

    async def _record(self, identity: str) -> ApiKey | None:
        held = self._held.get(identity)
        if held is not None and time.monotonic() - held[0] < FRESH_SECONDS:
            return held[1]
        found = await self._store.get(f"{KEYS}{identity}")
        key = ApiKey.read(found.body) if found is not None else None
        self._held[identity] = (time.monotonic(), key)
        self._held.move_to_end(identity)
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
