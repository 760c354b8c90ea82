"""The real command on a terminal of its own: its stderr is a pseudo-terminal, its stdout a pipe."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

from tests.support.command import command_environment


@dataclass(frozen=True, slots=True)
class OnTerminal:
    """`stderr` is everything that was sent to the terminal, carriage returns included."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def screen(self) -> list[str]:
        """What a person sees at the end, line by line, without the blanks at their ends."""
        lines = []
        for line in self.stderr.replace("\r\n", "\n").split("\n"):
            seen: list[str] = []
            at = 0
            for char in line:
                if char == "\r":
                    at = 0
                    continue
                seen[at : at + 1] = [char]
                at += 1
            lines.append("".join(seen).rstrip())
        return lines


def archmax_on_terminal(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 60
) -> OnTerminal:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "archmax", *arguments],
        cwd=cwd,
        env=command_environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        sent = bytearray()
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux says so when the last writer is gone
                break
            if not piece:
                break
            sent += piece
        assert process.stdout is not None
        stdout = process.stdout.read()
    os.close(ours)
    return OnTerminal(process.returncode, stdout, sent.decode("utf-8"))
