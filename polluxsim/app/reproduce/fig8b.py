"""Figure 8b: completion times by scheduling interval."""

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
    """Draw the line."""
    return by_axis(runs, "engine.round_interval", by=[])
