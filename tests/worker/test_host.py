"""`ARCHMAX_HOST`: a deployment's own wiring, and the settings it is laid over (ruling 18, 05 §15)."""

from __future__ import annotations

import os
import textwrap
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from archmax.settings import SettingsError, read_settings
from core.errors import ArchmaxError
from engine.errors import HostError
from engine.host.stores import create_memory_session_store
from engine.turn.assembly import assemble
from sandbox import HostSandbox, Sandbox
from tests.support.engine import RawModel
from tests.support.second_runtime import SecondRuntime
from worker.host import KEYWORDS, HostContext, Purpose, load_host, session_store, wire_fleet
from worker.settings import FleetSettings, ModelEnvironment
from worker.zone import local_zone

SPEC = "states: {work: {triggers: {manual: {}, mail: {}}, tools: {allow: [look]}}}\n"


@pytest.fixture
def host_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module `hostcode_<n>` importable as the process stands; returns its name."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def write(body: str) -> str:
        name = f"hostcode_{len(list(folder.iterdir()))}_{os.getpid()}_{tmp_path.name.replace('-', '_')}"
        (folder / f"{name}.py").write_text(textwrap.dedent(body))
        return name

    return write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    file = tmp_path / "root/workflows/desk/workflow.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(SPEC)
    return tmp_path / "root"


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with Sandbox(spare_processes=0) as made:
        yield made


def context(root: Path, purpose: Purpose = "worker") -> HostContext:
    return HostContext(root, None, purpose)


def settings(root: Path) -> FleetSettings:
    return FleetSettings(root=root)


async def test_without_a_host_there_is_nothing(root: Path) -> None:
    assert await load_host(None, context(root)) == {}
    assert await load_host("", context(root)) == {}


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_the_function_is_told_root_workflow_and_purpose(
    root: Path, host_module: Any, kind: str
) -> None:
    name = host_module(
        f"""
        {kind} host(context):
            return {{"system_prompt": f"{{context.root.name}} {{context.workflow}} {{context.purpose}}"}}
        """
    )
    given = await load_host(f"{name}:host", HostContext(root, "desk", "test"))
    assert given == {"system_prompt": "root desk test"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nocolon", "package.module:function"),
        ("no_such_module_at_all:host", "cannot be imported"),
        ("{module}:missing", "no function 'missing'"),
        ("{module}:raises", "it failed: ValueError: broken"),
        ("{module}:text", "returned str"),
        ("{module}:unknown", "unknown keys nonsense, on_event, workflow"),
    ],
)
async def test_what_cannot_be_used_stops_the_process_by_name(
    root: Path, host_module: Any, target: str, words: str
) -> None:
    module = host_module(
        """
        def raises(context): raise ValueError("broken")
        def text(context): return "no mapping"
        def unknown(context): return {"workflow": "x", "on_event": None, "nonsense": 1}
        """
    )
    with pytest.raises(HostError) as refused:
        await load_host(target.format(module=module), context(root))
    assert words in str(refused.value)
    assert target.format(module=module) in str(refused.value)


async def test_every_keyword_reaches_the_assembly(root: Path, sandbox: Sandbox) -> None:
    def look() -> str:
        """Looks."""
        return "seen"

    host: dict[str, Any] = {
        "tools": [look],
        "essential_tools": ["look"],
        "system_prompt": "House rules.",
        "mounts": {},
        "trigger": {"id": "mail"},
        "variables": {"desk": 4},
        "sub_workflow_bounds": {"max_depth": 1},
        "pricing": {"default": {"input": 1, "output": 2}},
        "prompt_cache": {"enabled": False},
        "images": True,
        "policy_rules": [lambda action: None],
        "model": RawModel(answers=[AIMessage("x")]),
    }
    assert set(host) <= KEYWORDS
    wiring = await wire_fleet(settings(root), ModelEnvironment(), host, sandbox)
    assembly = assemble(wiring, "desk")
    assert assembly.default_trigger == "mail"
    assert assembly.variables == {"desk": 4}
    assert "look" in assembly.tools
    assert (assembly.bounds.max_depth, assembly.bounds.max_concurrent) == (1, 4)
    assert assembly.static_prompt.startswith("House rules.")
    assert not assembly.cache.enabled
    assert wiring.options.images is not None
    assert assembly.pricing is not None
    assert len(assembly.policy_rules) == 1


