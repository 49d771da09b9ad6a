"""A job that changes its batch size by itself, as it planned: its speed is a table by GPU type and batch size."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import ceil, inf
from typing import TYPE_CHECKING

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, DoesNotFitError, ProfileRangeError, StepTime

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class BatchPlan:
    """What a job does at which batch size, and how fast.

    Parameters
    ----------
    sizes
        Batch size of each epoch [examples on each GPU].
    examples
        Examples of an epoch.
    total_steps
        Optimiser steps of the whole training at its first batch size.
    speeds
        Optimiser steps a second on its GPUs, by GPU type and batch size; what is absent does not fit in memory.
    gpu_type
        The type on which its user expects it to run.
    expected_sizes
        Batch size of each epoch as its user expects it, who does not know how training will go.
    lag
        Time of training until a change of size is carried out, which skips what is left of its epoch then [s].
    most_time
        Time of training after which it counts as complete [s].
    """

    sizes: tuple[int, ...]
    examples: int
    total_steps: int
    speeds: Mapping[tuple[str, int], float] = field(hash=False)
    gpu_type: str
    expected_sizes: tuple[int, ...] = ()
    lag: float = 0.0
    most_time: float = inf

    def steps(self, batch_size: int) -> int:
        """Return the optimiser steps of an epoch at a batch size."""
        return ceil(self.examples / batch_size)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which an epoch ends, in steps at the first batch size."""
        return float(min((epoch + 1) * self.steps(self.sizes[0]), self.total_steps))

    @property
    def type_speeds(self) -> tuple[tuple[str, float], ...]:
        """Return how fast it is at its first batch size on each type, over the one that its user expects."""
        first, here = self.sizes[0], self.speeds[self.gpu_type, self.sizes[0]]
        return tuple((name, speed / here) for (name, size), speed in self.speeds.items() if size == first)

    def expected_time(self, batch_size: int) -> float:
        """Return how long an epoch is expected to take at a batch size, without rounding it up to whole steps [s]."""
        return self.examples / batch_size / self.speeds[self.gpu_type, batch_size]

    def epoch_time(self, batch_size: int) -> float:
        """Return how long an epoch takes at a batch size on the type that its user expects [s]."""
        return self.steps(batch_size) / self.speeds[self.gpu_type, batch_size]

    @cached_property
    def stretches(self) -> tuple[tuple[int, float], ...]:
        """Return the batch sizes one after the other, each with the progress up to which it is trained at."""
        found: list[tuple[int, float]] = []
        start, skipped = 0.0, 0.0
        whole = self.steps(self.sizes[0])
        for size, epochs in groupby(enumerate(self.sizes), key=lambda each: each[1]):
            until = self.epoch_end([epoch for epoch, _ in epochs][-1])
            pace = self.epoch_time(size) / whole
            noticed = max(until + self.lag / pace, start + skipped) if until < self.total_steps else until
            end = max(min(noticed, self.total_steps) - skipped, start)
            found.append((size, end))
            if noticed >= self.total_steps:
                break
            start, skipped = end, skipped + ceil(noticed / whole) * whole - noticed
        return tuple(found)

    @property
    def time(self) -> float:
        """Return how long it takes on the type that its user expects [s]."""
        spans = zip(self.stretches, (0.0, *(end for _, end in self.stretches)), strict=False)
        return sum((end - start) * self.epoch_time(size) for (size, end), start in spans) / self.steps(self.sizes[0])


@dataclass(frozen=True)
class PlannedProfile:
    """One such job as a `Profile`: a gang that goes through its plan. What is an epoch here is a stretch of it.

    It runs on GPUs of a type; by default, of that on which its user expects it to run.
    """

    name: str
    num_replicas: int
    plan: BatchPlan
    gpu_type: str | None = None

    @property
    def by_type(self) -> Mapping[str, PlannedProfile]:
        """Return the same job on each type that it is known on."""
        if self.gpu_type is not None:
            return {}
        return {name: replace(self, gpu_type=name) for name, _ in self.plan.speeds}

    @property
    def application(self) -> Application:
        """Return its limits: its GPUs and its batch sizes."""
        return Application(
            name=self.name,
            init_batch_size=self.num_replicas * self.plan.sizes[0],
            max_batch_size=self.num_replicas * max(self.plan.sizes),
            min_atomic_batch_size=1,
            max_atomic_batch_size=max(self.plan.sizes),
            num_epochs=len(self.plan.stretches),
            fixed_batch_size=self.num_replicas * self.plan.sizes[0],
            max_replicas=self.num_replicas,
            gang_size=self.num_replicas,
        )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the batch sizes in its plan."""
        return tuple(self.num_replicas * size for size in sorted(set(self.plan.sizes)))

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, wherever its GPUs are."""
        if sum(gpus_by_node) != self.num_replicas:
            raise ProfileRangeError(
                f"a rigid job was given {sum(gpus_by_node)} GPUs, allowed are the {self.num_replicas} it asks for"
            )
        if (speed := self.plan.speeds.get((self.gpu_type or self.plan.gpu_type, atomic_batch_size))) is None:
            raise DoesNotFitError(f"{self.name} with {atomic_batch_size} examples does not fit in memory")
        return StepTime(1 / speed, 0.0)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics by which an epoch is an epoch at any batch size."""
        scale = batch_size / (self.num_replicas * self.plan.sizes[0])
        worth = self._worth(batch_size)
        # The gain that they give is (var + sqr) / (var / scale + sqr).
        return GradientStatistics(sqr=1 - worth / scale, var=worth - 1) if worth > 1 else GradientStatistics(1.0, 0.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which a stretch ends, in steps at the first batch size."""
        return self.plan.stretches[epoch][1]

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of the whole training at a fixed batch size."""
        return self.plan.stretches[-1][1] / self._worth(batch_size)

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps from the end of an epoch on at a fixed batch size."""
        return (self.plan.stretches[-1][1] - self.epoch_end(epoch)) / self._worth(batch_size)

    def _worth(self, batch_size: int) -> float:
        """Return the steps at the first batch size that one at this size is worth."""
        return self.plan.steps(self.plan.sizes[0]) / self.plan.steps(batch_size // self.num_replicas)
