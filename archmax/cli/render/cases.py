"""The test view: each case as it runs, its verdict, and the summary (07 §7). Results are in their JSON form (06 §9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from archmax.cli.render.flow import StateFlow
from archmax.cli.render.progress import ProgressLine
from archmax.cli.render.style import (
    ACTIVE,
    ATTENTION,
    DONE,
    FAILED,
    HEADING,
    PENDING,
    PLAIN,
    Style,
    brief,
    one_line,
    style_for,
)
from archmax.cli.render.usage import UsageMeter, total_usage, usage_line
from core.jsontext import JsonObject

_UNDER = "      "
#: as many cases make a suite long
LONG_SUITE = 5


def _status(result: JsonObject) -> str:
    return str(result["verdict"]["status"])


def _head(result: JsonObject, style: Style) -> str:
    icons = {"passed": style.good(DONE), "failed": style.bad(FAILED), "skipped": style.dim(PENDING)}
    line = f"{icons[_status(result)]} {one_line(str(result['id']))}"
    if result.get("title"):
        line += f" — {one_line(str(result['title']))}"
    if result.get("skipReason"):
        line += f" ({one_line(str(result['skipReason']))})"
    return line


def case_verdict_line(result: JsonObject, *, style: Style = PLAIN) -> str:
    """The verdict of one case, and under it its failures, the grades that ran and how much was not executed."""
    lines = [_head(result, style)]
    lines += [
        f"{_UNDER}{style.bad(FAILED)} {brief(str(failure), 1000)}"
        for failure in result["verdict"]["failures"]
    ]
    records = result.get("records") or []
    for record in records:
        if record.get("score") is not None and record.get("threshold") is not None:
            icon = style.good(DONE) if record["status"] == "passed" else style.warn(ATTENTION)
            lines.append(f"{_UNDER}{icon} {record['kind']} {record['score']:g} / {record['threshold']:g}")
    unexecuted = sum(record["status"] == "not-executed" for record in records)
    if unexecuted:
        noun = "assertion" if unexecuted == 1 else "assertions"
        lines.append(f"{_UNDER}{style.dim(PENDING)} {unexecuted} {noun} not executed")
    return "\n".join(lines)


def counts_line(results: Sequence[JsonObject]) -> str:
    """`N passed, N failed, N skipped`: the one line of stdout."""
    statuses = [_status(result) for result in results]
    return ", ".join(f"{statuses.count(status)} {status}" for status in ("passed", "failed", "skipped"))


class TestView:
    """Draws a suite on a text stream while it runs: hand its methods to `run_tests`."""

    __test__ = False  # not a pytest class

    def __init__(self, stream: TextIO, *, style: Style | None = None, verbose: bool = False) -> None:
        self._stream = ProgressLine(stream)
        self._style = style_for(stream) if style is None else style
        self._verbose = verbose
        self._selected = 0
        self._statuses: list[str] = []
        self._flow: StateFlow | None = None
        self._meter = UsageMeter()
        self._usages: list[JsonObject | None] = []

    def on_selection(self, cases: int) -> None:
        """How many cases will run. Of a long suite, a terminal shows how far it is until `close`."""
        self._selected = cases

    def on_case_start(self, file: str, session_id: str) -> None:
        self._progress("  " + one_line(file.partition("/tests/")[2] or file))
        self._write(self._style.dim(f"{HEADING} case {one_line(file)}"))
        self._meter = UsageMeter()
        self._flow = StateFlow(self._stream, style=self._style, verbose=self._verbose, session_id=session_id)

    def on_event(self, event: JsonObject) -> None:
        """An event of any session: those of the running case and its children are drawn and counted."""
        if self._flow is None or not self._flow.concerns(event):
            return
        self._meter(event)
        self._flow(event)

    def on_case_result(self, result: JsonObject) -> None:
        if self._flow is not None:
            self._write("")
        self._write(case_verdict_line(result, style=self._style))
        footer = usage_line(self._meter.total)
        if footer:
            self._write(_UNDER + self._style.dim(footer))
        self._usages.append(self._meter.total)
        self._statuses.append(_status(result))
        self._progress()
        self._flow, self._meter = None, UsageMeter()

    def finish(self, results: Sequence[JsonObject]) -> None:
        """The summary: failed cases first, then passed, then skipped; one line when all passed; the total usage."""
        self.close()
        self._write("")
        self._write(f"{self._style.accent(HEADING)} {self._style.bold('summary')}  {counts_line(results)}")
        if results and all(_status(result) == "passed" for result in results):
            noun = "case" if len(results) == 1 else "cases"
            self._write(f"{self._style.good(DONE)} all {len(results)} {noun} passed")
        else:
            for status in ("failed", "passed", "skipped"):
                for result in results:
                    if _status(result) == status:
                        self._write(_head(result, self._style))
        footer = usage_line(total_usage(self._usages))
        if footer:
            self._write(self._style.dim(footer))

    def close(self) -> None:
        """Take the progress line away, also when the suite was cut short."""
        self._stream.close()

    def _progress(self, running: str = "") -> None:
        if self._selected >= LONG_SUITE:
            failed = self._statuses.count("failed")
            told = f", {failed} failed" if failed else ""
            self._stream.show(f"{ACTIVE} {len(self._statuses)} of {self._selected} cases{told}{running}")

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()
