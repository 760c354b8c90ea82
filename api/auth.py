"""Who asks: the key of a request, its scopes, its rate, and the caller the service knows it as."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from api.context import Api, api_of
from api.keys import ApiKey, Scope
from api.problems import HttpProblem
from worker.service import Caller

_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="`Authorization: Bearer <key>`")
_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="apiKey")
_HELD: Final = 10_000

#: which scope each dependency made by `needs` asks for: for the document
SCOPES: Final[dict[Callable[..., object], Scope]] = {}

#: who everybody is when keys are off
ANYONE = Caller("anyone", "local")


class Buckets:
    """Token buckets by key: `rate` a second, `burst` at once. Of one process; a fleet's limit is a gateway's matter."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """0 when there was a token, else the seconds until there is one."""
        now = time.monotonic()
        tokens, at = self._held.pop(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._held[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return wait


async def _caller(
    request: Request,
    scope: Scope,
    bearer: HTTPAuthorizationCredentials | None,
    header: str | None,
) -> Caller:
    api = api_of(request)
    key = None if api.settings.auth_disabled else await _key(api, bearer, header)
    # one bucket for all who cannot say who they are would let anyone shut out everyone: those are answered above
    wait = api.buckets.take(key.id if key is not None else "anyone")
    if wait > 0:
        retry = {"retry-after": str(math.ceil(wait))}
        raise HttpProblem("rate-limited", "this key asks too often", retry)
    if key is None:
        return ANYONE
    if not key.allows(scope):
        raise HttpProblem("forbidden", f"this key lacks the scope {scope.value!r}")
    return Caller(f"key:{key.id}", key.name, key.workflows)


async def _key(api: Api, bearer: HTTPAuthorizationCredentials | None, header: str | None) -> ApiKey:
    text = bearer.credentials if bearer is not None else header
    key = await api.keys.find(text) if text else None
    if key is None:
        detail = (
            "this key is not known or was revoked" if text else "send a key as Authorization: Bearer <key>"
        )
        raise HttpProblem("unauthenticated", detail, {"www-authenticate": "Bearer"})
    return key


def needs(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """A dependency that gives the caller, or refuses with 401, 403 or 429."""

    async def dependency(
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        header: Annotated[str | None, Depends(_HEADER)],
    ) -> Caller:
        return await _caller(request, scope, bearer, header)

    SCOPES[dependency] = scope
    return dependency


Reads = Annotated[Caller, Depends(needs(Scope.READ))]
Enqueues = Annotated[Caller, Depends(needs(Scope.ENQUEUE))]
Decides = Annotated[Caller, Depends(needs(Scope.DECIDE))]
Administers = Annotated[Caller, Depends(needs(Scope.ADMIN))]
