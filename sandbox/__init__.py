"""JavaScript for scripts, never in the host's process (03 §19).

`Sandbox` keeps a small zygote and forks a QuickJS process per `Repl`; one `Evaluation` gives one `Result`. Tool calls
come back to the host, are written to a `Journal`, and replay from it. Tried and left: QuickJS in the host's process
(native loops cannot be interrupted, one crash takes everything), a spawned process each (8 ms against 2), QuickJS in
WebAssembly (half a second to start, memory limit not enforced).
"""

from __future__ import annotations

from sandbox.errors import MalformedRegexError, RegexTimeoutError, SandboxUnavailableError
from sandbox.evaluation import (
    DEFAULT_MAX_CALLS,
    DEFAULT_MAX_RESULT_CHARS,
    DEFAULT_MEMORY_LIMIT_BYTES,
    DEFAULT_TIMEOUT_MS,
    Evaluation,
    Fault,
    HostCall,
    Result,
    ScriptError,
    Status,
    camel_case,
)
from sandbox.journal import DEFERRED, CallRecord, Deferred, HostAnswer, Journal
from sandbox.regex import RegexTester
from sandbox.repl import Repl
from sandbox.rewrite import HARNESS_PREFIX, forbidden_imports
from sandbox.runtime import (
    HostRepl,
    HostSandbox,
    RuntimeOptions,
    RuntimeSession,
    SandboxRuntime,
    ToolRejected,
)
from sandbox.service import Sandbox

__all__ = [
    "DEFAULT_MAX_CALLS",
    "DEFAULT_MAX_RESULT_CHARS",
    "DEFAULT_MEMORY_LIMIT_BYTES",
    "DEFAULT_TIMEOUT_MS",
    "DEFERRED",
    "HARNESS_PREFIX",
    "CallRecord",
    "Deferred",
    "Evaluation",
    "Fault",
    "HostAnswer",
    "HostCall",
    "HostRepl",
    "HostSandbox",
    "Journal",
    "MalformedRegexError",
    "RegexTester",
    "RegexTimeoutError",
    "Repl",
    "Result",
    "RuntimeOptions",
    "RuntimeSession",
    "Sandbox",
    "SandboxRuntime",
    "SandboxUnavailableError",
    "ScriptError",
    "Status",
    "ToolRejected",
    "camel_case",
    "forbidden_imports",
]
