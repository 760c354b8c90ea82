"""The process regexes run in: JavaScript's own `RegExp`, one job at a time, until its input closes.

Started by `engine.cases.regex` as a script with the folder of the interpreter's module as its argument; imports nothing
of the project. Frames both ways: four bytes of length, then JSON. A job is `{pattern, flags, text | null}`; its answer
`{malformed: words}`, `{found: bool}` or `{stopped: true}` when it ran out of time or memory.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from typing import Any

_HEAP_BYTES = 64 << 20
_ADDRESS_SPACE_BYTES = 1 << 30
_SECONDS = 2.0

_TEST = """(text) => {
  const job = JSON.parse(text);
  let expression;
  try { expression = new RegExp(job.pattern, job.flags); }
  catch (error) {
    if (error instanceof SyntaxError) return JSON.stringify({ malformed: String(error.message) });
    throw error;
  }
  return JSON.stringify({ found: job.text !== null && expression.test(job.text) });
}"""


def main(library: str) -> None:
    sys.path.insert(0, library)
    import _quickjs

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    for what, amount in (
        (resource.RLIMIT_AS, _ADDRESS_SPACE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(what, (amount, amount))
    while header := source.read(4):
        jobs = json.loads(source.read(struct.unpack(">I", header)[0]))
        answers = [_answer(_quickjs, job) for job in jobs]
        body = json.dumps(answers).encode()
        sink.write(struct.pack(">I", len(body)) + body)
        sink.flush()


def _answer(quickjs: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Each job gets a context of its own: none sees another, and none inherits its memory."""
    context = quickjs.Context()
    context.set_memory_limit(_HEAP_BYTES)
    test = context.eval(_TEST)
    context.set_time_limit(_SECONDS)
    try:
        return dict(json.loads(test(json.dumps(job))))
    except (quickjs.JSException, MemoryError):
        return {"stopped": True}


if __name__ == "__main__":
    main(sys.argv[1])
