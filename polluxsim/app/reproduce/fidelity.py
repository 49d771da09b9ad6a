"""Simulator fidelity: completion times over all workloads, and their distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.figures.cdf import jct_cdf
from polluxsim.app.reproduce.completion_times import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

__all__ = ["draw", "measure"]


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw the distribution of completion times under every arm."""
    return {runs.experiment.name: jct_cdf(runs.groups())} if runs.made else {}
