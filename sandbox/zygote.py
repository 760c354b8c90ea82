"""The process sandbox processes are forked from: small, single-threaded, with the interpreter loaded.

It receives one end of a socket pair per request (SCM_RIGHTS) and forks a child that serves it; the child reports with
a pidfd of itself, so the host never signals a number that may belong to another process. It ends when its control
socket closes or its parent dies, and its children die with it. Runs as `python -I -S`, imports nothing of the host.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

from sandbox import confine, interpreter, rewrite


def main(control_fd: int, host_pid: int) -> None:
    """Serve fork requests until the host goes away."""
    confine.die_with_parent(host_pid)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            ignored, signal.SIG_IGN
        )  # the host decides; a terminal's Ctrl-C reaches the whole group
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    rewrite.warm_up()
    gc.collect()
    gc.freeze()  # keeps the pages shared
    control = socket.socket(fileno=control_fd)
    own_pid = os.getpid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            break
        for descriptor in descriptors:
            _fork(descriptor, own_pid)
    try:
        while True:  # the host kills or hangs up on each; none is left to another parent
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def _fork(descriptor: int, zygote_pid: int) -> None:
    try:
        pid = os.fork()
    except OSError:  # the host sees the socket close
        os.close(descriptor)
        return
    if pid:
        os.close(descriptor)
        return
    try:
        confine.die_with_parent(zygote_pid)
        interpreter.serve(descriptor)
    finally:  # the forked copy must never return into the zygote's loop
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