async def test_a_hosts_mounts_replace_the_default_table(root: Path, sandbox: Sandbox) -> None:
    (root / "AGENTS.md").write_text("You are Ann.")
    plain = await wire_fleet(settings(root), ModelEnvironment(), {}, sandbox)
    assert plain.options.persona == "You are Ann."
    assert set(plain.mount_table.mounts) == {"skills", ".platform", "AGENTS.md"}
    replaced = await wire_fleet(settings(root), ModelEnvironment(), {"mounts": {}}, sandbox)
    assert replaced.options.persona is None
    assert replaced.mount_table.mounts == {}


async def test_a_hosts_runtime_serves_a_fleets_scripts(root: Path, sandbox: Sandbox) -> None:
    """Ruling 18, 03 §19.6: the keyword means what it means in `create_agent`."""
    runtime = SecondRuntime()
    wiring = await wire_fleet(settings(root), ModelEnvironment(), {"sandbox_runtime": runtime}, sandbox)
    assert isinstance(wiring.sandbox, HostSandbox) and wiring.sandbox.runtime is runtime
    assert (await wire_fleet(settings(root), ModelEnvironment(), {}, sandbox)).sandbox is sandbox
    with pytest.raises(TypeError, match="sandbox_runtime"):
        await wire_fleet(settings(root), ModelEnvironment(), {"sandbox_runtime": object()}, sandbox)


async def test_a_fleets_sessions_lie_in_the_fleets_store(root: Path) -> None:
    """Ruling 21: a store of the host's own serves a command, never a worker."""
    store = create_memory_session_store()
    host = {"workspace": {"session_store": store}}
    assert session_store(settings(root), host, "run") is store
    assert session_store(settings(root), {}, "worker") is None
    with pytest.raises(HostError, match="ARCHMAX_STORE"):
        session_store(settings(root), host, "worker")
    with pytest.raises(HostError, match="ARCHMAX_ROOT"):
        session_store(settings(root), {"workspace": {"root_dir": root.parent}}, "run")


async def test_a_faulty_option_is_an_error_before_any_turn(root: Path, sandbox: Sandbox) -> None:
    for host in ({"images": {"big": 1}}, {"prompt_cache": {"ttl": "1d"}}, {"variables": {"a b": 1}}):
        with pytest.raises((TypeError, ValueError, ArchmaxError)):
            assemble(await wire_fleet(settings(root), ModelEnvironment(), host, sandbox), "desk")


# -- environment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", True),
        ("TRUE", True),
        ("yes", True),
        ("on", True),
        ("0", False),
        ("false", False),
        ("No", False),
        ("off", False),
        ("", True),
    ],
)
def test_booleans_are_eight_words_and_blank_is_unset(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    """05 §15."""
    monkeypatch.setenv("ARCHMAX_STREAMING", value)
    assert read_settings(ModelEnvironment).streaming is expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ARCHMAX_STREAMING", value) for value in ("y", "t", "2", "enabled")),
        ("ARCHMAX_PROMPT_CACHE", "maybe"),
        ("ARCHMAX_PROMPT_CACHE_TTL", "2h"),
        ("ARCHMAX_MAX_TOKENS", "many"),
        ("ARCHMAX_MAX_TOKENS", "0"),
        ("ARCHMAX_TEMPERATURE", "inf"),
        ("ARCHMAX_PRICE_INPUT", "nan"),
        ("ARCHMAX_PRICE_OUTPUT", "-1"),
    ],
)
def test_any_other_word_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"{name}: "):
        read_settings(ModelEnvironment)


def test_the_zone_is_told_by_its_name(tmp_path: Path) -> None:
    """03 §15."""
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    found = local_zone({}, link)
    assert found is not None
    assert found[1] == "Europe/Berlin"
    assert local_zone({"TZ": ":Asia/Tokyo"}, link) is not None
    for unnamed in ({"TZ": "UTC"}, {"TZ": "EST5EDT,M3"}, {"TZ": "../etc/passwd"}):
        assert local_zone(unnamed, link) is None
    assert local_zone({}, tmp_path / "missing") is None
