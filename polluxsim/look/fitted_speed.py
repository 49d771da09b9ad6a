"""Measured and fitted throughput side by side, by GPUs and by batch size (Figure 3 of the paper)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from polluxsim.applications.placement_classes import PLACEMENT_CLASSES
from polluxsim.models.profile import ProfileRangeError
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from polluxsim.applications.card import Card
    from polluxsim.models.profile import Application, StepTime

POINTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""GPU counts of the measured points; the card's line goes through all counts in between."""

NUM_BATCH_SIZES = 12


class Speed(Protocol):
    """The part of a profile that says how fast an application is."""

    @property
    def application(self) -> Application:
        """Return the application's properties."""
        ...

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time on a placement, given as the GPUs on each of its nodes."""
        ...


class Curve(NamedTuple):
    """Throughput against one quantity.

    Attributes
    ----------
    x
        GPUs, or total batch size [examples].
    throughput
        [examples/s].
    """

    x: list[int]
    throughput: list[float]


class FittedSpeed(NamedTuple):
    """One application's throughput, measured and by its card.

    Attributes
    ----------
    title
        Model and data set.
    atomic_batch_size
        Examples per GPU behind the curves by GPUs.
    num_replicas
        GPUs behind the curves by batch size.
    measured_by_replicas, card_by_replicas, measured_by_batch_size, card_by_batch_size
        The curves, all on packed placements and without accumulation.
    """

    title: str
    atomic_batch_size: int
    num_replicas: int
    measured_by_replicas: Curve
    card_by_replicas: Curve
    measured_by_batch_size: Curve
    card_by_batch_size: Curve


def fitted_speed(measured: Speed, card: Speed, title: str, num_replicas: int = 16) -> FittedSpeed:
    """Compute the throughput of an application on packed placements by both profiles.

    Parameters
    ----------
    measured, card
        Two profiles of one application: what is so, and what is fitted to it.
    title
        What to call it.
    num_replicas
        GPUs of the curves by batch size.
    """
    limits = measured.application
    # What 64 GPUs can use of the largest batch size: the curve by GPUs keeps it on every placement.
    atomic = min(max(limits.min_atomic_batch_size, limits.max_batch_size // POINTS[-1]), limits.max_atomic_batch_size)
    largest = min(limits.max_atomic_batch_size, limits.max_batch_size // num_replicas)
    sizes = np.geomspace(limits.min_atomic_batch_size, largest, NUM_BATCH_SIZES).round().astype(int)
    choices = [(num_replicas, size) for size in dict.fromkeys(sizes.tolist())]
    return FittedSpeed(
        title,
        atomic,
        num_replicas,
        _by_replicas(measured, [(count, atomic) for count in POINTS]),
        _by_replicas(card, [(count, atomic) for count in range(1, POINTS[-1] + 1)]),
        _by_batch_size(measured, choices),
        _by_batch_size(card, choices),
    )


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


def _by_replicas(profile: Speed, choices: Iterable[tuple[int, int]]) -> Curve:
    return Curve(*_columns((count, value) for count, _, value in _throughputs(profile, choices)))


def _by_batch_size(profile: Speed, choices: Iterable[tuple[int, int]]) -> Curve:
    return Curve(*_columns((count * atomic, value) for count, atomic, value in _throughputs(profile, choices)))


def _throughputs(profile: Speed, choices: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, float]]:
    """Yield GPUs, atomic batch size and throughput; what a table has not measured is left out."""
    for count, atomic in choices:
        with suppress(ProfileRangeError):
            yield count, atomic, count * atomic / profile.step_time(packed(count), atomic).step_time


def _columns(points: Iterable[tuple[int, float]]) -> tuple[list[int], list[float]]:
    rows = list(points)
    return [x for x, _ in rows], [y for _, y in rows]


def _error_cells(card: Card) -> Iterator[str]:
    for name in PLACEMENT_CLASSES:
        error = card.fit_errors.get(name)
        yield f"{'-':>17}" if error is None else f"{error.mean:>9.1%} {error.worst:>7.1%}"
