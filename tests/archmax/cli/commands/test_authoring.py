"""`new`, `validate` and `graph`, in processes of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from archmax.validation import validate_workflow
from engine.spec.reference import diagnostics_by_id
from tests.support.command import REPOSITORY, archmax, write_workflows


def test_a_new_workflow_is_valid_without_a_warning_and_can_be_drawn(tmp_path: Path):
    made = archmax("new", "paper-desk", "--title", 'Paper: "desk"\x07', cwd=tmp_path)
    assert made.returncode == 0
    files = made.stdout.split()
    assert [(tmp_path / file).is_file() for file in files] == [True, True, True]
    assert "archmax test paper-desk" in made.stderr

    checked = archmax("validate", cwd=tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "valid — 0 error(s), 0 warning(s)\n")
    assert checked.stderr == f"◆ paper-desk\n  directory  {tmp_path}\n✔ no issues found\n"

    drawn = archmax("graph", "--format", "svg", cwd=tmp_path)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert drawn.stdout.startswith("<svg ")


def test_an_existing_workflow_is_never_written_over_and_a_bad_slug_is_a_usage_error(tmp_path: Path):
    write_workflows(tmp_path, "shop")
    before = (tmp_path / "workflows/shop/workflow.yaml").read_bytes()
    again = archmax("new", "shop", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "Error: workflows/shop exists already; nothing was written\n"
    assert (tmp_path / "workflows/shop/workflow.yaml").read_bytes() == before
    bad = archmax("new", "../up", cwd=tmp_path)
    assert bad.returncode == 2
    assert "slug" in bad.stderr


def test_the_minimal_workspace_validates_with_one_warning(tmp_path: Path):
    """07 §1.1, §8."""
    write_workflows(tmp_path, "greet")
    run = archmax("validate", "greet", "--root", str(tmp_path), cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "valid — 0 error(s), 1 warning(s)\n")
    line = run.stderr.splitlines()[-1]
    assert line.startswith("  ⚠ warn   ")
    assert line.endswith("[workflows/greet/workflow.yaml]")


def test_an_invalid_workflow_exits_1_with_one_line_per_diagnostic(tmp_path: Path):
    """07 §8."""
    write_workflows(tmp_path, "shop")
    (tmp_path / "workflows/shop/workflow.yaml").write_text(
        "states:\n  ask:\n    triggers: { manual: }\n    instructions: x\n"
        "    transitions: [{ to: anwser, description: y }]\n  answer:\n"
    )
    run = archmax("validate", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.startswith("invalid — 1 error(s), ")
    errors = [line for line in run.stderr.splitlines() if line.startswith("  ✖ error  ")]
    assert len(errors) == 1
    assert "'states.ask.transitions.0.to'" in errors[0]
    assert "anwser" in errors[0]

    as_json = archmax("validate", "--json", cwd=tmp_path)
    assert as_json.returncode == 1
    document = json.loads(as_json.stdout)
    assert (document["workflow"], document["valid"]) == ("shop", False)
    assert "doc.undefined-target" in [diagnostic["id"] for diagnostic in document["diagnostics"]]
    assert all({"severity", "message", "id"} <= set(diagnostic) for diagnostic in document["diagnostics"])

    drawn = archmax("graph", cwd=tmp_path)
    assert (drawn.returncode, drawn.stdout) == (1, "")
    assert drawn.stderr.startswith("Error: ")
    assert drawn.stderr.count("\n") == 1


def test_a_workflow_that_is_missing_is_an_error_diagnostic_and_no_usage_error(tmp_path: Path):
    """07 §8."""
    run = archmax("validate", "gone", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.startswith("invalid — 1 error(s)")
    assert "workflows/gone/workflow.yaml" in run.stderr


def test_an_unreadable_env_line_is_a_warning_under_the_header(tmp_path: Path):
    """07 §4, §5."""
    write_workflows(tmp_path, "greet")
    (tmp_path / ".env").write_text("what is this\n")
    run = archmax("validate", cwd=tmp_path)
    assert run.returncode == 0
    assert f"⚠ [env] {tmp_path}/.env:1" in run.stderr


@pytest.mark.parametrize("given", [str, Path])
async def test_the_library_form_resolves_its_root(tmp_path: Path, given: type[str] | type[Path]):
    """07 §8."""
    write_workflows(tmp_path / "real", "greet")
    os.symlink(tmp_path / "real", tmp_path / "link")
    result = await validate_workflow("greet", given(tmp_path / "link"))
    assert result.root == tmp_path / "real"
    assert (result.valid, result.errors, result.warnings) == (True, 0, 1)
    assert result.to_json()["diagnostics"][0]["id"] == "instructions.absent"


async def test_mount_names_are_checked_against_the_conventional_table(tmp_path: Path):
    """07 §8."""
    write_workflows(tmp_path, "greet")
    file = tmp_path / "workflows/greet/workflow.yaml"
    file.write_text(file.read_text() + "    mounts: { allow: [elsewhere] }\n")
    ids = [diagnostic.id for diagnostic in (await validate_workflow("greet", tmp_path)).diagnostics]
    assert "mounts.unknown" in ids


def test_a_diagnostic_is_explained_and_a_misspelt_one_gets_a_hint(tmp_path: Path):
    explained = archmax("explain", "doc.lock-owner", cwd=tmp_path)
    assert (explained.returncode, explained.stderr) == (0, "")
    assert explained.stdout.startswith("doc.lock-owner: ")
    misspelt = archmax("explain", "doc.lock-ownr", cwd=tmp_path)
    assert (misspelt.returncode, misspelt.stdout) == (1, "")
    assert "doc.lock-owner" in misspelt.stderr
    assert misspelt.stderr.count("\n") == 1
    listed = archmax("explain", cwd=tmp_path)
    assert all(f"  {id_} " in listed.stdout for id_ in diagnostics_by_id())


def test_the_schema_is_json(tmp_path: Path):
    run = archmax("schema", "workflow", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["required"] == ["states"]


async def test_the_cases_of_a_workflow_are_checked_with_it(tmp_path: Path):
    """07 §8, 06 §12."""
    write_workflows(tmp_path, "greet")
    tests = tmp_path / "workflows/greet/tests"
    tests.mkdir()
    (tests / "a.test.yaml").write_text("title: A\n")
    result = await validate_workflow("greet", tmp_path)
    assert [(d.id, d.file) for d in result.diagnostics][-1] == (
        "case.schema",
        "workflows/greet/tests/a.test.yaml",
    )


def test_validate_reads_the_hosts_mounts_skills_and_tools(tmp_path: Path):
    """Ruling 18; 01 §19.5: mount names are the host's, and so are the paths its tools declare."""
    write_workflows(tmp_path, "greet")
    file = tmp_path / "workflows/greet/workflow.yaml"
    file.write_text(
        file.read_text()
        + "    mounts: { allow: [ledger] }\n"
        + "    skills: { allow: [fees] }\n"
        + '    tools: { allow: [{ tool: stamp, paths: ["archive/x"] }] }\n'
    )
    bundle = tmp_path / "kit/fees"
    bundle.mkdir(parents=True)
    (bundle / "SKILL.md").write_text("---\ndescription: Fees.\n---\n")
    (tmp_path / "desk_host.py").write_text(
        "from engine.workspace.directory_backend import DirectoryBackend\n\n\n"
        "def host(context):\n"
        "    assert (context.workflow, context.purpose) == ('greet', 'validate')\n"
        "    at = context.root\n"
        "    stamp = {'description': 'x', 'handler': print, 'paths': {'sheet': 'write'}}\n"
        "    return {\n"
        "        'mounts': {\n"
        "            '/ledger/': {'backend': DirectoryBackend(at), 'governed': True},\n"
        "            '/archive/': DirectoryBackend(at),\n"
        "            '/kit/': DirectoryBackend(at / 'kit'),\n"
        "        },\n"
        "        'skills': ['kit/'],\n"
        "        'tools': {'stamp': stamp},\n"
        "        'model': 'not looked at',\n"
        "    }\n"
    )
    plain = archmax("validate", "--json", cwd=tmp_path)
    ids = [item["id"] for item in json.loads(plain.stdout)["diagnostics"]]
    assert ids == ["instructions.absent", "skills.unknown", "mounts.unknown"]
    wired = archmax(
        "validate", "--json", cwd=tmp_path, env={"ARCHMAX_HOST": "desk_host:host", **_importing(tmp_path)}
    )
    assert wired.returncode == 1, wired.stderr
    found = [(item["id"], item["message"]) for item in json.loads(wired.stdout)["diagnostics"]]
    assert [id_ for id_, _ in found] == [
        "instructions.absent",
        "skills.no-root-block",
        "mounts.no-root-block",
        "tools.read-only",
    ]
    assert "'stamp' on 'archive/x'" in found[-1][1]


def _importing(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(folder)))}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def host(context):\n    return {'tolls': []}\n", "tolls"),
        ("def host(context):\n    raise OSError('no database')\n", "no database"),
        ("hots = 1\n", "has no function 'host'"),
        ("def host(context):\n    return {'tools': {'archmax_x': {'handler': print}}}\n", "archmax_x"),
    ],
)
def test_a_host_that_cannot_be_used_stops_validate_by_name(tmp_path: Path, source: str, says: str):
    """Ruling 18, 02 §4.5."""
    write_workflows(tmp_path, "greet")
    (tmp_path / "desk_host.py").write_text(source)
    run = archmax("validate", cwd=tmp_path, env={"ARCHMAX_HOST": "desk_host:host", **_importing(tmp_path)})
    assert (run.returncode, run.stdout) == (1, "")
    assert says in run.stderr.splitlines()[-1]
