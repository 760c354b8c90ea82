"""Become a command that dies with its parent: `python launch.py <parent-pid> <command> [arguments...]`.

The kernel sends SIGKILL when the parent's thread that started this process ends, however it ends (a parent killed
outright runs no clean-up). It is asked for here, between fork and exec, because code run in the forked child of a
threaded process may deadlock; a fresh interpreter cannot. Imports nothing of the project: it starts in isolated mode.
Where the kernel has no such signal (not Linux) the command is simply run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    parent, command = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            print(f"launch: prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
            return 71
        if os.getppid() != parent:  # it was gone before the kernel was asked
            return 71
    try:
        os.execvp(command[0], command)  # noqa: S606 - the caller's own command line, no shell
    except OSError as error:
        print(f"launch: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
