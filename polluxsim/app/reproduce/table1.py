"""Table 1: what the workloads consist of, and the models' work, speed and noise scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.comparison import Sample
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.fixed_placement import Alone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs
    from polluxsim.models.profile import Profile


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield each application's share of every workload, and what its profile says of one job alone."""
    profiles = runs.inputs.load_profiles()
    # A workload is the same whatever its runs' seeds.
    for run in {run.workload: run for run in reversed(runs.made)}.values():
        shares = run.jobs()["application"].value_counts(normalize=True)
        for name in profiles:
            yield Sample("share of jobs", name, float(shares.get(name, 0.0)), run.workload, run.seed)
    for name, profile in profiles.items():
        for metric, value in of_profile(profile).items():
            yield Sample(metric, name, value)


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Return no figure: a table says it all."""
    return {}


def of_profile(profile: Profile) -> dict[str, float]:
    """Return work [M0-steps], noise scale [examples], and step and completion time on one GPU [s], all at M0."""
    limits = profile.application
    size, last = limits.init_batch_size, limits.num_epochs - 1
    choice = split_batch_size(limits, size, 1)
    alone = Alone(profile, (1,))
    return {
        "work [M0-steps]": profile.epoch_end(last),
        "first noise scale [examples]": profile.gradient_statistics(size, 0).noise_scale(size),
        "last noise scale [examples]": profile.gradient_statistics(size, last).noise_scale(size),
        "step time on 1 GPU": alone.step_time(choice),
        "completion time on 1 GPU": alone.step_time(choice) * profile.epoch_end(last),
    }
