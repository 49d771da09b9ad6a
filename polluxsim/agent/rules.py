"""What an agent goes by when it chooses a job's batch size: the choices of `agent=`."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, ClassVar, Protocol

from polluxsim.errors import InvalidConfigError
from polluxsim.models.batch_size import ROUNDING_SLACK

if TYPE_CHECKING:
    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.profile import Application


class BatchRule(Protocol):
    """Chooses a job's total batch size; one's own is best derived from `FixedBatch`.

    Attributes
    ----------
    by_goodput
        Whether it takes what makes the most of the GPUs: then the job's throughput is learnt, and it is not asked.
    learns
        Whether it looks at the gradient statistics.
    plans
        Whether it looks at the epoch.
    """

    by_goodput: ClassVar[bool]
    learns: ClassVar[bool]
    plans: ClassVar[bool]

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the batch size that it would have, whatever the limits of the application [examples].

        Parameters
        ----------
        asked
            Batch size that the user asked for [examples].
        application
            What the job trains.
        epoch
            From 0.
        statistics
            Measured last; None before.
        """
        ...


@dataclass(frozen=True)
class FixedBatch:
    """Keeps what the user asked for."""

    by_goodput: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    plans: ClassVar[bool] = False

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return what was asked for."""
        return asked


@dataclass(frozen=True)
class MostGoodput(FixedBatch):
    """Takes the batch size of most goodput on the GPUs that the job has.

    Source: Pollux (OSDI '21), §4.1.
    """

    by_goodput: ClassVar[bool] = True


@dataclass(frozen=True)
class AdaBatch(FixedBatch):
    """Makes the batch larger as training goes on, whatever the gradients are like.

    Parameters
    ----------
    factor
        Batch size from one stretch of training to the next, 1 or more.
    every
        Share of the job's epochs in a stretch, in (0, 1].

    Source: AdaBatch (Devarakonda et al., 2017): doubled every 20 of 100 epochs, with learning rates that fall by 0.75
    where those of a fixed batch fall by 0.375, so that they grow with the batch.
    """

    factor: float = 2.0
    every: float = 0.2

    plans: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require("factor", self.factor, self.factor >= 1, "a number ≥ 1")
        _require("every", self.every, 0 < self.every <= 1, "a number in (0, 1]")

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return what was asked for, times the factor for every stretch that is over."""
        stretches = int(epoch / (self.every * application.num_epochs) + ROUNDING_SLACK)
        try:
            return asked * self.factor**stretches
        except OverflowError:
            return application.max_batch_size  # a number too large for any batch


@dataclass(frozen=True)
class NoiseScale(FixedBatch):
    """Follows the gradient noise scale, on the GPUs that the job has.

    Parameters
    ----------
    ratio
        Batch size over the noise scale, above 0.

    Source: KungFu (OSDI '20), §4; McCandlish et al. (2018): at the noise scale, a training takes twice the least steps
    and twice the least examples.
    """

    ratio: float = 1.0

    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require("ratio", self.ratio, self.ratio > 0, "a number > 0")

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the noise scale times the ratio; what was asked for before it was measured."""
        return asked if statistics is None else self.ratio * statistics.noise_scale(application.init_batch_size)


def check_rule(rule: object) -> None:
    """Raise an InvalidConfigError for a rule that does not say what it looks at."""
    if missing := [name for name in ("by_goodput", "learns", "plans") if not hasattr(rule, name)]:
        allowed = "allowed is what derives from polluxsim.agent.rules.FixedBatch"
        raise InvalidConfigError(f"agent {type(rule).__name__} has no {missing[0]}, {allowed}")


def _require(name: str, value: float, holds: bool, allowed: str) -> None:
    if not (isfinite(value) and holds):
        raise InvalidConfigError(f"agent.{name} is {value:g}, allowed is {allowed}")
