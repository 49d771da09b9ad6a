"""What the simulator knows of an application: its properties, and how fast and how well it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polluxsim.common.errors import InvalidConfigError, PolluxSimError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.sensitivity import Sensitivity


class ProfileRangeError(PolluxSimError):
    """A question outside what a profile has measured."""


class DoesNotFitError(ProfileRangeError):
    """More examples on a GPU than its memory holds."""


class StepTime(NamedTuple):
    """Duration of one forward-backward pass that synchronises.

    Attributes
    ----------
    step_time
        The whole pass [s].
    sync_time
        The part of it that is not overlapped with computing [s].
    """

    step_time: float
    sync_time: float

    def optimiser_step(self, accumulation_steps: int) -> float:
        """Return the time of one optimiser step [s]: the passes without synchronisation come on top."""
        return self.step_time + accumulation_steps * (self.step_time - self.sync_time)


@dataclass(frozen=True)
class Application:
    """Properties of an application (a model on a data set), the same for all its jobs.

    Parameters
    ----------
    name
        How workloads name it.
    init_batch_size
        M0, the batch size its hyper-parameters were tuned for [examples].
    max_batch_size
        Largest batch size it may train at [examples].
    min_atomic_batch_size, max_atomic_batch_size
        Limits of the examples per GPU and pass; the upper one is the GPU's memory [examples].
    num_epochs
        Statistical epochs until a job is complete.
    learning_rate_rule
        Name of the rule that scales the learning rate with the batch size.
    fixed_batch_size
        The batch size an adaptive job keeps where the application cannot change it [examples].
    max_replicas
        Most GPUs a job can use, where the application has a limit of its own.
    gang_size
        GPUs that a job needs all at once, no more and no fewer, where it runs on no other number.
    """

    name: str
    init_batch_size: int
    max_batch_size: int
    min_atomic_batch_size: int
    max_atomic_batch_size: int
    num_epochs: int
    learning_rate_rule: str = "adascale"
    fixed_batch_size: int | None = None
    max_replicas: int | None = None
    gang_size: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.min_atomic_batch_size, self.max_atomic_batch_size, self.init_batch_size, self.max_batch_size)
        if min(sizes) < 1 or sizes[0] > sizes[1] or sizes[2] > sizes[3] or self.num_epochs < 1:
            raise InvalidConfigError(
                f"application {self.name!r}: atomic batch sizes {sizes[0]} to {sizes[1]}, batch sizes {sizes[2]} to "
                f"{sizes[3]}, {self.num_epochs} epochs; allowed are rising limits and one epoch or more"
            )

    @property
    def batch_limits(self) -> tuple[int, int, int, int]:
        """Return M0, the largest batch size, and the smallest and largest atomic one, as compiled code takes them."""
        return (self.init_batch_size, self.max_batch_size, self.min_atomic_batch_size, self.max_atomic_batch_size)

    def most_replicas(self, batch_size: int) -> int:
        """Return the most GPUs that `batch_size` examples can be split over."""
        by_batch = max(batch_size // self.min_atomic_batch_size, 1)
        return by_batch if self.max_replicas is None else min(by_batch, self.max_replicas)


class Profile(Protocol):
    """How fast and how well an application trains: measured tables, or a card fitted to them.

    One that knows several GPU types has an attribute `by_type` besides, with the profile on each; they differ in their
    step times and in what fits in memory. One that knows how its training converges has an attribute `losses`: the loss
    after each epoch. One that knows how fast it is by CPUs and memory has an attribute `sensitivity`.

    Epochs are counted from 0; progress is in M0-steps since the start of training.
    """

    @property
    def application(self) -> Application:
        """Return the application's properties."""
        ...

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the true step time on a placement, given as the GPUs on each of its nodes, in order.

        Raises
        ------
        ProfileRangeError
            If the profile says nothing about this placement or atomic batch size.
        """
        ...

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return the true gradient statistics at a batch size [examples] in an epoch."""
        ...

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which an epoch ends [M0-steps]."""
        ...

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the total batch sizes at which whole trainings are known, rising [examples]."""
        ...

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training at a fixed batch size."""
        ...

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps from the end of `epoch` to the end of training at a fixed batch size."""
        ...


def by_type(profile: Profile) -> Mapping[str, Profile]:
    """Return the profiles of the GPU types that a profile knows, by name; empty if it says nothing of types."""
    known: Mapping[str, Profile] = getattr(profile, "by_type", {})
    return known


def losses_of(profile: Profile) -> Sequence[float]:
    """Return the loss after each epoch, each above 0, in whatever unit; empty where the profile does not know it."""
    known: Sequence[float] = getattr(profile, "losses", ())
    return known


def sensitivity_of(profile: Profile) -> Sensitivity | None:
    """Return how fast an application is by CPUs and memory; None if its profile says nothing of it."""
    known: Sensitivity | None = getattr(profile, "sensitivity", None)
    return known
