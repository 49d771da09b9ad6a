"""Figure 8c: completion times by slowdown of jobs that interfere, with and without avoidance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.app.reproduce.axis import by_axis
from polluxsim.app.reproduce.completion_times import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

__all__ = ["draw", "measure"]


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw a line with and one without avoidance."""
    return by_axis(runs, "engine.interference", by=["policy.avoid_interference"])
