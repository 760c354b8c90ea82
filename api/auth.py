"""Who asks: the key of a request, its scopes, its limits, and the caller the service knows it as."""

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
from api.keys import ApiKey, RateLimit, Scope
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
    """Token buckets by key: `rate` a second, `burst` at once, or the key's own limit.

    Of one process; a fleet's limit is a gateway's matter.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, limit: RateLimit | None = None) -> float:
        """0 when there was a token, else the seconds until there is one."""
        rate, burst = self._rate, self._burst
        if limit is not None:
            rate, burst = limit.requests / limit.seconds, limit.requests
        now = time.monotonic()
        tokens, at = self._held.pop(key, (float(burst), now))
        tokens = min(burst, tokens + (now - at) * rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / rate
        self._held[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return wait


def count_request(api: Api, key: ApiKey | None) -> None:
    """Count a request against its key's rate. Raises: `HttpProblem` (429) for one too many."""
    wait = api.buckets.take("anyone") if key is None else api.buckets.take(key.id, key.rate_limit)
    if wait > 0:
        raise HttpProblem("rate-limited", "this key asks too often", {"retry-after": str(math.ceil(wait))})


async def sent_key(request: Request) -> ApiKey | None:
    """The live key in a request's headers, looked at as the routes do. Raises: `StoreUnavailable`."""
    text = _sent_text(await _BEARER(request), await _HEADER(request))
    return await api_of(request).keys.find(text) if text else None


async def _caller(
    request: Request,
    scope: Scope,
    bearer: HTTPAuthorizationCredentials | None,
    header: str | None,
) -> Caller:
    api = api_of(request)
    key = None if api.settings.auth_disabled else await _key(api, bearer, header)
    # one bucket for all who cannot say who they are would let anyone shut out everyone: those are answered above
    count_request(api, key)
    if key is None:
        return ANYONE
    if not key.allows(scope):
        raise HttpProblem("forbidden", f"this key lacks the scope {scope.value!r}")
    return Caller(f"key:{key.id}", key.name, key.workflows)


async def _key(api: Api, bearer: HTTPAuthorizationCredentials | None, header: str | None) -> ApiKey:
    text = _sent_text(bearer, header)
    key = await api.keys.find(text) if text else None
    if key is None:
        detail = (
            "this key is not known or was revoked" if text else "send a key as Authorization: Bearer <key>"
        )
        raise HttpProblem("unauthenticated", detail, {"www-authenticate": "Bearer"})
    return key


def _sent_text(bearer: HTTPAuthorizationCredentials | None, header: str | None) -> str | None:
    return bearer.credentials if bearer is not None else header


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
