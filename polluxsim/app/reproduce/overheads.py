"""What re-allocations cost, and what agents gain that need not explore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.comparison import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

SHORT = ("cifar10", "ncf")
"""Applications of the smallest size class. Source: Pollux (OSDI '21), Table 1."""


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield overheads and mean completion times of every run."""
    for run in runs.made:
        for metric, value in metrics(run.jobs()).items():
            yield Sample(metric, run.arm.name, value, run.workload, run.seed)


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Return no figure: a table says it all."""
    return {}


def metrics(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the metrics of one run [s, or 1].

    `time at one placement` is the time that jobs held GPUs over their starts, the first ones included; `time between
    re-allocations` the same over the starts after the first.
    """
    run_time, restarts = float(jobs["run_time"].sum()), int(jobs["num_restarts"].sum())
    started = int((jobs["run_time"] > 0).sum())
    short = jobs["application"].isin(SHORT)
    found = {
        "time at one placement": run_time / max(restarts + started, 1),
        "share of run time in restarts": float(jobs["restart_time"].sum()) / run_time,
        "average JCT": float(jobs["jct"].mean(skipna=False)),
    }
    if restarts:
        found["time between re-allocations"] = run_time / restarts
    if short.any():
        found["average JCT of short jobs"] = float(jobs["jct"][short].mean(skipna=False))
    return found
