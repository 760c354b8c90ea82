"""The one table of commands: parsing, help and shell completion are all read off it (07 §3).

An option has one spelling and the same shape in every command that takes it, so that a line can be read before its
command is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Group: TypeAlias = Literal["Workflows", "Sessions", "Fleet", "Authoring", "Other"]
Kind: TypeAlias = Literal["text", "json", "count"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument. `rest` takes every remaining word, joined by single blanks."""

    name: str
    help: str
    required: bool = True
    rest: bool = False
    choices: tuple[str, ...] = ()
    #: a session id: refused before anything is assembled when it is none (07 §3)
    session: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `value` is the placeholder of its value; an option without one is a flag."""

    name: str
    help: str
    value: str | None = None
    required: bool = False
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    session: bool = False

    @property
    def key(self) -> str:
        """The name without its dashes: how a command's body asks for it."""
        return self.name.removeprefix("--")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the table.

    `workflow` tells how its workflow is named (07 §3.1): by the first argument, by `--workflow`, or not at all.
    `adopts_words`: with one workflow in the root, a first argument that names none belongs to the rest.
    `header`: what the header shows, None for no header (07 §5).
    """

    name: str
    group: Group
    summary: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    details: str = ""
    workflow: Literal["argument", "option"] | None = None
    adopts_words: bool = False
    header: Literal["plain", "model"] | None = None

    def option(self, name: str) -> Option | None:
        return next((option for option in (*self.options, *GLOBAL_OPTIONS) if option.name == name), None)


ROOT = Option("--root", "the workspace (default: the current directory)", "<dir>")
HELP = Option("--help", "show the help of the command; also -h")
GLOBAL_OPTIONS = (ROOT, HELP)
#: of the program, not of a command
VERSION = Option("--version", "print the version of archmax-fleet")

_WORKFLOW = Argument("workflow", "slug under workflows/; may be left out when there is one", required=False)
_WORKFLOW_OPTION = Option("--workflow", "slug under workflows/; may be left out when there is one", "<slug>")
_SESSION = Argument("session", "id of the session", session=True)
_JSON = Option("--json", "print one JSON document")
_VERBOSE = Option("--verbose", "one raw line per event before the drawn one")
_TRIGGER = Option("--trigger", "declared trigger that starts the turn (default: manual)", "<id>")
_VARIABLES = Option("--variables", "JSON object; its members are stored locked", "<json>", kind="json")
_SESSION_OPTION = Option(
    "--session", "continue this session, or start one under this id", "<id>", session=True
)
_PORT = Option("--port", "port of the API (default: ARCHMAX_API_PORT)", "<n>", kind="count")
_BIND = Option("--bind", "address the API listens on (default: ARCHMAX_API_HOST)", "<address>")
_URL = Option("--url", "base URL of the fleet's API (default: ARCHMAX_URL)", "<url>")

COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        "Workflows",
        "send one message to a workflow and print its reply",
        (
            _WORKFLOW,
            Argument("prompt", "the message: the rest of the line, joined by single blanks", rest=True),
        ),
        (
            _TRIGGER,
            _VARIABLES,
            _SESSION_OPTION,
            Option("--session-path", "dotted path into --variables that holds the session id", "<path>"),
            Option("--record", "write what the model said as a model script", "<file>"),
            _VERBOSE,
        ),
        details="The reply goes to stdout, everything else to stderr. A session that parks is no failure.",
        workflow="argument",
        adopts_words=True,
        header="model",
    ),
    Command(
        "test",
        "Workflows",
        "run the cases of a workflow",
        (_WORKFLOW, Argument("filter", "only cases whose id contains this text", required=False)),
        (_JSON, _VERBOSE, Option("--live", "use the configured model, not the cases' model scripts")),
        workflow="argument",
        adopts_words=True,
        header="model",
    ),
    Command(
        "validate",
        "Workflows",
        "check a workflow and its cases without running anything",
        (_WORKFLOW,),
        (_JSON,),
        workflow="argument",
        header="plain",
    ),
    Command(
        "sessions",
        "Sessions",
        "list the sessions, or show one in full",
        (Argument("session", "id of the session to show", required=False, session=True),),
        (_WORKFLOW_OPTION, _JSON),
        workflow="option",
        header="plain",
    ),
    Command(
        "decide",
        "Sessions",
        "take a transition of a session that awaits a decision",
        (_SESSION,),
        (
            Option("--to", "state that the decision moves to", "<state>", required=True),
            Option("--comment", "why; kept with the decision", "<text>"),
            _WORKFLOW_OPTION,
            _VERBOSE,
        ),
        workflow="option",
        header="plain",
    ),
    Command(
        "reply",
        "Sessions",
        "send a message to a session that awaits a decision; the decision stays pending",
        (_SESSION, Argument("message", "the rest of the line, joined by single blanks", rest=True)),
        (_WORKFLOW_OPTION, _VERBOSE),
        workflow="option",
        header="plain",
    ),
    Command(
        "deliver",
        "Sessions",
        "deliver a trigger to a session that awaits input",
        (_SESSION,),
        (
            Option("--trigger", "id of the trigger to deliver", "<id>", required=True),
            _VARIABLES,
            _WORKFLOW_OPTION,
            _VERBOSE,
        ),
        workflow="option",
        header="plain",
    ),
    Command(
        "up",
        "Fleet",
        "keep a whole fleet running on this machine until Ctrl-C",
        (),
        (
            _BIND,
            _PORT,
            Option("--flower-port", "port of Flower (default: ARCHMAX_FLOWER_PORT)", "<n>", kind="count"),
            Option("--workers", "worker processes (default: 1)", "<n>", kind="count"),
        ),
        details="Starts Redis (unless ARCHMAX_REDIS_URL names one), workers, beat, the API and Flower.",
    ),
    Command("worker", "Fleet", "run one worker process"),
    Command("api", "Fleet", "run the HTTP API", (), (_BIND, _PORT)),
    Command("beat", "Fleet", "fire the schedules of the workspace's triggers"),
    Command(
        "submit",
        "Fleet",
        "enqueue a turn through the API",
        (
            Argument("workflow", "slug of the workflow"),
            Argument("message", "the rest of the line, joined by single blanks", required=False, rest=True),
        ),
        (
            _TRIGGER,
            _VARIABLES,
            _SESSION_OPTION,
            Option("--idempotency-key", "the same key is the same turn for a day", "<key>"),
            Option("--wait", "draw the turn's events until it ends, and print its reply"),
            _URL,
            _VERBOSE,
            _JSON,
        ),
        details="Prints the turn's id; with --wait it reports and exits like `archmax run`.",
    ),
    Command(
        "turns",
        "Fleet",
        "show a turn of the fleet, or each session's newest",
        (Argument("turn", "id of the turn; none: list them", required=False),),
        (
            Option("--follow", "draw its events until it ends, and print its reply"),
            Option("--cancel", "ask it to stop"),
            Option("--dead", "list what was given up: turns that failed in the fleet, and webhooks"),
            _URL,
            _VERBOSE,
            _JSON,
        ),
    ),
    Command(
        "keys",
        "Fleet",
        "make, list and revoke keys of the HTTP API",
        (
            Argument("action", "what to do", choices=("new", "list", "revoke")),
            Argument("name", "name of the key", required=False),
        ),
        (
            Option("--scopes", "comma-separated: read, enqueue, decide, admin", "<scopes>"),
            Option("--workflows", "comma-separated slugs the key is bound to (default: all)", "<slugs>"),
            Option(
                "--rate-limit",
                "requests a second or minute, as 5/s or 30/min (default: the settings')",
                "<rate>",
            ),
            Option("--max-body-bytes", "longest request body (default: the settings')", "<n>", kind="count"),
            _JSON,
        ),
    ),
    Command(
        "new",
        "Authoring",
        "write a small valid workflow with one case and its model script",
        (Argument("slug", "name of the directory under workflows/"),),
        (Option("--title", "title of the workflow", "<text>"),),
    ),
    Command(
        "graph",
        "Authoring",
        "draw a workflow",
        (_WORKFLOW,),
        (Option("--format", "mermaid (default), dot or svg", "<format>", choices=("mermaid", "dot", "svg")),),
        workflow="argument",
    ),
    Command(
        "case",
        "Authoring",
        "write a case and its model script from a recorded session",
        (
            _SESSION,
            Argument(
                "case", "id of the new case, such as refunds/late (default: the session's)", required=False
            ),
        ),
        (
            Option(
                "--out", "case file (*.test.yaml) or directory (default: the workflow's tests/)", "<path>"
            ),
            _WORKFLOW_OPTION,
        ),
        workflow="option",
        header="plain",
    ),
    Command(
        "schema",
        "Authoring",
        "print a JSON Schema for editors",
        (Argument("document", "which document", choices=("workflow", "case")),),
    ),
    Command(
        "explain",
        "Authoring",
        "explain a diagnostic of validate",
        (
            Argument(
                "id", "id of the diagnostic, such as doc.no-start-state; none: list them", required=False
            ),
        ),
    ),
    Command(
        "completion",
        "Other",
        "print a completion script for a shell",
        (Argument("shell", "which shell", choices=("bash", "zsh", "fish")),),
        details='For bash: eval "$(archmax completion bash)"; zsh, behind compinit: source <(archmax completion zsh); '
        "fish: archmax completion fish | source.",
    ),
    Command(
        "help",
        "Other",
        "show the commands, or the help of one",
        (Argument("command", "name of a command", required=False),),
    ),
)


def find(name: str) -> Command | None:
    """The command called `name`, spelled exactly."""
    return next((command for command in COMMANDS if command.name == name), None)
