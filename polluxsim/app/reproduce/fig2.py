"""Figure 2: what large batches cost in statistical efficiency, over training, of one application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.analysis.comparison import Sample
from polluxsim.analysis.figures.training import efficiencies, training_curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs

APPLICATION = "cifar10"


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield the efficiency of a small and of the largest batch size, early and late in training."""
    profile = runs.inputs.load_profiles()[APPLICATION]
    tenth = max(profile.application.num_epochs // 10, 1)
    for name, size in (("small batch", profile.batch_sizes[1]), ("large batch", profile.batch_sizes[-1])):
        values = efficiencies(profile, size)
        yield Sample("efficiency", f"{name}, first tenth", float(np.mean(values[:tenth])))
        yield Sample("efficiency", f"{name}, last tenth", float(np.mean(values[-tenth:])))


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw efficiency, and validation metric where it was measured, over training."""
    return {runs.experiment.name: training_curves(runs.inputs.load_profiles()[APPLICATION])}
