"""A second implementation of `SandboxRuntime`: QuickJS in this process, as a host might bring its own.

For tests of the interface alone: nothing here bounds what a script takes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from typing import Any

import _quickjs

from sandbox import RuntimeOptions, ToolRejected

_GLOBALS = """
((emit) => {
  const pending = new Map();
  let issued = 0;
  globalThis.offer = (names, aliases, args, seed, now) => {
    const tools = {}, random = seed;
    const call = (name) => (input) => new Promise((done, fail) => {
      pending.set(++issued, [done, fail]);
      emit("call", JSON.stringify([issued, name, input ?? null]));
    });
    for (const name of names) Object.defineProperty(tools, name, { value: call(name), enumerable: false, configurable: true });
    for (const [alias, name] of Object.entries(aliases)) Object.defineProperty(tools, alias, { value: call(name), enumerable: true, configurable: true });
    Object.assign(globalThis, { tools, args });
    Date.now = () => now;
    Math.random = () => random;
  };
  globalThis.settle = (id, ok, value) => {
    const [done, fail] = pending.get(id);
    pending.delete(id);
    if (ok) done(value); else fail(Object.assign(new Error(value.message), value.data, { name: value.name }));
  };
  globalThis.watch = (code) => (0, eval)(code).then(
    (value) => emit("ok", JSON.stringify({ value })),
    (e) => emit("failed", JSON.stringify({ name: e.name, message: e.message })),
  );
  const line = (...parts) => emit("line", parts.map((p) => typeof p === "string" ? p : JSON.stringify(p)).join(" "));
  globalThis.console = { log: line };
})(__emit); delete globalThis.__emit;
"""


class Namespace:
    """One interpreter and the globals it keeps."""

    def __init__(self, options: RuntimeOptions) -> None:
        self.options = options
        self._calls: list[tuple[int, str, Any]] = []
        self._said: dict[str, Any] | None = None
        self._context = _quickjs.Context()
        self._context.add_callable("__emit", self._emit)
        self._context.eval(_GLOBALS)

    def _emit(self, kind: str, text: str) -> None:
        match kind:
            case "call":
                self._calls.append(tuple(json.loads(text)))
            case "line":
                self.options.on_console(text)
            case "ok":
                self._said = {"ok": True, **json.loads(text)}
            case _:
                self._said = {"ok": False, "error": json.loads(text)}

    async def eval(self, code: str, timeout_ms: int) -> Mapping[str, Any]:
        options, self._said = self.options, None
        offered = [list(options.tools), dict(options.aliases), options.args]
        seed = int(options.seed[:8], 16) / 2**32
        self._js(f"offer({', '.join(map(json.dumps, offered))}, {seed}, {options.started_ms})")
        try:
            self._js(f"watch({json.dumps(code)})")
        except _quickjs.JSException as error:
            name, _, message = str(error).partition("\n")[0].partition(": ")
            return {"ok": False, "error": {"name": name, "message": message}}
        waiting: dict[asyncio.Future[str], int] = {}
        while True:
            while self._context.execute_pending_job():
                pass
            for number, tool, args in self._calls:
                waiting[asyncio.ensure_future(_asked(options.tools[tool](args)))] = number
            self._calls.clear()
            if self._said is not None:
                return self._said
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: waiting[task]):
                number = waiting.pop(task)
                try:
                    self._js(f"settle({number}, true, {json.dumps(task.result())})")
                except ToolRejected as no:
                    said = {"name": no.name, "message": no.message, "data": dict(no.data)}
                    self._js(f"settle({number}, false, {json.dumps(said)})")

    def _js(self, code: str) -> None:
        self._context.eval(code)


async def _asked(answer: Awaitable[str]) -> str:
    return await answer


class SecondRuntime:
    """Fulfils `SandboxRuntime`; remembers what it was asked."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.asked: list[RuntimeOptions] = []
        self.disposed: list[str] = []

    def session(self, namespace: str, options: RuntimeOptions) -> Namespace:
        self.asked.append(options)
        found = self.namespaces.setdefault(namespace, Namespace(options))
        found.options = options
        return found

    async def dispose(self, namespace: str) -> None:
        self.disposed.append(namespace)
        self.namespaces.pop(namespace, None)
