"""Completion times along an axis of settings, drawn as the panels of Figure 8 are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from polluxsim.analysis.figures.sweep import sweep
from polluxsim.storage import flat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

LOAD = "workload.load"
"""Stands for the number of jobs, which workloads in files do not tell in their settings."""


def by_axis(runs: Runs, setting: str, by: Sequence[str]) -> Mapping[str, Figure]:
    """Return a figure of the average completion time against a setting, none where nothing ran.

    Parameters
    ----------
    runs
        The runs.
    setting
        Along the axis, by its dotted name; or `LOAD`.
    by
        Settings that a line has in common.
    """
    if not runs.made:
        return {}
    rows = []
    for run in runs.made:
        info = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        rows.append({**flat(info["config"]), LOAD: run.arm.load, "avg_jct": info["summary"]["avg_jct"]})
    return {runs.experiment.name: sweep(pd.DataFrame(rows), setting, by=by)}
