"""The events an assembly is announced with: what was found, what is offered, what deserves a warning (03 §20, 05 §13)."""

from __future__ import annotations

from engine.errors import ModelConfigurationError
from engine.governance.names import DEFAULT_TOOLS, EVAL
from engine.governance.surface import offered_somewhere
from engine.governance.tool_paths import undeclared_path_arguments
from engine.models.caching import CacheMechanism, cache_mechanism, mixed_mechanisms
from engine.models.factory import ignored_model_ids, requested_id
from engine.spec.diagnostics import Diagnostic
from engine.spec.model import Spec, State
from engine.turn.assembly import Assembly
from engine.turn.recorder import EventStream


def announce(
    assembly: Assembly, events: EventStream, *, instance: bool = False, factory: bool = False
) -> None:
    """Tell what was assembled. `instance`, `factory`: an explicit model, a model factory was given.

    Never raises for what a warning can say; builds models only when somebody listens.
    """
    if not events.active:
        return
    spec = assembly.spec
    if offered_somewhere(assembly.machine, EVAL):
        events.emit({"type": "interpreter-enabled"})
    events.emit({"type": "skills-loaded", "names": list(assembly.wiring.skills.slugs)})
    if not assembly.plain:
        events.emit({"type": "graph-topology", "topology": "\n".join(map(_line, spec.states.values()))})
    withheld = [name for name in DEFAULT_TOOLS if not offered_somewhere(assembly.machine, name)]
    events.emit({"type": "prompt-shaping", "cache": _cache(assembly, None).value, "withheld": withheld})
    for scope, message in _warnings(assembly, instance=instance, factory=factory):
        events.emit({"type": "warning", "scope": scope, "message": message})


def _line(state: State) -> str:
    marks = [
        mark for mark in (state.type if state.type != "agent" else "", "terminal" * state.terminal) if mark
    ]
    label = f"{state.slug} ({', '.join(marks)})" if marks else state.slug
    targets = [edge.to for edge in state.transitions]
    if state.on_error is not None:
        targets.append(f"{state.on_error} on error")
    return f"{label} -> {', '.join(targets)}" if targets else label


def _warnings(assembly: Assembly, *, instance: bool, factory: bool) -> list[tuple[str, str]]:
    wiring, spec = assembly.wiring, assembly.spec
    found = [("skills", message) for message in wiring.skills.warnings]
    if assembly.plain:
        return found
    found += [
        ("lint", finding.message)
        for finding in wiring.library.load(spec.slug).lint
        if _applies(assembly, finding)
    ]
    found += [("tools", message) for message in _undeclared_paths(assembly)]
    ignored = ignored_model_ids(spec, has_factory=factory) if instance else None
    if ignored is not None:
        found.append(("model", ignored))
    mixed = _mixed(assembly, spec)
    if mixed is not None:
        found.append(("prompt-cache", mixed))
    return found


def _applies(assembly: Assembly, finding: Diagnostic) -> bool:
    """A guard's variable that the host seeds is guaranteed here, whatever the document says (02 §14.5)."""
    if finding.id != "guard.unguaranteed":
        return True
    return not any(f"refers to '{name}'" in finding.message for name in assembly.variables)


def _undeclared_paths(assembly: Assembly) -> list[str]:
    """Host tools with an argument that looks like a path and declares none (02 OP-23)."""
    found: list[str] = []
    for tool in assembly.wiring.options.tools:
        properties = assembly.tools[tool.name].schema.get("properties") or {}
        found += [
            f"host tool '{tool.name}': argument '{name}' looks like a path and is declared as none"
            for name in undeclared_path_arguments(tool.name, properties, assembly.machine.tool_paths)
        ]
    return found


def _mixed(assembly: Assembly, spec: Spec) -> str | None:
    """One warning about states whose model wants another native cache than the workflow's (03 §17.5)."""
    own = [(slug, state) for slug, state in spec.states.items() if state.model and state.type != "code"]
    if not own:
        return None
    states = [(slug, _cache(assembly, state)) for slug, state in own]
    return mixed_mechanisms(_cache(assembly, None), states)


def _cache(assembly: Assembly, state: State | None) -> CacheMechanism:
    """The mechanism of the workflow's model, or of a state's; a model that cannot be built yet says nothing."""
    if not assembly.cache.enabled:
        return CacheMechanism.OFF
    spec = assembly.spec
    role = "grader" if state is not None and state.type == "grader" else "agent"
    requested = spec.settings.model if state is None else requested_id(spec, state.slug)
    try:
        model = assembly.wiring.models.model(role, requested)
    except ModelConfigurationError:
        return CacheMechanism.UNSUPPORTED
    return cache_mechanism(model, assembly.cache)
