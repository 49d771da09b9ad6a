"""Measured and fitted throughput side by side, by GPUs and by batch size (Figure 3 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
"""GPU counts of the measured points; the line of the card goes through all counts in between."""

NUM_BATCH_SIZES = 12

NUM_REPLICAS = 16  # GPUs of the curves by batch size


class Speed(Protocol):
    """The part of a profile that determines the speed of an application."""

    @property
    def application(self) -> Application:
        """Return the application's properties."""

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time on a placement, given as the GPUs on each of its nodes."""


class Curve(NamedTuple):
    """Throughput [examples/s] against `x`: GPUs, or total batch size [examples]."""

    x: list[int]
    throughput: list[float]


class FittedSpeed(NamedTuple):
    """One application's throughput, measured and by its card, on packed placements and without accumulation.

    Curves by GPUs are with `atomic_batch_size` examples on each, those by batch size on `num_replicas` GPUs.
    """

    title: str
    atomic_batch_size: int
    num_replicas: int
    measured_by_replicas: Curve
    card_by_replicas: Curve
    measured_by_batch_size: Curve
    card_by_batch_size: Curve


def fitted_speed(measured: Speed, card: Speed, title: str) -> FittedSpeed:
    """Return the throughput of an application by its profile and by a fitted profile."""
    limits = measured.application
    # What 64 GPUs can use of the largest batch size: the curve by GPUs keeps it on every placement.
    atomic = min(max(limits.min_atomic_batch_size, limits.max_batch_size // POINTS[-1]), limits.max_atomic_batch_size)
    largest = min(limits.max_atomic_batch_size, limits.max_batch_size // NUM_REPLICAS)
    by_size = {NUM_REPLICAS * size: (NUM_REPLICAS, size) for size in batch_sizes(limits.min_atomic_batch_size, largest)}
    return FittedSpeed(
        title,
        atomic,
        NUM_REPLICAS,
        _curve(measured, {count: (count, atomic) for count in POINTS}),
        _curve(card, {count: (count, atomic) for count in range(1, POINTS[-1] + 1)}),
        _curve(measured, by_size),
        _curve(card, by_size),
    )


def batch_sizes(least: int, most: int) -> list[int]:
    """Return `NUM_BATCH_SIZES` batch sizes in even steps of their logarithm, or fewer where these are too close."""
    return list(dict.fromkeys(np.geomspace(least, most, NUM_BATCH_SIZES).round().astype(int).tolist()))


def error_table(cards: Mapping[str, Card]) -> str:
    """Return the errors of the step time by kind of placement, mean and worst, a line for each card."""
    width = max(map(len, (*cards, "step time"))) + 2
    head = f"{'step time':{width}}" + "".join(f"{name:>17}" for name in PLACEMENT_CLASSES)
    rows = [f"{name:{width}}" + "".join(_error_cells(card)) for name, card in cards.items()]
    return "\n".join([head, *rows])


def mean_error(speed: FittedSpeed) -> float:
    """Return the mean of |fitted / measured − 1| over the measured points of both panels."""
    errors = []
    for measured, fitted in (
        (speed.measured_by_replicas, speed.card_by_replicas),
        (speed.measured_by_batch_size, speed.card_by_batch_size),
    ):
        known = dict(zip(fitted.x, fitted.throughput, strict=True))
        errors += [
            abs(known[x] / value - 1) for x, value in zip(measured.x, measured.throughput, strict=True) if x in known
        ]
    return float(np.mean(errors))


def _curve(profile: Speed, choices: Mapping[int, tuple[int, int]]) -> Curve:
    """Return throughput by x. Placements that the table lacks are left out."""
    found = {}
    for x, (count, atomic) in choices.items():
        with suppress(ProfileRangeError):
            found[x] = count * atomic / profile.step_time(packed(count), atomic).step_time
    return Curve(list(found), list(found.values()))


def _error_cells(card: Card) -> Iterator[str]:
    for name in PLACEMENT_CLASSES:
        error = card.fit_errors.get(name)
        yield f"{'-':>17}" if error is None else f"{100 * error.mean:>7.1f} % {100 * error.worst:>5.1f} %"


@dataclass(frozen=True)
class AgentModel:
    """The speed of an application in an agent's fitted throughput model."""

    application: Application
    params: ThroughputParams

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the modelled time of a pass that synchronises."""
        step = step_time(self.params, len(gpus_by_node), sum(gpus_by_node), atomic_batch_size, 0)
        return StepTime(step, step - grad_time(self.params, atomic_batch_size))


def agent_model(profile: Speed) -> AgentModel:
    """Fit θ_sys to a profile's packed placements, like an agent that has measured all of them."""
    limits = profile.application
    seen = []
    for count, size in product(POINTS, batch_sizes(limits.min_atomic_batch_size, limits.max_atomic_batch_size)):
        with suppress(ProfileRangeError):
            time = profile.step_time(placement := packed(count), size)
            seen.append((len(placement), count, size, time.step_time - time.sync_time, time.step_time))
    return AgentModel(limits, fit_throughput(*zip(*seen, strict=True)))
