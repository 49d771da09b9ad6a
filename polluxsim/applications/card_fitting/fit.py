"""Fit a profile card to measured tables, deterministically: the same tables give the same card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.applications.card import Card, CardSize, FitError
from polluxsim.applications.card_fitting.corrections import fit_corrections, no_corrections
from polluxsim.applications.card_fitting.knots import hats
from polluxsim.applications.card_fitting.noise import fit_noise
from polluxsim.applications.card_fitting.rounding import rounded, rounded_figure
from polluxsim.applications.card_fitting.step_time import fit_grad, fit_sync
from polluxsim.applications.card_fitting.steps import GPUS_PER_NODE, measured_steps
from polluxsim.applications.card_parts import Losses
from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.placement_classes import PLACEMENT_CLASSES, placement_class
from polluxsim.models.profile import ProfileRangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polluxsim.applications.card import About
    from polluxsim.applications.card_fitting.steps import Step
    from polluxsim.applications.measured import MeasuredProfile


def fit_card(measured: MeasuredProfile, about: About, size: CardSize | None = None) -> Card:
    """Fit a card to a measured profile.

    All figures are rounded to four significant digits (the error that the rounding makes is in `fit_errors`).

    Raises
    ------
    ProfileRangeError
        If no step was measured on one GPU, or none on several with full nodes only.

    The pass is fitted first, then the time to synchronise and its overlap (nonlinear least squares on log
    step times from several starts, the best kept), then what is left is corrected (linear least squares).
    Stages of training are cut where they leave the least variance.
    """
    size = size or CardSize()
    steps = measured_steps(measured)
    _check_enough(measured, steps)
    grad = rounded(fit_grad(steps, size))
    several = [step for step in steps if step.num_replicas > 1]
    alone = float(np.median([step.sync_time for step in steps if step.num_replicas == 1]))
    sync = rounded(fit_sync(several, grad, alone))
    last = measured.application.num_epochs - 1
    card = Card(
        about=about,
        application=measured.application,
        work=rounded_figure(measured.epoch_end(last), 6),
        grad=grad,
        sync=sync,
        corrections=no_corrections(size, steps),
        noise=rounded(fit_noise(measured, size)),
        losses=rounded(fit_losses(measured.losses, size.loss_knots)) if measured.losses else None,
    )
    card = replace(card, corrections=rounded(fit_corrections(measured, several, card)))
    errors = {name: rounded(error) for name, error in placement_errors(measured, card).items()}
    return replace(card, fit_errors=errors)


def _check_enough(measured: MeasuredProfile, steps: list[Step]) -> None:
    alone = any(step.num_replicas == 1 for step in steps)
    full = any(min(step.gpus_by_node) == GPUS_PER_NODE for step in steps)
    if not (alone and full):
        raise ProfileRangeError(
            f"{measured.application.name}: too little was measured for a card, "
            f"needed are steps on one GPU and on full nodes of {GPUS_PER_NODE} GPUs"
        )


def placement_errors(measured: MeasuredProfile, card: Card) -> dict[str, FitError]:
    """Return the error of the card's step times at all measured ones, by placement class."""
    profile, errors = CardProfile(card), dict[str, list[float]]()
    for step in measured_steps(measured):
        fitted = profile.step_time(step.gpus_by_node, step.atomic_batch_size).step_time
        name = placement_class(step.gpus_by_node, card.grad.gpus_per_node)
        errors.setdefault(name, []).append(abs(fitted / step.step_time - 1.0))
    return {
        name: FitError(len(errors[name]), float(np.mean(errors[name])), max(errors[name]))
        for name in PLACEMENT_CLASSES
        if name in errors
    }


def fit_losses(losses: Sequence[float], most: int) -> Losses:
    """Fit lines between up to `most` knots to the losses after 1, 2, 3 … epochs, by least squares of their ratios.

    There are no more than half the epochs, so that noise is not copied; each next one is where it leaves the least.

    >>> fit_losses([4.0, 3.0, 2.0, 2.0, 2.0, 2.0], 9).epochs
    (1, 3, 6)
    """
    epochs = range(1, len(losses) + 1)
    knots = sorted({1, len(losses)})
    while len(knots) < min(most, len(losses) // 2):
        longer = (sorted([*knots, new]) for new in epochs if new not in knots)
        knots = min(longer, key=lambda tried: _fit_lines(tried, losses)[1])
    return Losses(tuple(knots), tuple(_fit_lines(knots, losses)[0].tolist()))


def _fit_lines(knots: Sequence[int], losses: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """Return the losses at the knots, and the sum of the squares of what they are off, in parts of each loss."""
    observed = np.array(losses)
    rows = hats(knots, range(1, len(losses) + 1)) / observed[:, None]
    values, *_ = np.linalg.lstsq(rows, np.ones(len(losses)), rcond=None)
    return values, float(((rows @ values - 1.0) ** 2).sum())
