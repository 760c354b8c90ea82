"""The platform prompt: how any governed session works, said once to the model (03 §17.2).

Compiled in; a workspace may replace it by `.platform/system/GRAPH_STATE.md`. Lines between the top-level-only markers
are left out of a child's prompt, and the ordered items after them renumbered; the same holds for an override.
"""

from __future__ import annotations

import re

OPEN_MARK = "<!-- top-level-only -->"
CLOSE_MARK = "<!-- /top-level-only -->"
OVERRIDE_PATH = ".platform/system/GRAPH_STATE.md"

PLATFORM_PROMPT = """\
# How this session works

You work inside a state machine. You are always in exactly one state; the block "Current state" at the end of this \
prompt says which, what to do there, and which moves exist. Only the current state's moves are known to you.

<!-- top-level-only -->
1. Name the session first: set the variable `title` to one short line about the task.
<!-- /top-level-only -->
2. Do the state's work with the tools you have.
3. Then call `archmax_advance` with the slug of a listed target and a reason the next worker can use. One move per \
message. A refused move says why; mend that and try again.
4. Go on with the new state's work. Stop when nothing is left to do.

- Text without a tool call ends your turn. To say something and act, put both in one message.
- A conversation keeps its position: a later message finds you where you stopped. A terminal state never serves a \
follow-up; `archmax_reset` leads back to the start.
- Waiting for something from outside (an answer, an event, a time): `archmax_wait`. A person's approval is a human state: \
advance into it; the person decides, never you. Work that cannot succeed: retry once or twice, then `archmax_raise`, \
alone in its message, as the last resort and never as a reply.
- Grader and code states decide on their own. Their note tells you what they found; act on it.
- The tool surface is closed: what a state does not offer is refused. Do not look for ways around a refusal.
- Loops, arithmetic and many calls: write JavaScript for `archmax_eval` (`await tools.readFile({file_path})`) rather than \
calling tools one by one.
- Quote a variable in any tool argument as `${{name}}` or `${{name.path}}`; it is filled in exactly. `$${{name}}` stays \
literal. Record facts others need with `archmax_set_variables`.
<!-- top-level-only -->
- `title` may be set again when the task changes; it is never locked.
<!-- /top-level-only -->"""

_ITEM = re.compile(r"(\s*)([0-9]+)([.)])(\s)")


def for_session(prompt: str, *, top_level: bool) -> str:
    """The prompt without its markers: passages between them kept for a top-level session, left out for a child."""
    lines = prompt.split("\n")
    kept: list[str] = []
    #: left-out items of the list being read, by the list's indent
    removed: dict[int, int] = {}
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.strip() == OPEN_MARK:
            close = next((at for at in range(index + 1, len(lines)) if lines[at].strip() == CLOSE_MARK), None)
            if close is None:  # an unclosed marker leaves its text in place for both
                index += 1
                continue
            passage = lines[index + 1 : close]
            if top_level:
                kept.extend(passage)
            else:
                for item in filter(None, map(_ITEM.match, passage)):
                    removed[len(item[1])] = removed.get(len(item[1]), 0) + 1
            index = close + 1
            continue
        match = _ITEM.match(line)
        if match:
            number = int(match[2]) - removed.get(len(match[1]), 0)
            removed = {indent: count for indent, count in removed.items() if indent <= len(match[1])}
            line = f"{match[1]}{number}{match[3]}{match[4]}{line[match.end() :]}"
        elif line.strip() and not line.startswith((" ", "\t")):
            removed = {}  # another block: numbering there is its own
        kept.append(line)
        index += 1
    return "\n".join(kept).strip("\n")
