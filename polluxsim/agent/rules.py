"""Batch-size rules (the choices of `agent=`), and the agents that follow them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import isnan
from numbers import Real
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

from polluxsim.agent.agent import Divide, FixedBatchAgent, Observation, Workers
from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.common.values import NonNegativeFloat, PositiveFloat, PositiveShare, Range, Share
from polluxsim.common.written import takes_settings
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import BatchChoice, Crew, DividedBatch
from polluxsim.models.batch_size import ROUNDING_SLACK, split_batch_size, split_by_weight
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application


class Controller(NamedTuple):
    """A proportional controller of the examples of each worker in a step.

    The error of a worker is the mean time minus its time. Its examples change by the error times its examples per
    second times the gain. The examples stay as they are if no change reaches one example, or none exceeds the dead
    band.

    Source: Tyagi and Sharma (ACSOS 2020).
    """

    gain: float  # share of the change that would bring a worker's time to the mean, in [0, 1]
    dead_band: float  # largest relative change that is ignored [1]

    def parts(self, workers: Sequence[Workers]) -> tuple[float, ...] | None:
        """Return the next examples of one worker of each type, before rounding; None if they do not change.

        >>> from polluxsim.agent.agent import Workers
        >>> Controller(1.0, 0.05).parts([Workers("a100", 1, 64, 1.0), Workers("t4", 1, 64, 3.0)])
        (128.0, 42.666666666666664)
        """
        mean = sum(worker.gpus * worker.time for worker in workers) / sum(worker.gpus for worker in workers)
        changes = [self.gain * (mean / worker.time - 1) for worker in workers]
        # Rounding would undo a change of less than one example.
        largest = max(abs(change) * worker.examples for worker, change in zip(workers, changes, strict=True))
        if largest < 1 or max(map(abs, changes)) <= self.dead_band:
            return None
        return tuple(worker.examples * (1 + change) for worker, change in zip(workers, changes, strict=True))


class BatchRule(Protocol):
    """Chooses the total batch size of a job. Derive your own rule from `FixedBatch`."""

    by_goodput: ClassVar[bool]  # whether the agent maximises the goodput; the rule is then not called
    learns: ClassVar[bool]  # whether the rule depends on the gradient statistics
    plans: ClassVar[bool]  # whether the rule depends on the epoch

    @property
    def controller(self) -> Controller | None:
        """Return the controller that makes workers on several GPU types equally fast.

        None if the job uses one type at a time.
        """

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the batch size before the limits of the application are applied [examples].

        The user requests `asked` examples. The present epoch counts from 0. The gradient statistics are the latest
        ones, or None before the first measurement.
        """


