"""Agents of jobs whose batch size goes by a rule: on GPUs that others count, and on GPUs that a policy prices."""

from __future__ import annotations

from copy import copy
from math import isnan
from numbers import Real
from typing import TYPE_CHECKING, Any

from polluxsim.agent.agent import FixedBatchAgent
from polluxsim.errors import InvalidConfigError, short
from polluxsim.gpu_types import ANY
from polluxsim.models.batch_size import split_batch_size, split_by_weight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.agent.agent import Divide, Observation
    from polluxsim.agent.rules import BatchRule, Controller
    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.profile import Application
    from polluxsim.types import BatchChoice, Crew, DividedBatch


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
