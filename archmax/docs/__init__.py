"""Manual pages that are generated from the code, so that they cannot go stale."""
