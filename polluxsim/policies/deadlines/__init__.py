"""Elastic policies for jobs with deadlines."""

from __future__ import annotations

from typing import Any

from polluxsim.common.former_names import former_attribute


def __getattr__(name: str) -> Any:
    """Return `EarliestDeadline`, which was in the module `polluxsim.policies.deadlines`, with a warning."""
    return former_attribute(__name__, name)
