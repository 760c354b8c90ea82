"""The image and compose, as far as they can be checked without a Docker daemon: pins, users, stages, and the wheel within."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from archmax.docs.configuration import settings_classes, variables
from tests.support.command import REPOSITORY
from worker.health import MAX_AGE_SECONDS

KNOWN = {name for settings in settings_classes() for name, _, _ in variables(settings)}


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (REPOSITORY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    return loaded


def of(instructions: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for found, rest in instructions if found == word]


def test_both_stages_start_from_one_base_of_a_full_version(instructions: list[tuple[str, str]]) -> None:
    (base,) = of(instructions, "ARG")
    assert re.fullmatch(r"PYTHON=3\.11\.\d+-slim-[a-z]+", base)
    assert of(instructions, "FROM") == ["python:${PYTHON} AS build", "python:${PYTHON}"]


def test_the_image_ends_as_a_user_without_rights_whose_id_the_chart_uses(
    instructions: list[tuple[str, str]],
) -> None:
    (user,) = of(instructions, "USER")
    chart = yaml.safe_load((REPOSITORY / "helm/archmax-fleet/values.yaml").read_text())
    assert user == f"{chart['pod']['runAsUser']}:{chart['pod']['runAsUser']}"
    last = [word for word, _ in instructions].index("USER")
    assert not any(word in ("RUN", "COPY") for word, _ in instructions[last:])


def test_the_process_is_started_by_an_init_and_no_shell(instructions: list[tuple[str, str]]) -> None:
    assert of(instructions, "ENTRYPOINT") == ['["tini", "--", "archmax"]']


def test_the_image_holds_what_is_pinned_with_hashes_and_nothing_to_build_with(
    instructions: list[tuple[str, str]],
) -> None:
    runs = of(instructions, "RUN")
    assert any("--require-hashes --requirement requirements.image.lock" in run for run in runs)
    stages = [index for index, (word, _) in enumerate(instructions) if word == "FROM"]
    assert not any("pip" in rest for word, rest in instructions[stages[1] :] if word == "RUN")


def test_the_images_lock_has_the_versions_the_tests_run_with() -> None:
    def pins(name: str) -> dict[str, str]:
        found = re.findall(r"^([a-z0-9._-]+)==(\S+)", (REPOSITORY / name).read_text(), re.MULTILINE)
        return dict(found)

    image, all_of_them = pins("requirements.image.lock"), pins("requirements.lock")
    assert image
    assert image.items() <= all_of_them.items()
    project = (REPOSITORY / "pyproject.toml").read_text()
    wanted = re.findall(
        r'^    "([A-Za-z0-9._-]+)(?:\[[a-z]+\])?[><=]',
        project.partition("[dependency-groups]")[0],
        re.MULTILINE,
    )
    assert {name.lower() for name in wanted} <= image.keys()
    assert "opentelemetry-sdk" in image
    assert "pytest" not in image


def test_every_package_is_copied_into_the_build_and_let_through_by_the_ignore_file(
    instructions: list[tuple[str, str]],
) -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    packages = re.search(r"\[tool\.hatch\.build\.targets\.wheel\]\npackages = \[(.+)\]", project)
    assert packages is not None
    names = set(re.findall(r'"(\w+)"', packages[1]))
    copied = {word for rest in of(instructions, "COPY") for word in rest.split()}
    allowed = {line.removeprefix("!") for line in (REPOSITORY / ".dockerignore").read_text().splitlines()}
    assert names <= copied
    assert names <= allowed
    assert {"requirements.image.lock", "pyproject.toml", "LICENSE", "README.md"} <= copied & allowed


def test_the_wheel_of_the_build_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    """The build step itself, without the network."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), str(REPOSITORY)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for package in ("archmax", "api", "core", "engine", "sandbox", "storage", "worker"):
        for file in (REPOSITORY / package).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith("."):
                assert str(file.relative_to(REPOSITORY)) in held
    metadata = next(name for name in held if name.endswith("entry_points.txt"))
    assert "archmax = archmax.cli.main:main" in zipfile.ZipFile(wheel).read(metadata).decode()


def test_every_variable_compose_sets_is_a_setting(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for variable in service.get("environment", {}):
            assert not variable.startswith("ARCHMAX_") or variable in KNOWN, f"{name}: {variable}"


def test_compose_runs_the_fleet_without_rights_and_on_this_machine_only(services: dict[str, Any]) -> None:
    assert set(services) == {"redis", "api", "worker", "beat", "flower"}
    for name, service in services.items():
        assert not service["image"].endswith(":latest")
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        if name != "redis":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_composes_workers_are_judged_like_the_charts(services: dict[str, Any]) -> None:
    for name in ("worker", "beat"):
        service = services[name]
        _, script = service["healthcheck"]["test"]
        assert service["environment"]["ARCHMAX_HEARTBEAT_FILE"] in script
        assert f"-lt {MAX_AGE_SECONDS}" in script
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) >= 3 * 120 + 40
