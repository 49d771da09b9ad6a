"""Figure 7: finish-time fairness by policy and fairness power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.comparison import Sample
from polluxsim.analysis.figures.cdf import FAIRNESS, fairness_cdf
from polluxsim.metrics.fairness import FAIR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield the largest ρ of every run, and the share of its jobs with ρ below 2."""
    for run in runs.made:
        fairness = run.jobs()[FAIRNESS].fillna(float("inf"))
        yield Sample("largest ρ", run.arm.name, float(fairness.max()), run.workload, run.seed)
        yield Sample("jobs with ρ < 2", run.arm.name, float((fairness < FAIR).mean()), run.workload, run.seed)


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw the distribution of ρ under every arm."""
    return {runs.experiment.name: fairness_cdf(runs.groups())} if runs.made else {}
