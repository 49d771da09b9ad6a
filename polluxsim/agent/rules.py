"""Rules for the batch size of a job (the choices of `agent=`), and the agents that follow them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import isnan
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from polluxsim.agent.agent import FixedBatchAgent
from polluxsim.common.errors import InvalidConfigError, check_number, short
from polluxsim.hardware.gpu_types import ANY
from polluxsim.models.batch_size import ROUNDING_SLACK, split_batch_size, split_by_weight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.agent.agent import Divide, Observation, Workers
    from polluxsim.hardware.placements import BatchChoice, Crew, DividedBatch
    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.profile import Application


class Controller(NamedTuple):
    """A proportional controller of the examples that workers have in a step.

    Its gain and dead band are as of `OmniLearn`; a change of less than an example is let be, too.

    Source: Tyagi and Sharma (ACSOS 2020): a worker's error is its time less the mean of all, and its examples change by
    its examples a second times that.
    """

    gain: float
    dead_band: float

    def parts(self, workers: Sequence[Workers]) -> tuple[float, ...] | None:
        """Return what one worker of each type is to have next, in proportion; None if they keep what they have.

        >>> from polluxsim.agent.agent import Workers
        >>> Controller(1.0, 0.05).parts([Workers("a100", 1, 64, 1.0), Workers("t4", 1, 64, 3.0)])
        (128.0, 42.666666666666664)
        """
        mean = sum(each.gpus * each.time for each in workers) / sum(each.gpus for each in workers)
        changes = [self.gain * (mean / each.time - 1) for each in workers]
        # Less than an example would only move back and forth with rounding.
        moved = max(abs(change) * each.examples for each, change in zip(workers, changes, strict=True))
        if moved < 1 or max(map(abs, changes)) <= self.dead_band:
            return None
        return tuple(each.examples * (1 + change) for each, change in zip(workers, changes, strict=True))


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
    controller
        What makes workers on GPUs of unlike speed equally fast, so that jobs can have GPUs of several types at once.
    """

    by_goodput: ClassVar[bool]
    learns: ClassVar[bool]
    plans: ClassVar[bool]

    @property
    def controller(self) -> Controller | None:
        """As above."""

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


@dataclass(frozen=True)
class FixedBatch:
    """Keeps what the user asked for."""

    by_goodput: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    plans: ClassVar[bool] = False

    @property
    def controller(self) -> Controller | None:
        """Return None: all workers have equal parts, which is for GPUs of one type."""
        return None

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
        check_number("agent.factor", self.factor, self.factor >= 1, "a number ≥ 1")
        check_number("agent.every", self.every, 0 < self.every <= 1, "a number in (0, 1]")

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
        check_number("agent.ratio", self.ratio, self.ratio > 0, "a number > 0")

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the noise scale times the ratio; what was asked for before it was measured."""
        return asked if statistics is None else self.ratio * statistics.noise_scale(application.init_batch_size)


@dataclass(frozen=True)
class OmniLearn(FixedBatch):
    """Keeps what the user asked for, in unlike parts where workers are on GPUs of unlike speed.

    Jobs can have GPUs of several types at once; of one type it is `FixedBatch`.

    Parameters
    ----------
    gain
        Share of the change that would make a worker's time the mean one, in [0, 1]; 0 leaves all parts equal.
    dead_band
        Largest change, over what a worker has, that is let be, 0 or more.

    Source: Tyagi and Sharma, OmniLearn (IEEE TPDS 2025), and "Taming resource heterogeneity in distributed ML training
    with dynamic batching" (ACSOS 2020): a proportional controller, with a dead band.
    """

    gain: float = 1.0
    dead_band: float = 0.05

    def __post_init__(self) -> None:
        check_number("agent.gain", self.gain, 0 <= self.gain <= 1, "a number in [0, 1]")
        check_number("agent.dead_band", self.dead_band, self.dead_band >= 0, "a number ≥ 0")

    @property
    def controller(self) -> Controller:
        """Return the proportional controller."""
        return Controller(self.gain, self.dead_band)


def check_rule(rule: object) -> None:
    """Raise an InvalidConfigError for a rule that does not say what it looks at."""
    if missing := [name for name in ("by_goodput", "learns", "plans", "controller") if not hasattr(rule, name)]:
        allowed = "allowed is what derives from polluxsim.agent.rules.FixedBatch"
        raise InvalidConfigError(f"agent {type(rule).__name__} has no {missing[0]}, {allowed}")


class RuledAgent(FixedBatchAgent):
    """Chooses the batch size by a rule, within its application's limits; an application's own batch size is kept.

    What it takes is as of `FixedBatchAgent`; the batch size is that of the start.
    """

    def __init__(
        self, application: Application, batch_size: int, rule: BatchRule, by_type: Mapping[str, Application]
    ) -> None:
        super().__init__(application, batch_size, by_type)
        self.learns, self.plans = rule.learns, rule.plans
        self._rule = rule
        self._statistics: GradientStatistics | None = None
        self._epoch = 0

    @property
    def present(self) -> int:
        """Return the batch size in the epoch observed last [examples]."""
        return self._size(self._epoch)

    def observe(self, observation: Observation) -> None:
        """Take note of the gradient statistics and the epoch."""
        self._statistics, self._epoch = observation.statistics, observation.epoch

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Split the batch of the epoch over the GPUs, each of which has the least it can have, or more."""
        application = self._by_type.get(gpu_type, self.application)
        size = max(self._size(epoch), application.min_atomic_batch_size * num_replicas)
        return split_batch_size(application, size, num_replicas)

    def _size(self, epoch: int) -> int:
        limits = self.application
        if limits.fixed_batch_size is not None:
            return limits.fixed_batch_size
        size = self._rule.batch_size(self.batch_size, limits, epoch, self._statistics)
        if not isinstance(size, Real) or isnan(size):
            what = f"agent {type(self._rule).__name__} chose a batch of {short(size)} in epoch {epoch}"
            raise InvalidConfigError(f"{what}, allowed are numbers of examples")
        return round(min(max(size, limits.init_batch_size), limits.max_batch_size))

    def __deepcopy__(self, memo: dict[int, Any]) -> RuledAgent:
        return copy(self)  # nothing of it changes but for what is replaced


class BalancingAgent(RuledAgent):
    """Chooses the batch size by a rule, and on GPUs of several types at once gives those that are faster more of it.

    It begins with equal parts, or on other GPUs of types that it has had together with parts by the speeds it saw, and
    changes them whenever it observes the times of its workers.
    """

    def __init__(
        self,
        application: Application,
        batch_size: int,
        rule: BatchRule,
        by_type: Mapping[str, Application],
        controller: Controller,
    ) -> None:
        super().__init__(application, batch_size, rule, by_type)
        self.learns = True
        self._controller = controller
        self._parts: dict[str, float] = {}  # of one GPU of each type, by its name, as it is to be next

    def observe(self, observation: Observation) -> None:
        """Take note of the gradients, the epoch, and the times of the workers."""
        super().observe(observation)
        workers = observation.workers
        if workers and (parts := self._controller.parts(workers)) is not None:
            self._parts = {each.gpu_type: part for each, part in zip(workers, parts, strict=True)}

    @property
    def divide(self) -> Divide:
        """Return what splits the batch so that workers are equally fast, by what was seen of them."""
        return self._divided

    def _divided(self, crew: Crew, epoch: int) -> DividedBatch:
        types, gpus = zip(*crew, strict=True)
        known = all(name in self._parts for name in types)
        weights = [self._parts[name] if known else 1.0 for name in types]
        return split_by_weight([self._by_type[name] for name in types], self._size(epoch), gpus, weights)
