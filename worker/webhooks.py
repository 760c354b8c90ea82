"""Webhooks: telling an address that a turn has settled or parked (the `Webhooks` port).

The settling commit queues them as dues of the turn's end, so none is lost with a worker. An address that does not take
one is tried again by the sweeps, each time later, and after `MAX_ATTEMPTS` the delivery lies under `_webhooks/dead/`. Where
a name leads is looked up here, judged, and connected to as judged: a second look-up could answer otherwise. Redirects are
not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import socket
import time
from typing import Final
from urllib.parse import urlsplit

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.jsontext import JsonObject, dumps, loads
from storage.keys import encode_segment
from storage.objects import ObjectStore, StoreUnavailable
from worker.redis_leases import PREFIX
from worker.settings import FleetSettings

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 5.0
MAX_ATTEMPTS: Final = 10
#: the pause after the first failure; doubled up to an hour. The sweeps' minute is its grain
PAUSE_SECONDS: Final = 45.0
MAX_PAUSE_SECONDS: Final = 3_600.0
SIGNATURE_HEADER: Final = "Archmax-Signature"
MAX_URL_CHARS: Final = 2_048
DEAD: Final = "_webhooks/dead/"


class _Refused(Exception):
    """The target may not be reached; trying again will not help unless its name leads elsewhere."""


def url_problem(url: str, *, allow_private: bool) -> str | None:
    """Why no webhook can go to `url`, or None; as far as it can be told without looking its name up."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "it is no absolute http or https URL"
    if parts.username is not None or parts.password is not None:
        return "it carries credentials"
    if len(url) > MAX_URL_CHARS or not url.isascii() or any(ord(char) <= 32 for char in url):
        return f"it is longer than {MAX_URL_CHARS} characters, or holds blanks or characters to be percent-encoded"
    if port == 0:
        return "it names port 0"
    if allow_private:
        return None
    if parts.hostname == "localhost" or parts.hostname.endswith(".localhost"):
        return "it leads to this machine"
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return None
    return None if _public(address) else "its address is not public"


