"""Figure 8a: completion times by job load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.figures.groups import POLICY
from polluxsim.app.reproduce.axis import LOAD, by_axis
from polluxsim.app.reproduce.completion_times import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

__all__ = ["draw", "measure"]


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw a line for each policy."""
    return by_axis(runs, LOAD, by=[POLICY])
