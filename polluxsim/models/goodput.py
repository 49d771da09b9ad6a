"""Goodput (throughput times statistical efficiency), the best batch size, and the completion time of a job alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import helper, kernel
from polluxsim.hardware.placements import BatchChoice
from polluxsim.models.batch_size import ROUNDING_SLACK, BatchLimits, BatchSize, capped, split_batch_size
from polluxsim.models.efficiency import GradientStatistics, efficiency, gain
from polluxsim.models.profile import Application, Profile
from polluxsim.models.throughput import ThroughputParams, step_time

NUM_CANDIDATES = 50
"""Total batch sizes tried for a placement. Source: artifact of Pollux (OSDI '21)."""


class Prediction(NamedTuple):
    """The predicted speed of a job on a placement at a batch size."""

    choice: BatchChoice  # division of the batch over the GPUs
    batch_size: int  # examples of one optimiser step on all GPUs
    throughput: float  # [examples/s]
    efficiency: float  # statistical efficiency, in (0, 1]
    goodput: float  # throughput times efficiency [M0-equivalent examples/s]


class Goodput(Protocol):
    """The predicted goodput of a job on one GPU type."""

    def at(self, num_nodes: int, num_replicas: int, size: BatchSize) -> Prediction:
        """Return the prediction on a placement at a batch size.

        Raise InvalidBatchSizeError for a batch size outside the limits of the job.
        """

    def best(self, num_nodes: int, num_replicas: int) -> tuple[float, BatchChoice]:
        """Return the largest goodput on a placement [M0-equivalent examples/s], and the choice that reaches it."""


@dataclass(frozen=True)
class ScaledGoodput:
    """Goodput on a GPU type without observations, scaled from another type by the ratio of the speeds on one GPU.

    Source: the published simulator of Sia (SOSP '23).
    """

    model: GoodputModel  # model learnt on the other type
    ratio: float  # speed on one GPU of this type divided by the speed on one GPU of the other type
    gpus_per_node: int  # GPUs of a node of the other type, from which the number of nodes of a placement follows
    application: Application  # limits of the batch size on this type

    def at(self, num_nodes: int, num_replicas: int, size: BatchSize) -> Prediction:
        """Return the prediction on `num_replicas` GPUs of full nodes of the other type, with its speed times `ratio`.

        `num_nodes` has no effect. Raise InvalidBatchSizeError for a batch size outside the limits on this type.
        """
        choice = size.split(BatchLimits.of(self.application), num_replicas)
        prediction = self.model.predicted(ceil(num_replicas / self.gpus_per_node), num_replicas, choice)
        return prediction._replace(
            throughput=prediction.throughput * self.ratio, goodput=prediction.goodput * self.ratio
        )

    def best(self, num_nodes: int, num_replicas: int) -> tuple[float, BatchChoice]:
        """Return the goodput on `num_replicas` GPUs of full nodes of the other type times `ratio`, and its choice."""
        goodput, choice = self.model.best(ceil(num_replicas / self.gpus_per_node), num_replicas)
        return goodput * self.ratio, choice


@dataclass(frozen=True)
class GoodputModel:
    """Model of a job that its agent has learnt. The object predicts the goodput on any placement."""

    application: Application
    params: ThroughputParams
    statistics: GradientStatistics

    def at(self, num_nodes: int, num_replicas: int, size: BatchSize) -> Prediction:
        """Return the prediction on a placement at a batch size.

        Raise InvalidBatchSizeError for a batch size outside the limits of the application.
        """
        return self.predicted(num_nodes, num_replicas, size.split(BatchLimits.of(self.application), num_replicas))

    def predicted(self, num_nodes: int, num_replicas: int, choice: BatchChoice) -> Prediction:
        """Return the prediction on a placement at a choice of batch size, which may be outside the limits."""
        batch_size = choice.batch_size(num_replicas)
        throughput = batch_size / step_time(self.params, num_nodes, num_replicas, *choice)
        share = efficiency(self.statistics, batch_size / self.application.init_batch_size)
        return Prediction(choice, batch_size, throughput, share, throughput * share)

    def best(self, num_nodes: int, num_replicas: int) -> tuple[float, BatchChoice]:
        """Return the largest goodput on a placement and the batch choice that reaches it.

        The goodput is in M0-equivalent examples/s. The choice is the first best of 50 batch sizes in geometric steps,
        or the fixed batch size of the application. If the limits allow none of them, the goodput is 0, and the choice
        is the smallest batch that the GPUs can share.

        Source: Pollux (OSDI '21), §4.1, and its artifact.
        """
        application = self.application
        if application.fixed_batch_size is not None:
            choice = split_batch_size(application, application.fixed_batch_size, num_replicas)
            scale = choice.batch_size(num_replicas) / application.init_batch_size
            time = step_time(self.params, num_nodes, num_replicas, *choice)
            return float(goodput_at(*self.statistics, scale, application.init_batch_size, time)), choice
        goodput, atomic, steps = best_choice(
            self.params, *self.statistics, *application.batch_limits, num_nodes, num_replicas
        )
        if not atomic:  # no batch size is within the limits
            return 0.0, split_batch_size(application, application.smallest_batch(num_replicas), num_replicas)
        return float(goodput), capped(BatchChoice(int(atomic), int(steps)), num_replicas, application.max_batch_size)


@dataclass(frozen=True)
class GoodputTable:
    """The largest goodput on every placement, for one throughput model and changing gradient statistics.

    Step times do not depend on the statistics and are computed once.
    """

    application: Application
    params: ThroughputParams
    max_replicas: int  # largest number of GPUs of the table

    def best(self, statistics: GradientStatistics) -> NDArray[np.float64]:
        """Return the largest goodput by placement, shape (2, max_replicas + 1) [M0-equivalent examples/s].

        The first row is for one node, the second for several; columns are GPU counts. The goodput is 0 where there is
        no such placement (of 0 GPUs, and of 1 GPU on several nodes), and where the limits allow no batch size.
        """
        table: NDArray[np.float64] = largest_goodputs(*statistics, self.application.init_batch_size, *self._candidates)
        return table

    @cached_property
    def _candidates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return M/M0 and the time of an optimiser step of every candidate, each of shape (2, max_replicas + 1, C).

        C is 50, or 1 for an application with a fixed batch size. Places without a candidate have the time ∞.
        """
        application = self.application
        if application.fixed_batch_size is None:
            limits = application.batch_limits
            scales, times = candidate_times(self.params, *limits, self.max_replicas)
            return scales, times
        scales = np.zeros((2, self.max_replicas + 1, 1))
        times = np.full_like(scales, np.inf)
        for nodes in (1, 2):
            for replicas in range(nodes, self.max_replicas + 1):
                choice = split_batch_size(application, application.fixed_batch_size, replicas)
                scales[nodes - 1, replicas, 0] = choice.batch_size(replicas) / application.init_batch_size
                times[nodes - 1, replicas, 0] = step_time(self.params, nodes, replicas, *choice)
        return scales, times


class KnownGoodputs:
    """The largest goodputs under one model, computed up to the requested number of GPUs.

    The table of the previous model, `before`, is reused if it has the same step times and batch sizes.
    """

    def __init__(self, model: GoodputModel, before: KnownGoodputs | None) -> None:
        self.model = model
        self._goodputs = np.zeros((2, 0))
        self._table: GoodputTable | None = None if before is None else before._table
        # Compared by identity: a new fit makes a new object, and equal values of two fits are too rare to look for.
        if self._table and not (self._table.params is model.params and self._table.application is model.application):
            self._table = None

    def up_to(self, max_replicas: int) -> NDArray[np.float64]:
        """Return the largest goodputs on up to `max_replicas` GPUs, as `GoodputTable.best` does."""
        if self._goodputs.shape[1] <= max_replicas:
            if self._table is None or self._table.max_replicas < max_replicas:
                self._table = GoodputTable(self.model.application, self.model.params, max_replicas)
            self._goodputs = self._table.best(self.model.statistics)
        return self._goodputs[:, : max_replicas + 1]


@helper
def candidates(  # type: ignore[no-untyped-def]
    init_batch_size, max_batch_size, min_atomic, max_atomic, num_replicas
):
    """Return the atomic batch sizes and accumulation steps to try, shape (C, 2), each pair once, by rising total."""
    smallest = max(init_batch_size, min_atomic * num_replicas)
    log_smallest = np.log10(smallest)
    log_step = (np.log10(max_batch_size) - log_smallest) / (NUM_CANDIDATES - 1)
    choices = np.empty((NUM_CANDIDATES, 2), dtype=np.int64)
    count = 0
    for index in range(NUM_CANDIDATES):
        # The ends are exact, which a power of a logarithm would not be.
        if index == 0:
            local = smallest / num_replicas
        elif index == NUM_CANDIDATES - 1:
            local = max_batch_size / num_replicas
        else:
            local = 10.0 ** (log_smallest + index * log_step) / num_replicas
        steps = int(np.ceil(local / max_atomic - ROUNDING_SLACK)) - 1
        # A single GPU can measure the noise scale only with two passes.
        if num_replicas == 1 and local > init_batch_size + ROUNDING_SLACK:
            steps = max(steps, 1)
        atomic = int(np.ceil(local / (steps + 1) - ROUNDING_SLACK))
        if not min_atomic <= atomic <= max_atomic:
            continue
        if count and choices[count - 1, 0] == atomic and choices[count - 1, 1] == steps:
            continue
        choices[count, 0] = atomic
        choices[count, 1] = steps
        count += 1
    return choices[:count]


@kernel
def goodput_at(sqr, var, scale, init_batch_size, time):  # type: ignore[no-untyped-def]
    """Return the goodput [M0-equivalent examples/s] at batch size `scale`·M0, of optimiser steps of `time` [s]."""
    # The formula of `efficiency.gain`, which is plain Python for callers that have no kernels.
    denominator = var / scale + sqr
    gain = (var + sqr) / denominator if denominator > 0.0 else 1.0
    return gain * init_batch_size / time


@kernel
def best_choice(  # type: ignore[no-untyped-def]
    params, sqr, var, init_batch_size, max_batch_size, min_atomic, max_atomic, num_nodes, num_replicas
):
    """Return the largest goodput of the candidates, in M0-equivalent examples/s, and m and accumulation steps there.

    Return −1, 0 and 0 if there is no candidate.
    """
    best = -1.0
    best_atomic = 0
    best_steps = 0
    for atomic, steps in candidates(init_batch_size, max_batch_size, min_atomic, max_atomic, num_replicas):
        time = step_time(params, num_nodes, num_replicas, float(atomic), float(steps))
        scale = num_replicas * atomic * (steps + 1) / init_batch_size
        goodput = goodput_at(sqr, var, scale, init_batch_size, time)
        if goodput > best:
            best = goodput
            best_atomic = atomic
            best_steps = steps
    return best, best_atomic, best_steps


@kernel
def candidate_times(  # type: ignore[no-untyped-def]
    params, init_batch_size, max_batch_size, min_atomic, max_atomic, max_replicas
):
    """Return M/M0 and the step time [s] of every candidate, each of shape (2, max_replicas + 1, C).

    The first axis is for one node and several nodes. Without a candidate the step time is ∞.
    """
    scales = np.zeros((2, max_replicas + 1, NUM_CANDIDATES))
    times = np.full((2, max_replicas + 1, NUM_CANDIDATES), np.inf)
    for replicas in range(1, max_replicas + 1):
        choices = candidates(init_batch_size, max_batch_size, min_atomic, max_atomic, replicas)
        for index in range(len(choices)):
            atomic, steps = choices[index]
            for nodes in range(1, min(replicas, 2) + 1):
                scales[nodes - 1, replicas, index] = replicas * atomic * (steps + 1) / init_batch_size
                times[nodes - 1, replicas, index] = step_time(params, nodes, replicas, float(atomic), float(steps))
    return scales, times


@kernel
def largest_goodputs(sqr, var, init_batch_size, scales, times):  # type: ignore[no-untyped-def]
    """Return the largest goodput over the last axis of the candidates, shape (2, GPUs + 1)."""
    table = np.zeros(scales.shape[:2])
    for several in range(2):
        for replicas in range(several + 1, scales.shape[1]):
            for index in range(scales.shape[2]):
                time = times[several, replicas, index]
                if time == np.inf:
                    break  # there are no further candidates
                goodput = goodput_at(sqr, var, scales[several, replicas, index], init_batch_size, time)
                table[several, replicas] = max(table[several, replicas], goodput)
    return table


@dataclass(frozen=True)
class Alone:
    """One application on one placement, with its true step times and gradient statistics."""

    profile: Profile
    gpus_by_node: tuple[int, ...]  # GPUs on each node
    _step_times: dict[BatchChoice, float] = field(default_factory=dict, init=False, repr=False)

    def fixed_time(self, choice: BatchChoice) -> float:
        """Return the completion time at one batch choice [s]."""
        epochs = range(self.profile.application.num_epochs)
        return sum(self._length(epoch) / self._rate(choice, epoch) for epoch in epochs)

    def adaptive_time(self) -> float:
        """Return the completion time at the choice with the largest true goodput in every epoch [s]."""
        return sum(length / max(rates) for length, rates in self._epochs())

    def use(self, sharpness: float) -> dict[BatchChoice, float]:
        """Return the share of the time that a job with good choices spends at each choice; the sum is 1.

        The time of each epoch is divided among choices in proportion to their goodput to the power of `sharpness`.
        """
        use = dict.fromkeys(self.choices, 0.0)
        for length, rates in self._epochs():
            shares = [(rate / max(rates)) ** sharpness for rate in rates]
            for choice, share in zip(self.choices, shares, strict=True):
                use[choice] += length / max(rates) * share / sum(shares)
        total = sum(use.values())
        return {choice: part / total for choice, part in use.items()}

    def step_time(self, choice: BatchChoice) -> float:
        """Return the time of one optimiser step [s]."""
        if choice not in self._step_times:
            step = self.profile.step_time(self.gpus_by_node, choice.atomic_batch_size)
            self._step_times[choice] = step.optimiser_step(choice.accumulation_steps)
        return self._step_times[choice]

    def _epochs(self) -> Iterator[tuple[float, list[float]]]:
        """Yield each epoch's length [M0-steps] and progress per second at each choice [M0-steps/s]."""
        for epoch in range(self.profile.application.num_epochs):
            yield self._length(epoch), [self._rate(choice, epoch) for choice in self.choices]

    def _length(self, epoch: int) -> float:
        """Return the length of an epoch [M0-steps]."""
        start = self.profile.epoch_end(epoch - 1) if epoch else 0.0
        return self.profile.epoch_end(epoch) - start

    def _rate(self, choice: BatchChoice, epoch: int) -> float:
        """Return the progress per second, goodput over M0 [M0-steps/s]."""
        batch_size = choice.batch_size(sum(self.gpus_by_node))
        scale = batch_size / self.profile.application.init_batch_size
        return gain(self.profile.gradient_statistics(batch_size, epoch), scale) / self.step_time(choice)

    @cached_property
    def choices(self) -> list[BatchChoice]:
        """Return the distinct choices of 50 batch sizes in geometric steps, without those below the limits."""
        limits = self.profile.application
        num_replicas = sum(self.gpus_by_node)
        smallest = limits.smallest_batch(num_replicas)
        ratio = limits.max_batch_size / smallest
        last = NUM_CANDIDATES - 1
        sizes = [round(smallest * ratio ** (step / last)) for step in range(NUM_CANDIDATES)]
        choices = []
        for choice in dict.fromkeys(split_batch_size(limits, size, num_replicas) for size in sizes):
            is_large_enough = choice.batch_size(num_replicas) >= limits.init_batch_size
            if is_large_enough and choice.atomic_batch_size >= limits.min_atomic_batch_size:
                choices.append(choice)
        return choices


def warm_up() -> None:
    """Compile the goodput of jobs with a variable batch size."""
    application = Application("a", 10, 100, 1, 50, 1)
    statistics = GradientStatistics(1.0, 20.0)
    params = ThroughputParams(0.1, 0.01, 0.3, 0.02, 0.1, 0.01, 1.5)
    GoodputModel(application, params, statistics).best(1, 1)
    GoodputTable(application, params, 1).best(statistics)
