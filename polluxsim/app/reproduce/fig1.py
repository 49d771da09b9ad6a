"""Figure 1: the best batch size by GPUs and by stage of training, of one application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.comparison import Sample
from polluxsim.analysis.figures.training import REPLICAS, STAGES, best_batch_sizes, best_choice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

APPLICATION = "cifar10"


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield the batch size that takes the least time, by GPUs and stage [examples]."""
    profile = runs.inputs.load_profiles()[APPLICATION]
    for count in REPLICAS:
        for stage, shares in STAGES.items():
            if choice := best_choice(profile, count, shares):
                yield Sample("best batch size", f"{count} GPUs, {stage}", choice.batch_size(count))


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw throughput and best batch size by GPUs."""
    return {runs.experiment.name: best_batch_sizes(runs.inputs.load_profiles()[APPLICATION])}
