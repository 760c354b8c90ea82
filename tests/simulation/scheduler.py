"""A deterministic scheduler: coroutines of simulated processes over virtual milliseconds and one seeded source of chance.

A coroutine awaits a `Wait` (time passes) or a `Request` (something happens elsewhere, at its own time, whether or not the
asker lives to hear of it). Processes can die, which drops their coroutines, and freeze, which delays them.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Wait:
    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __await__(self) -> Generator[Wait, Any, None]:
        yield self


class Request:
    """`act` runs `there` ms from now and its result, or `error` in place of it, arrives `back` ms later."""

    __slots__ = ("act", "back", "error", "late", "there")

    def __init__(
        self,
        act: Callable[[], Any] | None,
        there: int,
        back: int,
        error: Exception | None = None,
        late: int | None = None,
    ) -> None:
        self.act, self.there, self.back, self.error, self.late = act, there, back, error, late

    def __await__(self) -> Generator[Request, Any, Any]:
        return (yield self)


class Process:
    """Something that dies as a whole. `skew` shifts its own clock."""

    def __init__(self, name: str, skew: int) -> None:
        self.name = name
        self.skew = skew
        self.alive = True
        self.frozen_until = 0

    def freeze(self, until: int) -> None:
        """All of it, and no shorter than it was to be frozen anyway."""
        self.frozen_until = max(self.frozen_until, until)


class Task:
    __slots__ = ("coroutine", "done", "name", "process")

    def __init__(
        self,
        name: str,
        process: Process,
        coroutine: Coroutine[Any, Any, Any],
        done: Callable[[Exception | None], None] | None,
    ) -> None:
        self.name, self.process, self.coroutine, self.done = name, process, coroutine, done


class Scheduler:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._chance = self.random.random
        self.now = 0
        #: whose step is being made
        self.current: Task | None = None
        self.trace: deque[str] = deque(maxlen=4000)
        #: called with the process before each request is sent; may kill it
        self.before_request: Callable[[Process], None] = lambda process: None
        self._heap: list[tuple[int, float, int, Callable[[], None]]] = []
        self._count = 0
        # Dropped coroutines stay referenced: closing one would run its `except` and `finally` parts.
        self._dropped: list[Task] = []

    def log(self, text: str) -> None:
        self.trace.append(f"{self.now:>8} {text}")

    def at(self, ms: int, act: Callable[[], None]) -> None:
        """Run `act` in `ms`. Things at one time run in random order."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + ms, self._chance(), self._count, act))

    def spawn(
        self,
        name: str,
        process: Process,
        coroutine: Coroutine[Any, Any, Any],
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        task = Task(name, process, coroutine, done)
        self.at(0, lambda: self._step(task, None, None))

    def run(self, until: int) -> None:
        """Until virtual time `until`, or until nothing is left to happen."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, _, act = heapq.heappop(heap)
            act()
        self.now = max(self.now, until)

    def forget(self) -> None:
        """Close what is left, quietly."""
        for task in self._dropped:
            try:
                task.coroutine.close()
            except RuntimeError:
                pass

    def _step(self, task: Task, value: Any, error: Exception | None) -> None:
        process = task.process
        if not process.alive:
            self._dropped.append(task)
            return
        if process.frozen_until > self.now:
            self.at(process.frozen_until - self.now, lambda: self._step(task, value, error))
            return
        self.current = task
        try:
            asked = task.coroutine.throw(error) if error is not None else task.coroutine.send(value)
        except StopIteration:
            if task.done is not None:
                task.done(None)
            return
        except Exception as failure:
            if task.done is None:
                raise
            task.done(failure)
            return
        if isinstance(asked, Wait):
            self.at(asked.ms, lambda: self._step(task, None, None))
            return
        self.before_request(process)
        if not process.alive:
            self._dropped.append(task)
            return
        self._send(task, asked)

    def _send(self, task: Task, request: Request) -> None:
        def arrive() -> None:
            result = request.act() if request.act is not None else None
            self.at(request.back, lambda: self._step(task, result, request.error))

        if request.late is None:
            self.at(request.there, arrive)
            return
        act = request.act
        if act is not None:
            self.at(request.late, lambda: (act(), None)[1])
        self.at(request.there + request.back, lambda: self._step(task, None, request.error))
