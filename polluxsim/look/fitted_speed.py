"""Measured and fitted throughput side by side, by GPUs and by batch size (Figure 3 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from polluxsim.applications.card import Card
from polluxsim.applications.card_profile import PLACEMENT_CLASSES
from polluxsim.hardware.placements import packed
from polluxsim.models.fitting import fit_throughput
from polluxsim.models.profile import Application, ProfileRangeError, StepTime
from polluxsim.models.throughput import ThroughputParams, grad_time, step_time

POINTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of GPUs of the measured points. The line of the card has every number up to the last."""

NUM_BATCH_SIZES = 12  # points of a curve by batch size

NUM_REPLICAS = 16  # GPUs of the curves by batch size, fewer if the largest batch size cannot be split over them


class StepTimeModel(Protocol):
    """The part of a profile that determines the speed of an application."""

    @property
    def application(self) -> Application:
        """Return the application's properties."""

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time [s] on a placement, given as the GPUs on each of its nodes, shape (nodes,)."""


class ThroughputCurve(NamedTuple):
    """Throughput against the number of GPUs, or against the batch size."""

    x: list[int]  # GPUs, or total batch sizes [examples]
    throughput: list[float]  # [examples/s]


class FittedSpeed(NamedTuple):
    """Throughput of an application, measured and by its card, on packed placements and without accumulation."""

    title: str
    atomic_batch_size: int  # of the curves by GPUs [examples]
    num_replicas: int  # GPUs of the curves by batch size
    measured_by_replicas: ThroughputCurve
    card_by_replicas: ThroughputCurve
    measured_by_batch_size: ThroughputCurve
    card_by_batch_size: ThroughputCurve


def fitted_speed(measured: StepTimeModel, card: StepTimeModel, title: str) -> FittedSpeed:
    """Return the throughput of an application by its profile and by a fitted profile."""
    limits = measured.application
    # One batch size per GPU for all numbers of GPUs, so that a curve shows only the effect of more GPUs. A larger batch
    # size per GPU would exceed the largest batch size on 64 GPUs.
    atomic = max(limits.min_atomic_batch_size, limits.max_batch_size // POINTS[-1])
    atomic = min(atomic, limits.max_atomic_batch_size)
    choices_of_points = {count: (count, atomic) for count in POINTS}
    choices_of_line = {count: (count, atomic) for count in range(1, POINTS[-1] + 1)}
    replicas = min(NUM_REPLICAS, limits.max_batch_size // limits.min_atomic_batch_size)
    largest = min(limits.max_atomic_batch_size, limits.max_batch_size // replicas)
    choices_by_size = {}
    for size in batch_sizes(limits.min_atomic_batch_size, largest):
        choices_by_size[replicas * size] = (replicas, size)
    return FittedSpeed(
        title,
        atomic,
        replicas,
        _curve(measured, choices_of_points),
        _curve(card, choices_of_line),
        _curve(measured, choices_by_size),
        _curve(card, choices_by_size),
    )


def batch_sizes(least: int, most: int) -> list[int]:
    """Return batch sizes [examples] from `least` to `most` in even steps of their logarithm.

    There are `NUM_BATCH_SIZES` of them, or fewer if some are equal after rounding.
    """
    sizes = np.geomspace(least, most, NUM_BATCH_SIZES).round().astype(int)
    # The steps between small sizes are below 1, so several of them are equal after rounding.
    return list(dict.fromkeys(sizes.tolist()))


def error_table(cards: Mapping[str, Card]) -> str:
    """Return the mean and the worst relative error of the step time by kind of placement, a line for each card."""
    width = max(map(len, (*cards, "step time"))) + 2
    head = "".join(f"{name:>17}" for name in PLACEMENT_CLASSES)
    lines = [f"{'step time':{width}}{head}"]
    for name, card in cards.items():
        line = f"{name:{width}}"
        for placement in PLACEMENT_CLASSES:
            error = card.fit_errors.get(placement)
            cell = "-"  # no measurement on a placement of this kind
            if error is not None:
                cell = f"{100 * error.mean:.1f} % {100 * error.worst:>5.1f} %"
            line += f"{cell:>17}"
        lines.append(line)
    return "\n".join(lines)


def mean_error(speed: FittedSpeed) -> float:
    """Return the mean of |fitted / measured − 1| over the measured points of both panels, without unfitted points."""
    errors = []
    for measured, fitted in (
        (speed.measured_by_replicas, speed.card_by_replicas),
        (speed.measured_by_batch_size, speed.card_by_batch_size),
    ):
        fitted_at = dict(zip(fitted.x, fitted.throughput, strict=True))
        for x, value in zip(measured.x, measured.throughput, strict=True):
            if x in fitted_at:
                errors.append(abs(fitted_at[x] / value - 1))
    return float(np.mean(errors))


def _curve(profile: StepTimeModel, choices: Mapping[int, tuple[int, int]]) -> ThroughputCurve:
    """Return the throughput by x, given the number of GPUs and the atomic batch size of each x.

    Placements that the profile does not have are left out.
    """
    throughputs = {}
    for x, (count, atomic) in choices.items():
        # Profiles were measured on some placements only. The curve leaves a gap at the others.
        with suppress(ProfileRangeError):
            step = profile.step_time(packed(count), atomic)
            throughputs[x] = count * atomic / step.step_time
    return ThroughputCurve(list(throughputs), list(throughputs.values()))


@dataclass(frozen=True)
class AgentModel:
    """The speed of an application in an agent's fitted throughput model."""

    application: Application
    params: ThroughputParams

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the modelled time of a pass that synchronises."""
        num_nodes = len(gpus_by_node)
        num_replicas = sum(gpus_by_node)
        step = step_time(self.params, num_nodes, num_replicas, atomic_batch_size, 0)
        return StepTime(step, step - grad_time(self.params, atomic_batch_size))


def agent_model(profile: StepTimeModel) -> AgentModel:
    """Return the model with θ_sys fitted to a profile, like that of an agent which has measured `POINTS`, packed."""
    limits = profile.application
    sizes = batch_sizes(limits.min_atomic_batch_size, limits.max_atomic_batch_size)
    measurements = []  # nodes, GPUs, batch size of a GPU, time without synchronisation, time of a step
    for count, size in product(POINTS, sizes):
        placement = packed(count)
        with suppress(ProfileRangeError):
            time = profile.step_time(placement, size)
            time_of_gradient = time.step_time - time.sync_time
            measurements.append((len(placement), count, size, time_of_gradient, time.step_time))
    columns = zip(*measurements, strict=True)
    return AgentModel(limits, fit_throughput(*columns))
