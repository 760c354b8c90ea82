"""Signing in: an API key is shown once, and a random cookie stands for it afterwards.

Redis holds, under the digest of the cookie's token, which key it stands for, and forgets it after `SIGNED_IN_SECONDS`. The
key itself is kept nowhere; whether it still lives and what it may is asked anew with every request, so a revoked key's pages
end within `api.keys.FRESH_SECONDS`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import Response

from api.auth import ANYONE, count_request
from api.context import api_of
from api.keys import ApiKey, KeyStore, Scope
from api.problems import HttpProblem
from core.errors import ArchmaxError
from worker.redis_leases import PREFIX
from worker.service import Caller

SIGNED_IN_SECONDS: Final = 12 * 3600
#: failed sign-ins of one address within `TRY_SECONDS`
MAX_TRIES: Final = 10
TRY_SECONDS: Final = 60
#: fields and bytes of a form
MAX_FIELDS: Final = 12
_SEED_CHARS: Final = 43
_SESSION: Final = "archmax-ui"
_VISIT: Final = "archmax-ui-visit"


class SignInNeeded(ArchmaxError):
    """Nobody is signed in: the visitor is sent to the sign-in page and comes back to `target`."""

    code = "unauthenticated"

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target

    def __str__(self) -> str:
        return "sign in first"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page. `seed` is the secret cookie that form tokens are made of."""

    caller: Caller
    seed: str
    key: ApiKey | None = None

    @property
    def name(self) -> str:
        return self.caller.name

    def may(self, scope: Scope) -> bool:
        """Without keys (on a loopback address only) everybody may everything."""
        return self.key is None or self.key.allows(scope)

    @property
    def may_decide(self) -> bool:
        return self.may(Scope.DECIDE)

    @property
    def may_send(self) -> bool:
        return self.may(Scope.ENQUEUE)

    def require(self, scope: Scope) -> None:
        """Raises: `HttpProblem` (403)."""
        if not self.may(scope):
            raise HttpProblem("forbidden", f"the key {self.name!r} lacks the scope {scope.value!r}")

    def form_token(self, purpose: str) -> str:
        """The token of one form: another form's, or another visitor's, does not fit."""
        return form_token(self.seed, purpose)


class SignIns:
    """The signed-in browsers of one fleet."""

    def __init__(self, redis: Redis, keys: KeyStore) -> None:
        self._redis, self._keys = redis, keys

    async def begin(self, key: ApiKey) -> str:
        """A new token for the cookie; never one that a visitor brought along."""
        token = secrets.token_urlsafe(32)
        await self._redis.set(_place(token), key.id, ex=SIGNED_IN_SECONDS)
        return token

    async def find(self, token: str) -> ApiKey | None:
        """The live key a cookie stands for."""
        identity = await self._redis.get(_place(token))
        return None if identity is None else await self._keys.live(str(identity))

    async def end(self, token: str) -> None:
        await self._redis.delete(_place(token))

    async def tried(self, address: str) -> None:
        """Count an attempt before its key is looked at. Raises: `HttpProblem` (429) for one too many."""
        place = f"{PREFIX}ui:tries:{address}"
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.set(place, 0, ex=TRY_SECONDS, nx=True)
        pipeline.incr(place)
        pipeline.ttl(place)
        _, tries, left = await pipeline.execute()
        if int(tries) > MAX_TRIES:
            retry = {"retry-after": str(max(int(left), 1))}
            raise HttpProblem("rate-limited", "too many attempts to sign in; wait a minute", retry)

    async def forgive(self, address: str) -> None:
        """Somebody at that address has a key."""
        await self._redis.delete(f"{PREFIX}ui:tries:{address}")


def signins_of(request: Request) -> SignIns:
    api = api_of(request)
    return SignIns(api.service.client.redis, api.keys)


async def signed_in_key(request: Request) -> ApiKey | None:
    """The live key that a request's cookie stands for. Raises: `RedisError`, `StoreUnavailable`."""
    token = session_token(request)
    return await signins_of(request).find(token) if token else None


async def visitor_of(request: Request) -> Visitor:
    """Who asks for a page; everyone who may see pages may read. Raises: `SignInNeeded`, `HttpProblem` (403, 429)."""
    api = api_of(request)
    if api.settings.auth_disabled:
        return Visitor(ANYONE, visit_seed(request))
    key = await signed_in_key(request)
    if key is None:
        raise SignInNeeded(_address(request) if request.method == "GET" else "/ui")
    count_request(api, key)
    visitor = Visitor(Caller(f"key:{key.id}", key.name, key.workflows), session_token(request), key)
    visitor.require(Scope.READ)
    return visitor


async def checked_form(request: Request, seed: str, purpose: str) -> dict[str, str]:
    """The fields of a form that one of our own pages gave to this very visitor. Raises: `HttpProblem` (403)."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")
    if site not in ("same-origin", "none") or foreign:
        raise HttpProblem("forbidden", "this form was sent from another site")
    form = await request.form(max_files=0, max_fields=MAX_FIELDS)
    fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    given = fields.pop("csrf", "").encode("utf-8", "replace")
    if not hmac.compare_digest(given, form_token(seed, purpose).encode()):
        raise HttpProblem("forbidden", "this form is too old or not yours; load its page again")
    return fields


def form_token(seed: str, purpose: str) -> str:
    return hmac.new(seed.encode("utf-8", "replace"), purpose.encode("utf-8", "replace"), "sha256").hexdigest()


def visit_seed(request: Request) -> str:
    """The secret of a browser that has not signed in; a new one, to be kept by `begin_visit`, when it has none."""
    held = request.cookies.get(cookie_name(request, _VISIT), "")
    return held if len(held) >= _SEED_CHARS else secrets.token_urlsafe(32)


def session_token(request: Request) -> str:
    return request.cookies.get(cookie_name(request, _SESSION), "")


def begin_visit(request: Request, response: Response, seed: str) -> None:
    """Keep the secret that this page's form tokens are made of."""
    if request.cookies.get(cookie_name(request, _VISIT)) != seed:
        _set(request, response, _VISIT, seed, SIGNED_IN_SECONDS)


def begin_session(request: Request, response: Response, token: str) -> None:
    _set(request, response, _SESSION, token, SIGNED_IN_SECONDS)


def end_session(request: Request, response: Response) -> None:
    _set(request, response, _SESSION, "", 0)


def cookie_name(request: Request, name: str) -> str:
    """Under https a browser takes a `__Host-` cookie from this very host alone, not from a neighbour of its domain."""
    return f"__Host-{name}" if is_https(request) else name


def is_https(request: Request) -> bool:
    """Whether the browser speaks https to us or to a proxy before us; who lies about it only locks up its own cookie."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return request.url.scheme == "https" or forwarded == "https"


def safe_target(target: str) -> str:
    """An address of these pages to go to after signing in; anything else leads to the first page."""
    inside = target == "/ui" or target.startswith(("/ui/", "/ui?"))
    plain = target.isascii() and target.isprintable() and "\\" not in target and len(target) <= 2_000
    return target if inside and plain and not target.startswith("/ui/login") else "/ui"


def _set(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
    response.set_cookie(
        cookie_name(request, name),
        value,
        max_age=seconds,
        path="/",
        secure=is_https(request),
        httponly=True,
        samesite="strict",
    )


def _place(token: str) -> str:
    return f"{PREFIX}ui:session:{hashlib.sha256(token.encode('utf-8', 'replace')).hexdigest()}"


def _address(request: Request) -> str:
    """Path and query as they were sent."""
    query = request.url.query
    return safe_target(request.scope["path"] + (f"?{query}" if query else ""))
