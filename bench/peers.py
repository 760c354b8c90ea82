"""The peers, run in turn with their own harness in the same run: what a user would pick instead.

A peers folder holds one script per peer and says in its `common.py` where their environments are (`$PEERS_ROOT`). The
scripts write `<peer>.json` to `$PEERS_RESULTS`; a peer whose environment is missing is skipped.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.figures import Row

#: peer → its environment below `$PEERS_ROOT`, and its script
PEERS: Final = {
    "restate": ("venv-restate", "peer_restate.py"),
    "celery": ("venv-lc", "peer_celery.py"),
    "dbos": ("venv-dbos", "peer_dbos.py"),
    "pydantic": ("venv-dbos", "peer_pydantic.py"),
    "temporal": ("venv-temporal", "peer_temporal.py"),
    "aegra": ("venv-aegra", "peer_aegra.py"),
    "lgapi": ("venv-lgapi", "peer_lgapi.py"),
}
STEP_SECONDS: Final = 3600


@dataclass(frozen=True, kw_only=True)
class PeerRow(Row):
    """One row of a peer. Seconds where `unit` is `s`."""

    peer: str


def run_peers(
    folder: Path, chosen: list[str], results: Path, *, quick: bool, quiet_seconds: float
) -> list[str]:
    """Run peers one after the other; what became of each, in words.

    `chosen`: names, each with options of its script behind it (`celery --savers sqlite,objs3`); empty: all there are.
    """
    results.mkdir(parents=True, exist_ok=True)
    root = Path(_root(folder))
    told: list[str] = []
    for words in [shlex.split(text) for text in chosen] or [[name] for name in PEERS]:
        name, *options = words
        environment, script = PEERS[name]
        python = root / environment / "bin/python"
        if not python.exists():
            told.append(f"{name}: skipped, no {environment} in $PEERS_ROOT")
            continue
        given = {
            **os.environ,
            "PEERS_RESULTS": str(results.resolve()),
            "PEERS_QUIET_S": f"{quiet_seconds:g}",
            **({"PEERS_QUICK": "1"} if quick else {}),
        }
        print(f"peer {name}", flush=True)
        try:
            subprocess.run(
                [python, script, *options], cwd=folder, env=given, check=True, timeout=STEP_SECONDS
            )
            told.append(f"{name}: ran")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
            told.append(
                f"{name}: did not finish ({type(problem).__name__}); its rows are those it had written"
            )
    return told


def _root(folder: Path) -> str:
    found = subprocess.run(
        [sys.executable, "-c", "import common; print(common.ROOT)"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.strip()


def read_peers(results: Path) -> list[PeerRow]:
    """Every row with a value, of every peer."""
    rows: list[PeerRow] = []
    for path in sorted(results.glob("*.json")):
        body: dict[str, Any] = json.loads(path.read_text())
        rows += [
            PeerRow(
                row["workload"],
                row["variant"],
                row["metric"],
                row["unit"],
                row["median"],
                row["p99"],
                row["n"],
                cpu_available=row["meta"].get("cpu_avail", 1.0),
                peer=body["peer"],
            )
            for row in body["results"]
            if row["n"]
        ]
    return rows
