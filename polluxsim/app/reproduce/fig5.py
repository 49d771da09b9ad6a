"""Figure 5: GPUs in use and their statistical efficiency over time, by policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.comparison import Sample
from polluxsim.analysis.figures.usage import bin_edges, by_bin, usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield GPUs in use and efficiency, both over the whole run, the efficiency weighted by GPU-time."""
    for run in runs.made:
        result = run.read().result
        (gpus,), (efficiency,) = by_bin(result, bin_edges(result.end_time, result.end_time))
        yield Sample("efficiency", run.arm.name, float(efficiency), run.workload, run.seed)
        yield Sample("GPUs in use", run.arm.name, float(gpus), run.workload, run.seed)


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw both in bins of 30 minutes, for the first workload."""
    if not runs.made:
        return {}
    first = runs.made[0]
    groups = runs.groups(workload=first.workload, seed=first.seed)
    return {runs.experiment.name: usage(groups)}
