"""What Shockwave expects of a job: how long it still trains, and when it should be complete to be treated fairly."""

from __future__ import annotations

from collections import Counter
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.policies.srtf import remaining_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.policies.view import ClusterView, JobView


class Prospect(NamedTuple):
    """What is expected of a job now."""

    width: int  # GPUs of its gang
    epochs: int  # its epochs
    done: int  # how many of them it has completed, fewer than all
    spent: float  # time that these took, as planned [s]
    epoch_time: float  # mean time of these and the present one [s]
    left: float  # expected time that it still trains, at least 1 s [s]


def prospect(view: ClusterView, job: JobView) -> Prospect:
    """Return what is expected of a job, by its plan or, without one, by its true remaining time."""
    if (plan := job.plan) is None:
        left = max(remaining_time(job, view.node_size), 1.0)
        return Prospect(job.num_replicas, 1, 0, 0.0, left, left)
    epochs = len(plan.expected_sizes)
    times = [max(round(plan.expected_time(size)), 1) for size in plan.expected_sizes]
    done = min(int(job.oracle.progress / plan.steps(plan.sizes[0])), epochs - 1)
    spent, seen = float(sum(times[:done])), times[: done + 1]
    left = max(time_left(plan.expected_sizes, times, done), 1.0)
    return Prospect(job.num_replicas, epochs, done, spent, sum(seen) / len(seen), left)


def time_left(sizes: Sequence[int], times: Sequence[float], done: int) -> float:
    """Return the expected time of the epochs left, if batch sizes are drawn by shares that are not known [s].

    The shares have a Dirichlet distribution, by which all planned sizes are equally likely before any epoch is seen.
    `sizes` and `times` are each epoch's as planned [examples; s]; those done and the present one are seen.
    Source: Zheng et al., Shockwave (NSDI '23), §5.

    >>> time_left([32, 32, 32, 32], [10.0, 10.0, 10.0, 10.0], 1)
    20.0
    """
    epochs, planned, seen = len(sizes), Counter(sizes), Counter(sizes[: done + 1])
    weights = {size: epochs / len(planned) + seen[size] for size in planned}
    scale = epochs / sum(weights.values())
    scaled = {size: weight * scale for size, weight in weights.items()}
    # Less one for every epoch seen, as long as there is one to take.
    left = {size: weight - min(seen[size], floor(weight)) for size, weight in scaled.items()}
    means = {size: sum(t for s, t in zip(sizes, times, strict=True) if s == size) / planned[size] for size in planned}
    expected = sum(left[size] * means[size] for size in planned)
    return expected * (epochs - done) / max(floor(sum(left.values()) + 1), epochs - done)


class Target:
    """When a job should be complete to be treated fairly: estimates, each for as long as it stood.

    Source: as `time_left`; nine parts of the mean of all estimates, one of the newest.
    """

    def __init__(self) -> None:
        self._sum = self._rounds = self._newest = 0.0

    def estimate(self, time: float) -> None:
        """Take note of a new estimate [s]."""
        self._newest = time

    def stand(self) -> None:
        """Let the newest estimate stand for a round."""
        self._sum += self._newest
        self._rounds += 1

    @property
    def time(self) -> float:
        """Return the target [s]."""
        mean = self._sum / self._rounds if self._rounds else self._newest
        return 0.9 * mean + 0.1 * self._newest
