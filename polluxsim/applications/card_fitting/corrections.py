"""Fit the factors for what the step time formula misses, where jobs that choose well would notice."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.applications.card_fitting.knots import hats, log_hats
from polluxsim.applications.card_parts import Corrections, place_in_use
from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.placement_classes import compactness
from polluxsim.models.fixed_placement import Alone
from polluxsim.models.profile import ProfileRangeError
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.applications.card import Card, CardSize
    from polluxsim.applications.card_fitting.steps import Step
    from polluxsim.applications.measured import MeasuredProfile

MOST_REPLICAS = 64
"""GPUs of the measured cluster."""

USE_SHARPNESS = 20.0
"""Power of goodput in proportion to which batch sizes count: one that is 5 % worse counts a third."""

LEAST_USE = 0.015
"""What a batch size counts that no job would choose, of 1 for all on a placement."""

RIDGE = 0.001
"""Pull of each correction towards none, which decides it where nothing was measured nearby."""


def no_corrections(size: CardSize, steps: list[Step]) -> Corrections:
    """Return factors of 1, with no more places than there are measured m."""
    places = min(size.correction_places, len({step.atomic_batch_size for step in steps}))
    return Corrections(size.correction_replicas, ((1.0,) * places,) * len(size.correction_replicas))


class _Missed(NamedTuple):
    """What is missed of one optimiser step: log(measured / fitted), and the corrected pass's share in it."""

    num_replicas: int
    place: float
    log_ratio: float
    share: float
    weight: float


def fit_corrections(measured: MeasuredProfile, steps: list[Step], card: Card) -> Corrections:
    """Fit log factors to what the formula misses, by ridge regression."""
    none = card.corrections
    missed = [*_missed_in_use(measured, card), *_missed_anywhere(steps, card)]
    by_replicas = log_hats(none.num_replicas, [row.num_replicas for row in missed])
    by_place = hats(none.places, [row.place for row in missed])
    columns = (by_replicas[:, :, None] * by_place[:, None, :]).reshape(len(missed), -1)
    _, _, logs, shares, weights = np.array(missed).T
    pull = np.sqrt(RIDGE) * np.eye(columns.shape[1])
    solution, *_ = np.linalg.lstsq(
        np.vstack([columns * (shares * np.sqrt(weights))[:, None], pull]),
        np.append(logs * np.sqrt(weights), np.zeros(len(pull))),
        rcond=None,
    )
    factors = np.exp(solution).reshape(len(none.num_replicas), -1)
    return replace(none, factors=tuple(tuple(row) for row in factors.tolist()))


def _missed_in_use(measured: MeasuredProfile, card: Card) -> Iterator[_Missed]:
    """Yield what is missed on packed placements, by how much a job that chooses well uses each choice."""
    limits, profile = card.application, CardProfile(card)
    for num_replicas in range(2, min(MOST_REPLICAS, limits.max_batch_size // limits.min_atomic_batch_size) + 1):
        placement = packed(num_replicas, card.grad.gpus_per_node)
        truth, fitted = Alone(measured, placement), Alone(profile, placement)
        try:
            uses = truth.use(USE_SHARPNESS)
        except ProfileRangeError:  # a smaller cluster was measured
            return
        for choice, use in uses.items():
            time = fitted.step_time(choice)
            yield _Missed(
                num_replicas,
                place_in_use(limits, num_replicas, choice.atomic_batch_size),
                log(truth.step_time(choice) / time),
                profile.step_time(placement, choice.atomic_batch_size).step_time / time,
                use + LEAST_USE,
            )


def _missed_anywhere(steps: list[Step], card: Card) -> Iterator[_Missed]:
    """Yield what is missed of every measured step, at little weight: it decides where no job would go."""
    profile = CardProfile(card)
    for step in steps:
        place = place_in_use(card.application, step.num_replicas, step.atomic_batch_size)
        fitted = profile.step_time(step.gpus_by_node, step.atomic_batch_size).step_time
        share = compactness(step.gpus_by_node, card.grad.gpus_per_node)
        yield _Missed(step.num_replicas, place, log(step.step_time / fitted), share, LEAST_USE * step.weight)
