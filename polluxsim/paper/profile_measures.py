"""What experiments measure of profiles alone, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.look.agent_model import agent_model
from polluxsim.look.fitted_speed import FittedSpeed, fitted_speed, mean_error
from polluxsim.look.plot.batch_sizes import REPLICAS, STAGES, best_choice, efficiencies
from polluxsim.look.samples import Sample
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.fixed_placement import Alone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.paper.runs import Runs

SHOWN = "cifar10"
"""The application of Figures 1 and 2."""


def of_profiles(runs: Runs) -> Iterator[Sample]:
    """Yield what each profile says of one job alone."""
    for name, profile in runs.profiles.items():
        for metric, value in of_profile(profile).items():
            yield Sample(metric, name, value)


def of_profile(profile: Profile) -> dict[str, float]:
    """Return work [M0-steps], noise scale [examples], and step and completion time on one GPU [s], all at M0."""
    limits = profile.application
    size, last = limits.init_batch_size, limits.num_epochs - 1
    step_time = Alone(profile, (1,)).step_time(split_batch_size(limits, size, 1))
    return {
        "work [M0-steps]": profile.epoch_end(last),
        "first noise scale [examples]": profile.gradient_statistics(size, 0).noise_scale(size),
        "last noise scale [examples]": profile.gradient_statistics(size, last).noise_scale(size),
        "step time on 1 GPU": step_time,
        "completion time on 1 GPU": step_time * profile.epoch_end(last),
    }


def best_batch_sizes(runs: Runs) -> Iterator[Sample]:
    """Yield the batch size that takes the least time, by GPUs and stage [examples]."""
    for count in REPLICAS:
        for stage, shares in STAGES.items():
            if choice := best_choice(runs.profiles[SHOWN], count, shares):
                yield Sample("best batch size", f"{count} GPUs, {stage}", choice.batch_size(count))


def efficiency_by_stage(runs: Runs) -> Iterator[Sample]:
    """Yield the efficiency of a small and of the largest batch size, early and late in training."""
    profile = runs.profiles[SHOWN]
    tenth = max(profile.application.num_epochs // 10, 1)
    for name, size in (("small batch", profile.batch_sizes[1]), ("large batch", profile.batch_sizes[-1])):
        values = efficiencies(profile, size)
        yield Sample("efficiency", f"{name}, first tenth", float(np.mean(values[:tenth])))
        yield Sample("efficiency", f"{name}, last tenth", float(np.mean(values[-tenth:])))


def fit_errors(runs: Runs) -> Iterator[Sample]:
    """Yield the mean error of each application's modelled throughput, and their average."""
    errors = {name: mean_error(comparison) for name, comparison in fits(runs.profiles).items()}
    for name, error in errors.items():
        yield Sample("error of throughput", name, error)
    yield Sample("error of throughput", "average", float(np.mean(list(errors.values()))))


def fits(profiles: Mapping[str, Profile]) -> dict[str, FittedSpeed]:
    """Return each application's throughput, as the profile has it and as an agent would fit it."""
    return {name: fitted_speed(profile, agent_model(profile), name) for name, profile in profiles.items()}
