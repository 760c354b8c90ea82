"""The banner and the header that open a command on stderr (07 §5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO

from archmax.cli.render.style import ATTENTION, HEADING, one_line, style_for

BANNER = "archmax · governed agent workflows"


def write_header(
    stream: TextIO,
    kind: Literal["plain", "model"] | None,
    *,
    slug: str | None,
    root: Path,
    environ: Mapping[str, str],
    warnings: Sequence[str] = (),
) -> None:
    """The slug, the absolute root and, for `model`, the configured model; then what was wrong with `.env`."""
    style = style_for(stream, environ)
    if kind is not None:
        if stream.isatty() and not environ.get("ARCHMAX_CLI_NO_BANNER"):
            stream.write(style.dim(BANNER) + "\n\n")
        stream.write(f"{style.accent(HEADING)} {style.bold(one_line(slug or 'archmax'))}\n")
        stream.write(f"  {style.dim('directory')}  {one_line(str(root))}\n")
        if kind == "model":
            model = environ.get("ARCHMAX_MODEL", "").strip()
            stream.write(
                f"  {style.dim('model')}      {one_line(model) or style.dim('not set (ARCHMAX_MODEL)')}\n"
            )
    stream.writelines(f"{style.warn(ATTENTION)} [env] {one_line(warning)}\n" for warning in warnings)
