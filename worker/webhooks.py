"""Webhooks: telling an address that a turn has settled (the `Webhooks` port)."""

from __future__ import annotations

import hashlib
import hmac
import logging

import httpx

from core.jsontext import JsonObject, dumps

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0
SIGNATURE_HEADER = "Archmax-Signature"


class WebhookPoster:
    """Posts outcomes, signed when the webhook carries a secret. At least once; the turn id is the receiver's key."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def post(self, session: str, turn: int, due: JsonObject, outcome: JsonObject) -> bool:
        body = dumps(
            {
                "turnId": f"{session}.{turn}",
                "sessionId": session,
                "outcome": {key: value for key, value in outcome.items() if key != "answer"},
            }
        )
        headers = {"content-type": "application/json", "idempotency-key": f"{session}.{turn}"}
        secret = due.get("secret")
        if secret:
            digest = hmac.new(str(secret).encode(), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE_HEADER] = f"sha256={digest}"
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False)
        try:
            answer = await self._client.post(str(due["url"]), content=body, headers=headers)
        except httpx.HTTPError as error:
            logger.warning(
                "webhook not delivered: %s", type(error).__name__, extra={"action": "webhook_failed"}
            )
            return False
        return answer.is_success

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