def signature(secret: str, at_seconds: int, body: bytes) -> str:
    """`t=<epoch seconds>,v1=<hex HMAC-SHA256 of "<t>." + body>`: a receiver refuses what is old or does not match."""
    digest = hmac.new(secret.encode(), f"{at_seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_seconds},v1={digest}"


class WebhookPoster:
    """At least once; the turn id is the receiver's key."""

    def __init__(self, settings: FleetSettings, redis: Redis, store: ObjectStore) -> None:
        self._secret = settings.webhook_secret
        self._allow_private = settings.webhook_allow_private
        self._redis, self._store = redis, store
        self._client: httpx.AsyncClient | None = None

    async def post(self, session: str, turn: int, due: JsonObject, outcome: JsonObject) -> bool:
        turn_id, url = f"{session}.{turn}", str(due["url"])
        try:
            attempts, next_at = await self._tried(turn_id)
            if time.time() < next_at:
                return False
            problem = await self._attempt(url, turn_id, session, outcome)
            if problem is None:
                return True
            attempts += 1
            logger.warning(
                "webhook of turn %s not delivered: %s",
                turn_id,
                problem,
                extra={"action": "webhook_failed", "turn_id": turn_id, "attempts": attempts},
            )
            if attempts < MAX_ATTEMPTS:
                await self._note(turn_id, attempts)
                return False
            await self._bury(turn_id, session, turn, url, problem)
        except (RedisError, OSError, StoreUnavailable) as error:
            logger.warning("webhook put off: %s", error, extra={"action": "webhook_put_off"})
            return False
        except Exception:
            logger.exception("webhook failed", extra={"action": "webhook_failed", "turn_id": turn_id})
            return False
        return True

    async def dead(self, limit: int = 500) -> list[JsonObject]:
        """What was given up. Raises: `StoreUnavailable`."""
        found: list[JsonObject] = []
        async for item in self._store.list(DEAD):
            held = await self._store.get(item.key)
            if held is not None:
                found.append(loads(held.body))
            if len(found) == limit:
                break
        return found

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _attempt(self, url: str, turn_id: str, session: str, outcome: JsonObject) -> str | None:
        """Why it was not taken, in words that repeat nothing of the address; None when it was."""
        if self._secret is None:
            return "no ARCHMAX_WEBHOOK_SECRET is set"
        body = dumps(
            {
                "type": "turn.parked" if outcome.get("kind") == "parked" else "turn.settled",
                "turnId": turn_id,
                "sessionId": session,
                "outcome": {key: value for key, value in outcome.items() if key != "answer"},
            }
        )
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                target, host, name = await self._target(url)
                request = httpx.Request(
                    "POST",
                    target,
                    headers={
                        "host": host,
                        "content-type": "application/json",
                        "idempotency-key": hashlib.sha256(turn_id.encode()).hexdigest(),
                        SIGNATURE_HEADER: signature(self._secret.get_secret_value(), int(time.time()), body),
                    },
                    content=body,
                    extensions={"sni_hostname": name},
                )
                if self._client is None:
                    # No connection is kept: one that was opened for another name must not serve this one.
                    self._client = httpx.AsyncClient(
                        timeout=TIMEOUT_SECONDS,
                        follow_redirects=False,
                        trust_env=False,
                        limits=httpx.Limits(max_connections=100, max_keepalive_connections=0),
                    )
                answer = await self._client.send(request, stream=True)
                await answer.aclose()
                self._client.cookies.clear()
        except _Refused as refused:
            return str(refused)
        except (httpx.HTTPError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__
        return None if answer.is_success else f"it answered {answer.status_code}"

    async def _target(self, url: str) -> tuple[httpx.URL, str, str]:
        """The URL with the very address that was judged, the `Host` header, and the name the certificate must hold.

        Raises: `_Refused`, `OSError` when the name cannot be looked up.
        """
        problem = url_problem(url, allow_private=self._allow_private)
        if problem is not None:
            raise _Refused(problem)
        parsed = httpx.URL(url)
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        found = await asyncio.get_running_loop().getaddrinfo(parsed.host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(item[4][0]).partition("%")[0]) for item in found]
        if not addresses:
            raise _Refused("its name leads nowhere")
        if not self._allow_private and not all(_public(address) for address in addresses):
            raise _Refused("its address is not public")
        return parsed.copy_with(host=str(addresses[0])), parsed.netloc.decode("ascii"), parsed.host

    async def _tried(self, turn_id: str) -> tuple[int, float]:
        held = await self._redis.hmget(_key(turn_id), ["attempts", "next"])
        return int(held[0] or 0), float(held[1] or 0)

    async def _note(self, turn_id: str, attempts: int) -> None:
        pause = min(PAUSE_SECONDS * 2 ** (attempts - 1), MAX_PAUSE_SECONDS)
        await self._redis.hset(
            _key(turn_id), mapping={"attempts": str(attempts), "next": str(time.time() + pause)}
        )
        await self._redis.expire(_key(turn_id), 86_400)

    async def _bury(self, turn_id: str, session: str, turn: int, url: str, problem: str) -> None:
        letter: JsonObject = {
            "turnId": turn_id,
            "url": url,
            "problem": problem,
            "attempts": MAX_ATTEMPTS,
            "at": time.time_ns() // 1_000_000,
        }
        await self._store.put(f"{DEAD}{encode_segment(session)}.{turn:08d}", dumps(letter))
        await self._redis.delete(_key(turn_id))
        logger.error(
            "webhook of turn %s given up", turn_id, extra={"action": "webhook_dead", "turn_id": turn_id}
        )


def _key(turn_id: str) -> str:
    return f"{PREFIX}webhook:{turn_id}"


def _public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return _public(inner)
        if address in _NAT64:
            return _public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast


_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
#: the only IPv6 addresses ever handed out. `is_global` also holds for site-local ones, for NAT64 prefixes of a site's own,
#: and for IPv4 addresses in forms that some translators still know (`::127.0.0.1`, `::ffff:0:127.0.0.1`)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
