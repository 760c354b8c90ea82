"""`archmax keys`: keys of the HTTP API, in the fleet's own store. A new key's text is printed once, on stdout alone."""

from __future__ import annotations

import json

from api.keys import ApiKey, KeyStore, RateLimit
from archmax.cli.invocation import Invocation
from archmax.cli.parser import UsageError
from archmax.cli.render.flow import instant
from archmax.cli.render.style import DONE, one_line, style_for
from archmax.settings import read_settings
from worker.settings import FleetSettings

DEFAULT_SCOPES = "read,enqueue"
OF_A_NEW_KEY = frozenset({"scopes", "workflows", "rate-limit", "max-body-bytes"})


async def run(invocation: Invocation) -> int:
    action, name = invocation.arguments["action"], invocation.arguments.get("name")
    if action == "list" and name is not None:
        raise UsageError(f"unexpected argument {name!r}", invocation.line.command)
    if action != "list" and name is None:
        raise UsageError("argument 'name' is required", invocation.line.command)
    if action != "new" and (given := sorted(OF_A_NEW_KEY & set(invocation.options))):
        raise UsageError(f"option '--{given[0]}' is for a new key", invocation.line.command)
    store = read_settings(FleetSettings).model_copy(update={"root": invocation.root}).open_store()
    try:
        keys = KeyStore(store)
        if action == "list":
            return _list(invocation, await keys.every())
        assert name is not None
        if action == "new":
            return await _new(invocation, keys, name)
        return _revoked(invocation, await keys.revoke(name), name)
    finally:
        await store.close()


async def _new(invocation: Invocation, keys: KeyStore, name: str) -> int:
    workflows, rate, longest = (
        invocation.options.get(name) for name in ("workflows", "rate-limit", "max-body-bytes")
    )
    key, text = await keys.create(
        name,
        invocation.options.get("scopes", DEFAULT_SCOPES).split(","),
        None if workflows is None else workflows.split(","),
        rate_limit=None if rate is None else RateLimit.parse(rate),
        max_body_bytes=None if longest is None else int(longest),
    )
    if invocation.flag("json"):
        _print(invocation, {**key.to_json(), "key": text})
        return 0
    invocation.out.write(text + "\n")
    style = style_for(invocation.err)
    invocation.err.write(f"{style.good(DONE)} key {key.id} ({_rights(key)}); it is shown this once\n")
    return 0


def _list(invocation: Invocation, keys: list[ApiKey]) -> int:
    if invocation.flag("json"):
        _print(invocation, [key.to_json() for key in keys])
        return 0
    for key in keys:
        revoked = f"  revoked {instant(key.revoked_at)}" if key.revoked_at is not None else ""
        invocation.out.write(
            f"  {key.id}  {one_line(key.name)}  {_rights(key)}  made {instant(key.created_at)}{revoked}\n"
        )
    if not keys:
        invocation.out.write("No keys found.\n")
    return 0


def _revoked(invocation: Invocation, revoked: list[ApiKey], name: str) -> int:
    if not revoked:
        invocation.err.write(
            f"Error: no live key has the id or name {name!r}; archmax keys list shows them\n"
        )
        return 1
    if invocation.flag("json"):
        _print(invocation, [key.to_json() for key in revoked])
    else:
        invocation.out.write("".join(f"revoked {key.id}  {one_line(key.name)}\n" for key in revoked))
    return 0


def _rights(key: ApiKey) -> str:
    """Scopes, workflows, and the limits it has of its own."""
    said = [
        ",".join(sorted(scope.value for scope in key.scopes)),
        "all workflows" if key.workflows is None else ",".join(sorted(key.workflows)),
    ]
    if key.rate_limit is not None:
        said.append(str(key.rate_limit))
    if key.max_body_bytes is not None:
        said.append(f"{key.max_body_bytes} bytes")
    return " · ".join(said)


def _print(invocation: Invocation, value: object) -> None:
    invocation.out.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
