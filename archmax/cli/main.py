"""The door of the command: parse, load `.env`, print the header, run the body, and turn errors into one line.

The bodies are imported when their command runs, so that `archmax help` stays quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any, TextIO

from archmax.cli.parser import HelpRequest, Line, UsageError, VersionRequest, assign, parse
from archmax.cli.table import find

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code of 07 §2."""
    out, err = sys.stdout, sys.stderr
    for stream in (out, err):
        if isinstance(stream, TextIOWrapper):  # a reply may hold what the terminal's encoding does not
            stream.reconfigure(errors="replace")
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv), out, err)
        out.flush()
        return code
    except BrokenPipeError:  # the reader went away: `archmax sessions | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(argv: Sequence[str], out: TextIO, err: TextIO) -> int:
    try:
        request = parse(argv)
        if isinstance(request, VersionRequest):
            from core.version import PACKAGE, package_version

            out.write(f"{PACKAGE} {package_version()}\n")
            return 0
        if isinstance(request, Line):
            if request.command.name != "help":
                return _dispatch(request, out, err)
            request = _help_request(request)
        from archmax.cli.help import command_help, program_help

        out.write(command_help(request.command) if request.command else program_help())
        return 0
    except UsageError as error:
        from archmax.cli.render.style import one_line

        if error.help_first:
            from archmax.cli.help import program_help

            err.write(program_help() + "\n")
        err.write(one_line(error.line) + "\n")
        return EXIT_USAGE


def _help_request(line: Line) -> HelpRequest:
    """`archmax help [command]`: needs no workspace and none of what the other commands import."""
    name = assign(line.command, line.words).get("command")
    command = find(name) if name else None
    if name and command is None:
        raise UsageError(f"unknown command {name!r}")
    return HelpRequest(command)


def _imported(command: str) -> Any:
    """The module of a command. What it imports stays, so looking for garbage meanwhile is a tenth of the time lost."""
    import gc

    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(f"archmax.cli.commands.{command}")
    finally:
        if collects:
            gc.enable()


def _dispatch(line: Line, out: TextIO, err: TextIO) -> int:
    from archmax.cli.envfile import load_env_files
    from archmax.cli.invocation import root_of, settle
    from archmax.cli.render.header import write_header
    from archmax.cli.render.style import one_line

    root = root_of(line)
    invocation = settle(line, root, out, err)
    warnings = load_env_files(root, os.environ)
    write_header(
        err, line.command.header, slug=invocation.workflow, root=root, environ=os.environ, warnings=warnings
    )
    import asyncio

    from core.errors import ArchmaxError

    try:
        body = _imported(line.command.name)
        outcome = body.run(invocation)
        # a worker owns the main thread and its signals: its body is no coroutine
        return asyncio.run(outcome) if asyncio.iscoroutine(outcome) else int(outcome)
    except (UsageError, BrokenPipeError, KeyboardInterrupt):
        raise
    except ArchmaxError as error:
        err.write(f"Error: {one_line(str(error))}\n")
    except Exception as error:  # the last resort of 07 §2: one line, never a traceback
        err.write(f"archmax failed: {type(error).__name__}: {one_line(str(error))}\n")
    return EXIT_FAILURE
