"""Completion times and makespan of every run: what most tables and figures compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.analysis.comparison import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

LARGE = "imagenet"
"""The jobs whose mean completion time stands in the paper's table as "99 %" JCT."""


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield mean, tail and end of every run."""
    for run in runs.made:
        for metric, value in metrics(run.jobs()).items():
            yield Sample(metric, run.arm.name, value, run.workload, run.seed)


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Return no figure: a table says it all."""
    return {}


def metrics(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the metrics of one run [s]; a job that was cut off makes them infinite, as no bound can be compared.

    `makespan` counts from the first submission, `last completion` from the workload's start, as published figures do.
    """
    jct = jobs["jct"].fillna(np.inf).to_numpy()
    large = jct[(jobs["application"] == LARGE).to_numpy()]
    end = float(jobs["completion_time"].fillna(np.inf).max())
    found = {
        "average JCT": float(jct.mean()),
        "99th percentile JCT": float(np.percentile(jct, 99)),
        "makespan": end - float(jobs["submit_time"].min()),
        "last completion": end,
    }
    return found | ({"mean JCT imagenet": float(large.mean())} if len(large) else {})
