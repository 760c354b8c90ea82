"""`.env` files: read at the edge, into the environment the rest of the process sees (07 §4, 05 §15).

A real variable beats both files; the workspace root's file beats the current directory's. Values never appear in a
message: a line that cannot be read is named by its file and number.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path

_LINE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def parse_env(text: str) -> tuple[dict[str, str], list[int]]:
    """The variables of a `.env` text, and the numbers (from 1) of lines that are neither blank, comment nor variable.

    Double quotes know backslash escapes, single quotes keep everything, an unquoted value ends at ` #`.
    """
    values: dict[str, str] = {}
    unreadable: list[int] = []
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = _value(match[2]) if match else None
        if match is None or value is None:
            unreadable.append(number)
            continue
        values[match[1]] = value
    return values, unreadable


def _value(text: str) -> str | None:
    """The value of the text after `=`, None when its quotes do not match."""
    if text[:1] in ("'", '"'):
        quote = text[0]
        pattern = r"'([^']*)'" if quote == "'" else r'"((?:[^"\\]|\\.)*)"'
        match = re.fullmatch(pattern + r"(?:[ \t]*|[ \t]+#.*)", text)
        if match is None:
            return None
        if quote == "'":
            return match[1]
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), match[1])
    if text.startswith("#"):
        return ""
    return re.split(r"[ \t]#", text, maxsplit=1)[0].rstrip()


def load_env_files(
    root: Path, environ: MutableMapping[str, str], *, current: Path | None = None
) -> list[str]:
    """Load the current directory's `.env`, then the root's, into `environ`.

    Returns: one sentence per problem (an unreadable file or line), for a warning.
    """
    real = set(environ)
    problems: list[str] = []
    current = Path.cwd() if current is None else current
    directories = [current] if current.resolve() == root.resolve() else [current, root]
    for directory in directories:
        file = directory / ".env"
        try:
            text = file.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue  # a folder of that name is somebody's virtual environment
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}")
            continue
        values, unreadable = parse_env(text)
        problems.extend(f"{file}:{number} is not KEY=VALUE and was skipped" for number in unreadable)
        environ.update(
            {name: value for name, value in values.items() if name not in real and "\0" not in value}
        )
    return problems
