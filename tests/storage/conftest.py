from __future__ import annotations

from tests.support.seaweed import s3_store, seaweed

__all__ = ["s3_store", "seaweed"]
