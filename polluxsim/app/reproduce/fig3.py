"""Figure 3: how well the agents' throughput model fits each application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.analysis.agent_model import agent_model
from polluxsim.analysis.comparison import Sample
from polluxsim.analysis.figures.throughput import throughput
from polluxsim.analysis.fit_figure import Comparison, compare, mean_error
from polluxsim.models.card import CardProfile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield the mean error of each application's throughput, and their average."""
    errors = {name: mean_error(comparison) for name, comparison in _comparisons(runs).items()}
    for name, error in errors.items():
        yield Sample("error of throughput", name, error)
    yield Sample("error of throughput", "average", float(np.mean(list(errors.values()))))


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw throughput by GPUs and by batch size, as the profile has it and as fitted."""
    profiles = runs.inputs.load_profiles().values()
    points = "card" if all(isinstance(profile, CardProfile) for profile in profiles) else "measured"
    figure = throughput(list(_comparisons(runs).values()), (points, "throughput model fitted to it"))
    return {runs.experiment.name: figure}


def _comparisons(runs: Runs) -> dict[str, Comparison]:
    profiles = runs.inputs.load_profiles()
    return {name: compare(profile, agent_model(profile), name) for name, profile in profiles.items()}
