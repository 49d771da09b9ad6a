"""The truth about an application: how fast and how well it trains on any placement, each computed once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.models.efficiency import efficiency, gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.profile import Profile, StepTime
    from polluxsim.types import BatchChoice


class EpochPace(NamedTuple):
    """How a job trains in one epoch.

    Attributes
    ----------
    rate
        Progress [M0-steps/s].
    efficiency
        What a larger batch is worth, in (0, 1].
    statistics
        Gradient statistics of the epoch at the batch size.
    """

    rate: float
    efficiency: float
    statistics: GradientStatistics


class Pace:
    """How a job trains on one shape of placement at one batch size.

    Parameters
    ----------
    profile
        Where the truth comes from.
    shape
        GPUs on each node.
    choice
        Atomic batch size and accumulation steps.

    Raises
    ------
    ProfileRangeError
        If the profile says nothing about this.
    """

    __slots__ = ("_epochs", "_profile", "_rates", "_scale", "_step_time", "batch_size", "choice", "shape", "step")

    def __init__(self, profile: Profile, shape: tuple[int, ...], choice: BatchChoice) -> None:
        self._profile = profile
        self.shape = shape
        self.choice = choice
        self.batch_size = choice.batch_size(sum(shape))
        self.step: StepTime = profile.step_time(shape, choice.atomic_batch_size)
        self._scale = self.batch_size / profile.application.init_batch_size
        self._step_time = self.step.optimiser_step(choice.accumulation_steps)
        self._epochs: dict[int, EpochPace] = {}
        self._rates: list[float] | None = None

    def at(self, epoch: int) -> EpochPace:
        """Return the pace in an epoch."""
        if (known := self._epochs.get(epoch)) is None:
            statistics = self._profile.gradient_statistics(self.batch_size, epoch)
            rate = gain(statistics, self._scale) / self._step_time
            known = self._epochs[epoch] = EpochPace(rate, efficiency(statistics, self._scale), statistics)
        return known

    @property
    def rates(self) -> Sequence[float]:
        """Return the progress by epoch [M0-steps/s]."""
        if self._rates is None:
            self._rates = [self.at(epoch).rate for epoch in range(self._profile.application.num_epochs)]
        return self._rates


class Truth:
    """One application's true speed, with what was computed of it once.

    Parameters
    ----------
    profile
        Where the truth comes from.

    Attributes
    ----------
    epoch_ends
        Progress at which each epoch ends [M0-steps].
    init_batch_size
        M0 [examples].
    """

    __slots__ = ("_paces", "_times_left", "epoch_ends", "init_batch_size", "profile")

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.init_batch_size = profile.application.init_batch_size
        self.epoch_ends: Sequence[float] = [profile.epoch_end(e) for e in range(profile.application.num_epochs)]
        self._paces: dict[tuple[tuple[int, ...], BatchChoice], Pace] = {}
        self._times_left: dict[tuple[tuple[int, ...], BatchChoice], list[float]] = {}

    def pace(self, shape: tuple[int, ...], choice: BatchChoice) -> Pace:
        """Return the pace on a shape of placement at a batch size.

        Raises
        ------
        ProfileRangeError
            If the profile says nothing about it.
        """
        key = (shape, choice)
        if (known := self._paces.get(key)) is None:
            known = self._paces[key] = Pace(self.profile, shape, choice)
        return known

    def time_left(self, shape: tuple[int, ...], choice: BatchChoice, epoch: int, progress: float) -> float:
        """Return the time from `progress` in `epoch` to completion at a constant placement and batch size [s]."""
        key = (shape, choice)
        if (times := self._times_left.get(key)) is None:
            times = self._times_left[key] = self._epoch_times(self.pace(shape, choice))
        start = self._boundary(epoch - 1)
        length = self._boundary(epoch) - start
        left = (self._boundary(epoch) - progress) / length if length > 0 else 0.0
        return left * (times[epoch] - times[epoch + 1]) + times[epoch + 1]

    def _boundary(self, epoch: int) -> float:
        return self.epoch_ends[epoch] if epoch >= 0 else 0.0

    def _epoch_times(self, pace: Pace) -> list[float]:
        """Return the time from the start of each epoch to completion [s], 0 for the one after the last."""
        times = [0.0]
        spans = zip(pairwise([0.0, *self.epoch_ends]), pace.rates, strict=True)
        for (start, end), rate in reversed(list(spans)):
            times.append(times[-1] + (end - start) / rate)
        return times[::-1]

    def __deepcopy__(self, memo: dict[int, object]) -> Truth:
        return self  # what it remembers follows from the profile alone
