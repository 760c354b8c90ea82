from __future__ import annotations

import io
from pathlib import Path

import pytest
from typing_extensions import override

from archmax.cli.render.header import write_header
from archmax.cli.render.style import style_for


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_needs_a_terminal_and_no_no_color(stream: io.StringIO, environ: dict[str, str], colour: bool):
    """07 §5."""
    assert style_for(stream, environ).colour is colour


def header(stream: io.StringIO, kind: str | None, environ: dict[str, str]) -> str:
    assert kind in ("plain", "model", None)
    write_header(stream, kind, slug="shop", root=Path("/srv/work"), environ=environ)
    return stream.getvalue()


def test_the_header_names_slug_root_and_model():
    """07 §5."""
    environ = {"ARCHMAX_MODEL": "small-model"}
    assert (
        header(io.StringIO(), "model", environ)
        == "◆ shop\n  directory  /srv/work\n  model      small-model\n"
    )
    assert header(io.StringIO(), "plain", environ) == "◆ shop\n  directory  /srv/work\n"
    assert header(io.StringIO(), None, environ) == ""


def test_an_unset_model_is_said():
    """07 §5: the configured model or a note that it is unset."""
    assert "model      not set" in header(io.StringIO(), "model", {"ARCHMAX_MODEL": " "})


def test_the_banner_needs_a_terminal_and_can_be_silenced():
    """07 §4, §5."""
    assert "governed agent workflows" in header(Terminal(), "plain", {})
    assert "governed agent workflows" not in header(Terminal(), "plain", {"ARCHMAX_CLI_NO_BANNER": "1"})
    assert "governed agent workflows" not in header(io.StringIO(), "plain", {})
