"""Log lines: events with a stable `action` and ids, as text or JSON; never payloads, never secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from worker.settings import FleetSettings

#: what every line says beside its own fields: the ids of the turn at work
_fields: ContextVar[Mapping[str, object] | None] = ContextVar("log_fields", default=None)
#: the name Celery gives a turn's task: `<session>.<turn>:<message>`
_TURN_TASK_ID = re.compile(r"(?P<session>.+)\.(?P<turn>\d+):[0-9a-f]{8}")

#: attributes every record has; what else it carries are the fields of the event
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    *("message", "asctime", "taskName", "data", "ids"),
    "color_message",  # uvicorn says it a second time
}


@contextmanager
def log_fields(**fields: object) -> Generator[None]:
    """Give every line logged inside, whoever logs it, these fields."""
    token = _fields.set({**(_fields.get() or {}), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


class FieldsFilter(logging.Filter):
    """Adds the fields in force to a record; the record's own win."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields = {**_told_by_celery(record), **(_fields.get() or {})}
        for key, value in fields.items():
            if key not in record.__dict__:
                setattr(record, key, value)
        if fields:
            record.ids = " ".join(f"{key}={value}" for key, value in fields.items())
        return True


def _told_by_celery(record: logging.LogRecord) -> dict[str, object]:
    """The ids on Celery's own lines about a task: it hands them over beside the text."""
    data = record.__dict__.get("data")
    task = data.get("id") if isinstance(data, Mapping) else None
    if not isinstance(task, str):
        return {}
    found = _TURN_TASK_ID.fullmatch(task)
    if found is None:
        return {"task": task}
    return {"task": task, "session": found["session"], "turn": int(found["turn"])}


class TextFormatter(logging.Formatter):
    """A line for people, the ids of the turn at its end."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        ids = record.__dict__.get("ids")
        return f"{line} [{ids}]" if ids else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure_logging(settings: FleetSettings) -> None:
    """Log to stderr in the configured format."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(FieldsFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.captureWarnings(capture=True)  # a warning is a line like any other
    # one line per HTTP request and per broker reconnect says nothing an operator acts on
    for name in ("httpx", "httpcore", "botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