@dataclass(frozen=True)
class FixedBatch:
    """Keeps the requested batch size."""

    by_goodput: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    plans: ClassVar[bool] = False

    @property
    def controller(self) -> Controller | None:
        """Return None: all workers have equal parts, so a job needs GPUs of one type."""
        return None

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the requested batch size."""
        return asked


@dataclass(frozen=True)
class MostGoodput(FixedBatch):
    """Takes the batch size with the highest goodput on the present GPUs.

    Source: Pollux (OSDI '21), §4.1.
    """

    by_goodput: ClassVar[bool] = True


@takes_settings("agent")
@dataclass(frozen=True)
class AdaBatch(FixedBatch):
    """Increases the batch size during the training, without regard to the gradients.

    Source: AdaBatch (Devarakonda et al., 2017), which doubles the batch every 20 of 100 epochs. Its learning rates fall
    by 0.75 where the rates of a fixed batch fall by 0.375, so they grow with the batch.
    """

    factor: Annotated[float, Range(least=1)] = 2.0  # ratio of the batch sizes of two consecutive stretches, 1 or more
    every: PositiveShare = 0.2  # length of a stretch as a share of the job's epochs, in (0, 1]

    plans: ClassVar[bool] = True

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the requested batch size, times the factor for each completed stretch."""
        # Rounding must not delay the first epoch of a stretch.
        stretches = int(epoch / (self.every * application.num_epochs) + ROUNDING_SLACK)
        try:
            return asked * self.factor**stretches
        except OverflowError:
            return application.max_batch_size  # the limit of a batch that is larger than any number


@takes_settings("agent")
@dataclass(frozen=True)
class NoiseScale(FixedBatch):
    """Takes a multiple of the gradient noise scale.

    Source: KungFu (OSDI '20), §4; McCandlish et al. (2018): at the noise scale, a training takes twice the least steps
    and twice the least examples.
    """

    ratio: PositiveFloat = 1.0  # batch size divided by the noise scale, above 0

    learns: ClassVar[bool] = True

    def batch_size(
        self, asked: int, application: Application, epoch: int, statistics: GradientStatistics | None
    ) -> float:
        """Return the noise scale times the ratio; before the first measurement, the requested batch size."""
        if statistics is None:
            return asked
        return self.ratio * statistics.noise_scale(application.init_batch_size)


@takes_settings("agent")
@dataclass(frozen=True)
class OmniLearn(FixedBatch):
    """Keeps the requested batch size, and divides it by the speeds of the workers.

    A job may hold GPUs of several types at once. On one GPU type it behaves like `FixedBatch`.

    Source: Tyagi and Sharma, OmniLearn (IEEE TPDS 2025), and "Taming resource heterogeneity in distributed ML training
    with dynamic batching" (ACSOS 2020): a proportional controller, with a dead band.
    """

    # Share of the change that would bring a worker's time to the mean, in [0, 1]; 0 keeps all parts equal.
    gain: Share = 1.0
    dead_band: NonNegativeFloat = 0.05  # largest relative change of a part that is ignored, 0 or more

    @property
    def controller(self) -> Controller:
        """Return the proportional controller."""
        return Controller(self.gain, self.dead_band)


def check_rule(rule: object) -> None:
    """Raise InvalidConfigError if a rule lacks an attribute of `BatchRule`."""
    for name in ("by_goodput", "learns", "plans", "controller"):
        if not hasattr(rule, name):
            advice = "derive the class from polluxsim.agent.rules.FixedBatch"
            raise InvalidConfigError(f"agent {type(rule).__name__} has no {name}: {advice}")


class RuledAgent(FixedBatchAgent):
    """An agent that follows a rule within the limits of its application.

    A fixed batch size of the application precedes the rule. The other parameters are those of `FixedBatchAgent`.
    """

    def __init__(
        self, application: Application, batch_size: int, rule: BatchRule, by_type: Mapping[str, Application]
    ) -> None:
        super().__init__(application, batch_size, by_type)
        # Attributes, in place of those of the class, because they depend on the rule.
        self.learns = rule.learns
        self.plans = rule.plans
        self._rule = rule
        self._statistics: GradientStatistics | None = None
        self._epoch = 0

    @property
    def present(self) -> int:
        """Return the batch size in the last observed epoch, or in the first before any observation [examples]."""
        return self._size(self._epoch)

    def observe(self, observation: Observation) -> None:
        """Store the gradient statistics and the epoch."""
        self._statistics = observation.statistics
        self._epoch = observation.epoch

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Split the batch of the epoch over the GPUs. Each GPU gets at least its minimum."""
        application = self._by_type.get(gpu_type, self.application)
        # A policy may give more GPUs than the batch of the rule can fill.
        size = max(self._size(epoch), application.min_atomic_batch_size * num_replicas)
        return split_batch_size(application, size, num_replicas)

    def _size(self, epoch: int) -> int:
        """Return the batch size of an epoch within the limits [examples]; raise InvalidConfigError for no number."""
        limits = self.application
        if limits.fixed_batch_size is not None:
            return limits.fixed_batch_size
        size = self._rule.batch_size(self.batch_size, limits, epoch, self._statistics)
        # A rule of the user may return anything. ∞ is allowed, because the limits below bound it.
        if not isinstance(size, Real) or isnan(size):
            problem = f"agent {type(self._rule).__name__} chose a batch of {short(size)} in epoch {epoch}"
            raise InvalidConfigError(f"{problem}, must be a number of examples")
        return round(min(max(size, limits.init_batch_size), limits.max_batch_size))

    def __deepcopy__(self, memo: dict[int, Any]) -> RuledAgent:
        return copy(self)  # its attributes are replaced, never changed


class BalancingAgent(RuledAgent):
    """An agent that follows a rule, and gives faster GPU types a larger part of the batch.

    The first parts are equal, or follow the speeds that the agent observed earlier on these types. Each observation of
    the workers' times changes the parts.
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
        self.learns = True  # the parts follow the observed times, whatever the rule does
        self._controller = controller
        self._parts: dict[str, float] = {}  # next part of one GPU of each type

    def observe(self, observation: Observation) -> None:
        """Store the gradient statistics, the epoch and, on several GPU types, the next parts."""
        super().observe(observation)
        workers = observation.workers
        if not workers:
            return
        parts = self._controller.parts(workers)
        if parts is not None:
            self._parts = {worker.gpu_type: part for worker, part in zip(workers, parts, strict=True)}

    @property
    def divide(self) -> Divide:
        """Return the function that divides the batch by the observed speeds."""
        return self._divided

    def _divided(self, crew: Crew, epoch: int) -> DividedBatch:
        """Return the batch of an epoch, divided over the GPUs of the types by the latest parts of the controller.

        The GPUs have equal parts if the controller has none yet for one of the types.
        """
        types, gpus = zip(*crew, strict=True)
        weights = [1.0] * len(types)
        # Parts of some of the types say nothing about the others.
        if all(name in self._parts for name in types):
            weights = [self._parts[name] for name in types]
        return split_by_weight([self._by_type[name] for name in types], self._size(epoch), gpus, weights)
