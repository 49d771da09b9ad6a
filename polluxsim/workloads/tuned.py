"""What a careful user would ask for: GPUs and batch size that reach 50 to 80 % of linear scaling."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.durations import HOUR
from polluxsim.models.batch_size import split_batch_size
from polluxsim.types import packed

if TYPE_CHECKING:
    from polluxsim.models.profile import Profile

# Source of all constants: how the workloads of Pollux (OSDI '21), §5.2, were configured.
REPLICA_CHOICES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)
LONGEST = 12.0 * HOUR
LEAST_SCALING, MOST_SCALING = 0.5, 0.8
GPUS_PER_NODE = 4


class Configuration(NamedTuple):
    """What a user asks for: GPUs, and the total batch size [examples]."""

    num_replicas: int
    batch_size: int


def tuned_configurations(profile: Profile, largest: int = REPLICA_CHOICES[-1]) -> tuple[Configuration, ...]:
    """Return an application's tuned configurations, by rising GPU count.

    A count is a choice if, at its best batch size on packed nodes, training takes less than 12 h and its speedup over
    the best on one GPU is between 50 and 80 % of its GPUs; with no such count it is one GPU at its best batch size.
    In place of each of more than `largest` GPUs stands the best on so many.
    """
    alone_time, alone = _best(profile, 1)
    choices = []
    for replicas in REPLICA_CHOICES[1:]:
        if replicas > profile.application.most_replicas(profile.application.max_batch_size):
            break
        time, configuration = _best(profile, replicas)
        if time < LONGEST and LEAST_SCALING < alone_time / time / replicas < MOST_SCALING:
            choices.append(configuration)
    fitting = (each if each.num_replicas <= largest else _best(profile, largest)[1] for each in choices)
    return tuple(fitting) or (alone,)


def _best(profile: Profile, replicas: int) -> tuple[float, Configuration]:
    """Return the shortest time to completion [s] on so many GPUs, and the batch size that reaches it."""
    application = profile.application
    return min(
        (_training_time(profile, replicas, batch_size), Configuration(replicas, batch_size))
        for batch_size in profile.batch_sizes
        if ceil(batch_size / replicas) >= application.min_atomic_batch_size
    )


def _training_time(profile: Profile, replicas: int, batch_size: int) -> float:
    choice = split_batch_size(profile.application, batch_size, replicas, accumulate_alone=False)
    step = profile.step_time(packed(replicas, GPUS_PER_NODE), choice.atomic_batch_size)
    return profile.total_iterations(batch_size) * step.optimiser_step(choice.accumulation_steps)
