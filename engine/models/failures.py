"""What a model's error means: its kind, whether trying again may help, and one line to say it without secrets.

Providers' errors share no base class, so they are told apart by what all of them carry: an HTTP status, or the name
of a class among their bases. No provider's package is imported for it.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import SecretStr
from typing_extensions import override

from engine.models.errors import CallFailure, ScriptExhausted

MAX_PROBLEM_CHARS: Final = 500

_TIMEOUTS = frozenset(
    {"TimeoutError", "APITimeoutError", "TimeoutException", "ConnectTimeoutError", "ReadTimeoutError"}
)
_CONNECTIONS = frozenset(
    {
        "ConnectionError",
        "APIConnectionError",
        "TransportError",
        "EndpointConnectionError",
        "ConnectionClosedError",
    }
)
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|key|gsk|xai)-[A-Za-z0-9_\-*]{6,}|(?i:bearer)\s+\S+|\bBasic\s+(?=\S*[0-9=])[A-Za-z0-9+/]{8,}=*|\bAKIA[0-9A-Z]{12,}"
)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


class AnswerTooLarge(ValueError):
    """The model's answer passed the limit, in characters."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    @override
    def __str__(self) -> str:
        return f"the answer is longer than {self.limit} characters"


def status_of(error: BaseException) -> int | None:
    """The HTTP status an error carries, wherever its provider keeps it."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
                return status
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) and status >= 400 else None
    return None


def classify(error: BaseException) -> CallFailure:
    if isinstance(error, ScriptExhausted):
        return CallFailure.EXHAUSTED
    status = status_of(error)
    if status is not None:
        if status == 429:
            return CallFailure.RATE_LIMITED
        if status in (401, 403):
            return CallFailure.DENIED
        if status == 408:
            return CallFailure.TIMEOUT
        return CallFailure.UNAVAILABLE if status >= 500 else CallFailure.REFUSED
    names = {base.__name__ for base in type(error).__mro__}
    if names & _TIMEOUTS:
        return CallFailure.TIMEOUT
    if names & _CONNECTIONS:
        return CallFailure.UNREACHABLE
    if isinstance(error, AnswerTooLarge | ValueError | KeyError | TypeError | AttributeError):
        return CallFailure.UNREADABLE
    return CallFailure.FAILED


def may_retry(error: BaseException) -> bool:
    """Load, failure at the provider, time and lost connections pass; an empty purse does not."""
    if getattr(error, "code", None) == "insufficient_quota":
        return False
    return classify(error) in (
        CallFailure.RATE_LIMITED,
        CallFailure.UNAVAILABLE,
        CallFailure.TIMEOUT,
        CallFailure.UNREACHABLE,
    )


def retry_after_seconds(error: BaseException) -> float | None:
    """What the provider asked to wait, when it said so in seconds."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        seconds = float(headers.get("retry-after"))  # type: ignore[union-attr]
    except (AttributeError, TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < 86_400 else None


def describe(error: BaseException, model: object, *, timeout_ms: int, attempts: int) -> str:
    """One line: what failed, at which endpoint, after how many attempts."""
    kind = classify(error)
    client = _client(model)
    if kind is CallFailure.EXHAUSTED:
        return str(error)
    words = {
        CallFailure.TIMEOUT: f"the model gave no answer within {timeout_ms} ms",
        CallFailure.UNREACHABLE: f"the connection to the model's endpoint{_endpoint(client)} failed: {_deepest(error)}",
        CallFailure.RATE_LIMITED: f"the provider refuses more requests now (429): {_text(error)}",
        CallFailure.DENIED: f"the provider refuses the credentials ({status_of(error)}): {_text(error)}",
        CallFailure.UNAVAILABLE: f"the provider failed ({status_of(error)}): {_text(error)}",
        CallFailure.REFUSED: f"the provider refuses the request ({status_of(error)}): {_text(error)}",
        CallFailure.UNREADABLE: f"the model's answer cannot be read: {_text(error)}",
        CallFailure.FAILED: _text(error),
    }[kind]
    if attempts > 1:
        words += f" (after {attempts} attempts)"
    return redact(words, client)


def redact(text: str, model: object = None) -> str:
    """`text` on one line, cut to a readable length, with the model's own secrets and everything key-like removed."""
    for secret in _secrets(model):
        text = text.replace(secret, "***")
    text = _URL_LOGIN.sub("***@", _KEY_LIKE.sub("***", " ".join(text.split())))
    return text if len(text) <= MAX_PROBLEM_CHARS else text[: MAX_PROBLEM_CHARS - 1] + "…"


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def _deepest(error: BaseException) -> str:
    """The words of the innermost cause that has any: SDKs say "Connection error." and hide why."""
    words = _text(error)
    cause = error.__cause__ or error.__context__
    for _ in range(10):
        if cause is None:
            break
        words = str(cause).strip() or words
        cause = cause.__cause__ or cause.__context__
    return words


def _client(model: object) -> object:
    """The chat model inside bindings and configurations."""
    for _ in range(10):
        inner = getattr(model, "bound", None)
        if inner is None:
            break
        model = inner
    return model


def _endpoint(client: object) -> str:
    url = getattr(client, "openai_api_base", None) or getattr(client, "base_url", None)
    if not isinstance(url, str):
        return ""
    parts = urlsplit(url)
    return f" {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _secrets(model: object) -> list[str]:
    fields: dict[str, Any] = getattr(type(model), "model_fields", {})
    values = [getattr(model, name, None) for name in fields]
    return [
        secret.get_secret_value()
        for secret in values
        if isinstance(secret, SecretStr) and secret.get_secret_value()
    ]
