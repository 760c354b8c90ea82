"""`python -m archmax`: the command, for a process that cannot rely on PATH."""

from __future__ import annotations

import sys

from archmax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
