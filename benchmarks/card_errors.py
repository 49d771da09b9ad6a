"""Print how far one job's completion time by the committed cards is from that by the measured tables.

    python benchmarks/card_errors.py DATA/osdi21 [CARDS]

One row for each model: tuned configurations, one GPU at the initial batch size, and adaptive jobs on every
packed placement of 1 to 64 GPUs; then the errors of the step time by kind of placement, mean and worst, as
the cards state them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.applications.card_files import read_cards
from polluxsim.applications.osdi21 import read_profiles
from polluxsim.hardware.placements import packed
from polluxsim.look.fitted_speed import error_table
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.goodput import Alone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.models.profile import Profile

CARDS = Path(__file__).parents[1] / "traces"

TUNED_CONFIGURATIONS = {
    "bert": ((6, 384), (8, 384), (12, 384), (16, 384)),
    "cifar10": ((6, 2048), (8, 2048), (12, 4096), (16, 4096)),
    "deepspeech2": ((6, 320), (8, 320), (12, 640)),
    "imagenet": ((24, 3200), (32, 6400), (48, 6400)),
    "ncf": ((1, 32768),),
    "yolov3": ((4, 64),),
}
"""GPUs and total batch size of TunedJobs. Source: published workloads of Pollux (OSDI '21)."""


class CompletionError(NamedTuple):
    """One job alone, by the measured tables and by a card.

    Attributes
    ----------
    num_replicas
        GPUs, packed.
    batch_size
        Total batch size [examples]; None where every epoch has the one of most true goodput.
    measured, card
        Completion time without restarts [s].
    """

    num_replicas: int
    batch_size: int | None
    measured: float
    card: float

    @property
    def error(self) -> float:
        """Return card / measured − 1."""
        return self.card / self.measured - 1.0


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of one application over all its configurations.

    Parameters
    ----------
    application
        Its name.
    errors
        In the order in which they were asked for.
    """

    application: str
    errors: tuple[CompletionError, ...]

    @property
    def median(self) -> float:
        """Return the median absolute error [1]."""
        return float(median(abs(row.error) for row in self.errors))

    @property
    def worst(self) -> CompletionError:
        """Return the configuration with the largest absolute error."""
        return max(self.errors, key=lambda row: abs(row.error))


def completion_errors(measured: Profile, card: Profile, replicas: Iterable[int]) -> ErrorSummary:
    """Compare completion times on packed placements.

    Parameters
    ----------
    measured, card
        Two profiles of one application.
    replicas
        GPU counts of the adaptive jobs; those that the largest batch size cannot be split over are left out.

    Returns
    -------
    ErrorSummary
        The tuned configurations and the initial batch size on one GPU, then the adaptive jobs.
    """
    limits = measured.application
    fixed = [*TUNED_CONFIGURATIONS.get(limits.name, ()), (1, limits.init_batch_size)]
    most = limits.max_batch_size // limits.min_atomic_batch_size
    errors = [_fixed(measured, card, *configuration) for configuration in fixed]
    errors += [_adaptive(measured, card, count) for count in replicas if count <= most]
    return ErrorSummary(limits.name, tuple(errors))


def _fixed(measured: Profile, card: Profile, num_replicas: int, batch_size: int) -> CompletionError:
    choice = split_batch_size(measured.application, batch_size, num_replicas)
    times = (Alone(profile, packed(num_replicas)).fixed_time(choice) for profile in (measured, card))
    return CompletionError(num_replicas, batch_size, *times)


def _adaptive(measured: Profile, card: Profile, num_replicas: int) -> CompletionError:
    times = (Alone(profile, packed(num_replicas)).adaptive_time() for profile in (measured, card))
    return CompletionError(num_replicas, None, *times)


def row(name: str, summary: ErrorSummary) -> str:
    worst = summary.worst
    batch_size = "adaptive" if worst.batch_size is None else f"M = {worst.batch_size}"
    return (
        f"{name:12} {len(summary.errors):6} {summary.median:8.2%} {worst.error:+8.2%}  "
        f"K = {worst.num_replicas}, {batch_size}"
    )


def main(measured: Path, folder: Path = CARDS) -> None:
    cards, profiles = read_cards(folder), read_profiles(measured)
    print("model          jobs   median    worst  on")
    for name, profile in profiles.items():
        print(row(name, completion_errors(profile, cards[name], range(1, 65))))
    print()
    print(error_table({name: cards[name].card for name in profiles}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
