"""One call as the rules see it: its state, its arguments, and every path it names with what holds that path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from core.jsontext import Json
from core.paths import CanonicalPath
from engine.governance.calls import ToolCall, Verdict, block
from engine.governance.guards import Call
from engine.governance.machine import Bundle, Machine, StateSurface
from engine.governance.references import Variables
from engine.governance.tool_paths import PathAccess, call_paths
from engine.governance.zones import Zone, zone_of

_PLAIN_ZONES: Final = (Zone.RUN, Zone.RUN_OPEN, Zone.ROOT)


class Place(NamedTuple):
    """One path of a call and what holds it."""

    argument: str
    access: PathAccess
    text: str
    zone: Zone
    mount: str | None
    bundle: Bundle | None

    @property
    def plain(self) -> bool:
        """A session file that is not to be executed: no rule about places has anything to say."""
        return (
            self.mount is None
            and self.bundle is None
            and self.zone in _PLAIN_ZONES
            and self.access is not PathAccess.EXECUTE
        )


class Subject(NamedTuple):
    """A call with everything the rules ask about it."""

    machine: Machine
    surface: StateSurface
    action: ToolCall
    variables: Variables
    call: Call
    paths: tuple[Place, ...]
    #: every path is plain
    plain: bool

    @property
    def tool(self) -> str:
        return self.call.tool

    @property
    def state(self) -> str:
        return self.surface.state.slug


_NO_ARGS: Final[Mapping[str, Json]] = {}


def subject_of(machine: Machine, action: ToolCall, variables: Variables) -> Subject | Verdict:
    """Look at a call; a call that has no shape to look at is blocked at once."""
    tool = action.tool if isinstance(action.tool, str) else str(type(action.tool))
    surface = machine.states.get(action.state) if isinstance(action.state, str) else None
    if surface is None:
        return block("tool.not-allowed", f"{tool!r} is not allowed in state {action.state!r}: no such state")
    args = _NO_ARGS if action.args is None else action.args
    if not isinstance(args, Mapping):
        return block("tool.path-argument", f"{tool!r} takes its arguments as one object of names and values")
    declared = machine.tool_paths.get(tool, ())
    named = call_paths(tool, declared, args) if declared else ()
    call = Call(tool, args, declared, named)
    places = tuple(place_of(machine, path.argument, path.access, path.place) for path in named)
    return Subject(machine, surface, action, variables, call, places, all(place.plain for place in places))


def place_of(machine: Machine, argument: str, access: PathAccess, place: CanonicalPath) -> Place:
    """What holds one path of a call."""
    text = place.text
    mount = machine.mounts.mount_of(text)
    zone = zone_of(text, place.escaping, mount, machine.mounts)
    return Place(argument, access, text, zone, mount, machine.bundles.find(text))
