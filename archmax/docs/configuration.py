"""`docs/configuration.md`, written from the settings classes; a test keeps the file true.

`python -m archmax.docs.configuration` writes it anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
#: where each package's settings are; a package may have none
MODULES = ("archmax.settings", "api.settings", "worker.settings")

_HEAD = """\
# Configuration

Everything is set by environment variables. The `archmax` command also reads `.env` files: the workspace root's, and the
current directory's before it; a real variable beats both. Blank means unset. A boolean is `1`, `true`, `yes` or `on`,
or `0`, `false`, `no` or `off`; anything else is an error that names the variable. Secrets never reach logs or events.

This page is generated: `python -m archmax.docs.configuration`.
"""


def settings_classes() -> Iterator[type[BaseSettings]]:
    """Every settings class of the project, by module, in the order they are declared."""
    for name in MODULES:
        try:
            present = find_spec(name) is not None
        except ModuleNotFoundError:
            present = False
        if not present:
            continue
        module = import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, BaseSettings) and value.__module__ == name:
                yield value


def variables(settings: type[BaseSettings]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of each variable of a class, in declaration order."""
    prefix = settings.model_config.get("env_prefix", "")
    return [
        (name, _default(field), " ".join((field.description or "").split()))
        for key, field in settings.model_fields.items()
        for name in _names(prefix, key, field)
    ]


def _names(prefix: str, key: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [alias if isinstance(alias, str) else f"{prefix}{key}".upper()]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=False)
    if value is None or value is PydanticUndefined:
        return "unset"
    if isinstance(value, SecretStr):
        return "set" if value.get_secret_value() else "unset"
    if isinstance(value, bool):
        return "`on`" if value else "`off`"
    return f"`{value}`" if str(value) else "unset"


def page() -> str:
    lines = [_HEAD]
    for settings in settings_classes():
        heading, _, text = (inspect.getdoc(settings) or settings.__name__).partition("\n")
        lines += [f"## {heading.rstrip('.')}", ""]
        if text.strip():
            lines += [text.strip(), ""]
        lines += ["| variable | default | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| `{name}` | {default} | {meaning.replace('|', chr(92) + '|')} |"
            for name, default, meaning in variables(settings)
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
