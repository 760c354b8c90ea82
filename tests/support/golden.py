"""Golden files: a drawn text compared with the file that shows how it should look.

`ARCHMAX_TEST_GOLDEN=write` writes the files anew; read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path


def assert_golden(path: Path, text: str) -> None:
    if os.environ.get("ARCHMAX_TEST_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
