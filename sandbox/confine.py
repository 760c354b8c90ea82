"""What a sandbox process gives up before it runs a script. Loaded in sandbox processes only.

No file, no network, no other process: descriptors are closed, none can be opened (RLIMIT_NOFILE 0), memory and CPU
are limited, privileges cannot be gained, and a seccomp filter admits only what an interpreter at work needs
(memory, its one socket, clocks, exit); everything else answers EPERM, executable memory included. All of it works
without root. The filter knows x86-64 and AArch64 and is left out, visibly, where the kernel refuses it: the other
limits hold alone there. Source: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2

_LIFETIME_CPU_SECONDS: Final = 3600
#: address space beyond the script's heap: the interpreter itself and copies of what crosses
_OWN_ADDRESS_SPACE: Final = 384 * 2**20

# machine -> (audit architecture, mmap, mprotect, the other admitted system calls)
_ARCHITECTURES: Final[dict[str, tuple[int, int, int, tuple[int, ...]]]] = {
    # read write close poll munmap brk sigprocmask sigreturn yield mremap madvise setitimer getpid sendto recvfrom
    # sendmsg recvmsg exit gettimeofday futex restart clock_gettime clock_nanosleep exit_group ppoll getrandom
    "x86_64": (
        0xC000003E, 9, 10,
        (0, 1, 3, 7, 11, 12, 14, 15, 24, 25, 28, 38, 39, 44, 45, 46, 47, 60, 96, 202, 219, 228, 230, 231, 271, 318),
    ),
    "aarch64": (
        0xC00000B7, 222, 226,
        (63, 64, 57, 215, 214, 135, 139, 124, 216, 233, 103, 172, 206, 207, 211, 212, 93, 169, 98, 128, 113, 115,
         94, 73, 278),
    ),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _prctl(option: int, first: int = 0, second: int = 0) -> bool:
    return int(_libc.prctl(option, first, second, 0, 0)) == 0


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, `parent` being the pid that may be gone already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def keep_only(descriptor: int) -> None:
    """Close every other file descriptor, standard streams included."""
    os.closerange(0, descriptor)
    os.closerange(descriptor + 1, 2**16)


def limit(memory_bytes: int) -> None:
    """Set the resource limits of a process whose script may use `memory_bytes` of heap."""
    for what, amount in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CPU, _LIFETIME_CPU_SECONDS),
        (resource.RLIMIT_AS, min(2 * memory_bytes + _OWN_ADDRESS_SPACE, 2**62)),
    ):
        hard = resource.getrlimit(what)[1]
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(what, (amount, amount))


def limit_cpu(seconds: float) -> None:
    """Have the kernel kill this process after `seconds` more of CPU time, should the host be unable to."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _filter() -> bytes | None:
    if platform.machine() not in _ARCHITECTURES:
        return None
    audit, mmap, mprotect, admitted = _ARCHITECTURES[platform.machine()]
    load, equal, any_bit, done = 0x20, 0x15, 0x45, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000

    def step(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, k)

    count = len(admitted)
    program = [
        step(load, 4),  # architecture
        step(equal, audit, 1, 0),
        step(done, kill),
        step(load, 0),  # system call number; x32 numbers are on no list
        step(equal, mmap, count + 2, 0),
        step(equal, mprotect, count + 1, 0),
        *(step(equal, number, count - index + 2, 0) for index, number in enumerate(admitted)),
        step(done, refuse),
        step(load, 32),  # protection bits of mmap and mprotect
        step(any_bit, 4, 1, 0),  # PROT_EXEC
        step(done, allow),
        step(done, refuse),
    ]
    return b"".join(program)


FILTER: Final = _filter()


def seal() -> bool:
    """Give up privileges and install the filter. Returns whether the filter is in force."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    if FILTER is None:
        return False
    program = _FilterProgram(len(FILTER) // 8, FILTER)
    return _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))
