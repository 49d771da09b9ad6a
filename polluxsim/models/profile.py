"""Applications and their profiles: properties, step times and statistical efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.sensitivity import Sensitivity


class ProfileRangeError(PolluxSimError):
    """A profile has no value for this placement or batch size."""


class FixedReplicasError(ProfileRangeError):
    """A job without a profile runs only on the number of GPUs that its user requests."""


class DoesNotFitError(ProfileRangeError):
    """The batch on a GPU exceeds its memory."""


class StepTime(NamedTuple):
    """Duration of one forward-backward pass that synchronises [s]."""

    step_time: float  # of the whole pass
    sync_time: float  # part of it in which the synchronisation does not overlap with computing

    def optimiser_step(self, accumulation_steps: int) -> float:
        """Return the time of one optimiser step, including the passes without synchronisation [s]."""
        return self.step_time + accumulation_steps * (self.step_time - self.sync_time)


def overlapped(grad: float, sync: float, gamma: float) -> float:
    """Return (grad^γ + sync^γ)^(1/γ), the time of a pass that synchronises [s].

    `grad` is the time of the pass alone [s], `sync` the time to synchronise [s], and γ their overlap, from 1 (none).
    This function is plain Python. The module `throughput` compiles it.

    Source: Pollux (OSDI '21), §3.2.

    >>> overlapped(3.0, 4.0, 1.0), overlapped(3.0, 4.0, 2.0)
    (7.0, 5.0)
    """
    larger = max(grad, sync)
    smaller = min(grad, sync)
    return float(larger * (1.0 + (smaller / larger) ** gamma) ** (1.0 / gamma))


@dataclass(frozen=True)
class Application:
    """Properties of an application (a model on a data set), which are equal for all its jobs.

    Raise InvalidConfigError if limits do not rise from 1, the fixed batch size is outside them, or there is no epoch.
    """

    name: str  # name in workloads
    init_batch_size: int  # M0, the batch size for which the hyper-parameters were tuned [examples]
    max_batch_size: int  # largest batch size [examples]
    # Limits of the examples per GPU and pass; the upper limit is the GPU's memory [examples].
    min_atomic_batch_size: int
    max_atomic_batch_size: int
    num_epochs: int  # statistical epochs until a job is complete
    learning_rate_rule: str = "adascale"  # name of the rule that scales the learning rate with the batch size
    fixed_batch_size: int | None = None  # batch size of adaptive jobs if the application cannot change it [examples]
    max_replicas: int | None = None  # largest number of GPUs of a job, or None
    gang_size: int | None = None  # number of GPUs on which every job runs, or None

    def __post_init__(self) -> None:
        atomic = f"{self.min_atomic_batch_size} to {self.max_atomic_batch_size}"
        total = f"{self.init_batch_size} to {self.max_batch_size}"
        fixed = self.fixed_batch_size
        if fixed is not None and not self.init_batch_size <= fixed <= self.max_batch_size:
            raise InvalidConfigError(
                f"application {self.name!r} has the fixed batch size {fixed}, must be from {total}"
            )
        has_rising_limits = (
            1 <= self.min_atomic_batch_size <= self.max_atomic_batch_size
            and 1 <= self.init_batch_size <= self.max_batch_size
        )
        if not has_rising_limits or self.num_epochs < 1:
            raise InvalidConfigError(
                f"application {self.name!r} has atomic batch sizes {atomic}, batch sizes {total} and "
                f"{self.num_epochs} epochs: must be rising limits ≥ 1 and one epoch or more"
            )

    @property
    def batch_limits(self) -> tuple[int, int, int, int]:
        """Return M0, the largest batch size, and the smallest and largest atomic batch size [examples]."""
        return (self.init_batch_size, self.max_batch_size, self.min_atomic_batch_size, self.max_atomic_batch_size)

    @property
    def largest_batch(self) -> int:
        """Return the largest batch size of adaptive jobs: the fixed batch size, if there is one [examples]."""
        return self.fixed_batch_size or self.max_batch_size

    def most_replicas(self, batch_size: int) -> int:
        """Return the largest number of GPUs that a job with `batch_size` examples can use."""
        by_batch = max(batch_size // self.min_atomic_batch_size, 1)
        return by_batch if self.max_replicas is None else min(by_batch, self.max_replicas)

    def smallest_batch(self, num_replicas: int) -> int:
        """Return M0, or the smallest batch that gives each of `num_replicas` GPUs its minimum, if larger [examples]."""
        return max(self.init_batch_size, self.min_atomic_batch_size * num_replicas)


class Profile(Protocol):
    """Speed and statistical efficiency of an application: measured tables, or a card fitted to them.

    Epochs are counted from 0. Progress is in M0-steps since the start of training.

    A profile may have three more attributes: `by_type`, the profile on each GPU type, with other step times and limits
    of memory; `losses`, the loss after each epoch; `sensitivity`, the speed by CPUs and memory.
    """

    @property
    def application(self) -> Application:
        """Return the application's properties."""

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the true step time on a placement, given as the GPUs on each of its nodes, in order.

        Raise ProfileRangeError if the profile has no value for this placement or atomic batch size.
        """

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return the true gradient statistics at a batch size [examples] in an epoch."""

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which an epoch ends [M0-steps]."""

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the total batch sizes for which whole trainings were measured, ascending [examples]."""

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training at a fixed batch size [examples]."""

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps after the end of `epoch` at a fixed batch size [examples]."""


def by_type(profile: Profile) -> Mapping[str, Profile]:
    """Return the profiles on GPU types, by name; empty if the profile does not state types."""
    profiles: Mapping[str, Profile] = getattr(profile, "by_type", {})
    return profiles


def losses_of(profile: Profile) -> Sequence[float]:
    """Return the loss after each epoch, > 0 and in any unit; empty if the profile does not state losses."""
    losses: Sequence[float] = getattr(profile, "losses", ())
    return losses


def sensitivity_of(profile: Profile) -> Sensitivity | None:
    """Return the speed of an application by CPUs and memory; None if its profile does not state it."""
    sensitivity: Sensitivity | None = getattr(profile, "sensitivity", None)
    return sensitivity
