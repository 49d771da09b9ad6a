"""Records of runs: their types and units, Parquet tables, and run folders."""

from __future__ import annotations

from typing import Any

from polluxsim.common.former_names import former_attribute


def __getattr__(name: str) -> Any:
    """Return a record type by its former name, like `polluxsim.records.JobRecord`, with a warning."""
    return former_attribute(__name__, name)
