"""ECMAScript regular expressions for callers that are not asynchronous (06 §13: parsing a case, `partial_match`).

The same processes as `Sandbox`, driven by a loop in a thread of its own. The caller waits, usually well under a
millisecond and never longer than the time limit: from an event loop, use `Sandbox.test_regex` instead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from sandbox.service import REGEX_TIMEOUT_MS, Sandbox

_T = TypeVar("_T")


class RegexTester:
    """Started on first use; may be shared by threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._sandbox = Sandbox(spare_processes=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def compile(self, pattern: str, flags: str = "") -> None:
        """Raises: `MalformedRegexError`."""
        self._wait(self._sandbox.compile_regex(pattern, flags))

    def test(self, pattern: str, flags: str, text: str, *, timeout_ms: int = REGEX_TIMEOUT_MS) -> bool:
        """Whether `text` holds a match. Raises: `MalformedRegexError`, `RegexTimeoutError`."""
        return self._wait(self._sandbox.test_regex(pattern, flags, text, timeout_ms=timeout_ms))

    def close(self) -> None:
        """End the process and the thread. The tester may be used again."""
        with self._guard:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._sandbox.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # a daemon, so that a tester nobody closed does not keep a program from ending
                self._thread = threading.Thread(target=self._loop.run_forever, name="regex", daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()
