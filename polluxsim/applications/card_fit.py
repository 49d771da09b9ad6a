"""Fit a profile card to measured tables. The same tables give the same card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from polluxsim.applications.card import (
    About,
    Card,
    CardSize,
    Corrections,
    FitError,
    LossCurve,
    NoiseScales,
    place_in_use,
    rounded,
    rounded_figure,
)
from polluxsim.applications.card_profile import PLACEMENT_CLASSES, CardProfile, compactness, placement_class
from polluxsim.applications.measured import MeasuredProfile
from polluxsim.applications.step_time_fit import (
    GPUS_PER_NODE,
    Step,
    fit_grad,
    fit_sync,
    hats,
    knots_over,
    log_hats,
    measured_steps,
)
from polluxsim.hardware.placements import packed
from polluxsim.models.goodput import Alone
from polluxsim.models.profile import ProfileRangeError

LEAST_SQR_SHARE = 1e-9
"""Smallest sqr/(sqr + var) [1], for an infinite noise scale. Smaller values change the gain of no batch size in use."""

NOISE_SCALE_WEIGHT = 1e-3
"""Weight of an error of log φ relative to an error of efficiency; it matters only where efficiency hardly depends on
the batch size."""


def fit_noise(measured: MeasuredProfile, size: CardSize) -> NoiseScales:
    """Return the noise scale by stage of training and batch size, with at most the stages and knots of `size`.

    The stages have the least variance of log(1/efficiency) around their means.
    """
    batch_sizes = np.array(measured.batch_sizes, dtype=float)
    shares = _sqr_shares(measured)
    ends = best_cuts(np.log1p((batch_sizes / batch_sizes[0] - 1.0) * shares), size.noise_stages)
    fitted_sizes = [int(batch_size) for batch_size in batch_sizes]
    if len(fitted_sizes) > 1:  # the gain at M0 is 1 for any noise scale, so M0 needs no knot
        fitted_sizes = fitted_sizes[1:]
    knots = knots_over(fitted_sizes, size.noise_knots)
    curves = []
    for start, end in pairwise([0, *ends]):
        mean_shares = shares[start:end].mean(axis=0)
        curves.append(_fit_noise_curve(batch_sizes, mean_shares, knots))
    return NoiseScales(tuple(ends), knots, tuple(curves))


def _sqr_shares(measured: MeasuredProfile) -> NDArray[np.float64]:
    """Return q = sqr/(sqr + var) [1] by epoch and validated batch size, shape (epochs, sizes)."""
    epochs = range(measured.application.num_epochs)
    runs = [run for _, run in sorted(measured.validations.items())]
    rows = []
    for epoch in epochs:
        rows.append([(run[epoch].grad_sqr, run[epoch].grad_var) for run in runs])
    statistics = np.array(rows)
    total = statistics.sum(axis=2)
    # Without a gradient the gain is 1, as with var = 0.
    shares: NDArray[np.float64] = np.divide(statistics[:, :, 0], total, out=np.ones_like(total), where=total > 0)
    return shares


def best_cuts(series: NDArray[np.float64], most: int) -> list[int]:
    """Return the ends of the stages with the least sum of squares around the mean of each stage.

    A series of shape (n, k) has at most n stages, and at most `most`. Ends rise, and the last is n.

    >>> best_cuts(np.array([[0.0], [0.1], [5.0], [5.1]]), 2)
    [2, 4]
    """
    n = len(series)
    sums = np.vstack([np.zeros(series.shape[1]), np.cumsum(series, axis=0)])
    squares = np.append(0.0, np.cumsum((series**2).sum(axis=1)))

    def scatter(start: int, end: int) -> float:
        """Return the sum of squares of some rows around their mean."""
        total = sums[end] - sums[start]
        return float(squares[end] - squares[start] - (total**2).sum() / (end - start))

    # Sum of squares and ends of the best stages of the first `end` rows, by `end`.
    best: dict[int, tuple[float, list[int]]] = {end: (scatter(0, end), [end]) for end in range(1, n + 1)}
    # Dynamic programming: the best stages up to the last cut are the best ones with one stage fewer.
    for stages in range(2, min(most, n) + 1):
        with_fewer = best
        best = {}
        for end in range(stages, n + 1):
            candidates = []
            for cut in range(stages - 1, end):
                squares_before, ends = with_fewer[cut]
                candidates.append((squares_before + scatter(cut, end), [*ends, end]))
            best[end] = min(candidates)
    return best[n][1]


def _fit_noise_curve(
    batch_sizes: NDArray[np.float64], shares: NDArray[np.float64], knots: tuple[int, ...]
) -> tuple[float, ...]:
    """Return φ at the knots [examples], of which there are k, fitted to the shares q of one stage by validated size.

    The fit minimises the errors of 1/efficiency = 1 + (M/M0 − 1)·q, which determines the training time at a fixed batch
    size.
    """
    first = batch_sizes[0]
    extra = batch_sizes / batch_sizes[0] - 1.0
    shares = np.clip(shares, LEAST_SQR_SHARE, 1.0 - LEAST_SQR_SHARE)
    basis = log_hats(knots, batch_sizes)
    logs = np.log(first * (1.0 / shares - 1.0))

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted errors of the curve with the logs of φ at the knots, `x`."""
        fitted = first / (np.exp(basis @ x) + first)
        errors = np.log1p(extra * fitted) - np.log1p(extra * shares)
        return np.append(errors, NOISE_SCALE_WEIGHT * (basis @ x - logs))

    # The search starts from the fit to φ itself, which is linear.
    start, *_ = np.linalg.lstsq(basis, logs, rcond=None)
    return tuple(np.exp(least_squares(residuals, start).x).tolist())


MOST_REPLICAS = 64  # largest placement for corrections: the GPUs of the cluster of Pollux (OSDI '21) [GPUs]

USE_SHARPNESS = 20.0
"""Power of the goodput in the weight of a batch size: with 5 % less goodput, it has a third of the weight."""

LEAST_USE = 0.015  # weight of a batch size that no job would choose, if the sum over a placement is 1
RIDGE = 0.001  # ridge penalty, which determines corrections without measurements nearby


class _StepError(NamedTuple):
    """Error of the formula for one optimiser step."""

    num_replicas: int
    place: float  # see `place_in_use`
    log_ratio: float  # log(measured / fitted time)
    share: float  # share of the correction in the time of the step [1]
    weight: float  # in the fit [1]


def fit_corrections(measured: MeasuredProfile, steps: list[Step], card: Card) -> Corrections:
    """Return the factors that correct the formula of a card, fitted to the logs of its errors by ridge regression."""
    uncorrected = card.corrections
    errors = [*_errors_in_use(measured, card), *_errors_anywhere(steps, card)]
    by_replicas = log_hats(uncorrected.num_replicas, [row.num_replicas for row in errors])
    by_place = hats(uncorrected.places, [row.place for row in errors])
    columns = (by_replicas[:, :, None] * by_place[:, None, :]).reshape(len(errors), -1)
    _, _, logs, shares, weights = np.array(errors).T
    # Further rows of the system, which pull each log of a factor towards 0, and so the factor towards 1.
    pull = np.sqrt(RIDGE) * np.eye(columns.shape[1])
    solution, *_ = np.linalg.lstsq(
        np.vstack([columns * (shares * np.sqrt(weights))[:, None], pull]),
        np.append(logs * np.sqrt(weights), np.zeros(len(pull))),
        rcond=None,
    )
    factors = np.exp(solution).reshape(len(uncorrected.num_replicas), -1)
    return replace(uncorrected, factors=tuple(tuple(row) for row in factors.tolist()))


def _errors_in_use(measured: MeasuredProfile, card: Card) -> Iterator[_StepError]:
    """Yield the errors on packed placements, up to the largest that was measured.

    A batch choice with a larger goodput on its placement has more weight.
    """
    limits = card.application
    profile = CardProfile(card)
    for num_replicas in range(2, min(MOST_REPLICAS, limits.max_batch_size // limits.min_atomic_batch_size) + 1):
        placement = packed(num_replicas, card.grad.gpus_per_node)
        truth = Alone(measured, placement)
        fitted = Alone(profile, placement)
        try:
            uses = truth.use(USE_SHARPNESS)
        except ProfileRangeError:  # a smaller cluster was measured
            return
        for choice, use in uses.items():
            time = fitted.step_time(choice)
            yield _StepError(
                num_replicas,
                place_in_use(limits, num_replicas, choice.atomic_batch_size),
                log(truth.step_time(choice) / time),
                profile.step_time(placement, choice.atomic_batch_size).step_time / time,
                use + LEAST_USE,
            )


def _errors_anywhere(steps: list[Step], card: Card) -> Iterator[_StepError]:
    """Yield the errors of all measured steps with a small weight, for placements that no job would use."""
    profile = CardProfile(card)
    for step in steps:
        place = place_in_use(card.application, step.num_replicas, step.atomic_batch_size)
        fitted = profile.step_time(step.gpus_by_node, step.atomic_batch_size).step_time
        share = compactness(step.gpus_by_node, card.grad.gpus_per_node)
        yield _StepError(step.num_replicas, place, log(step.step_time / fitted), share, LEAST_USE * step.weight)


def fit_card(measured: MeasuredProfile, about: About, size: CardSize | None = None) -> Card:
    """Fit a card to a measured profile.

    The pass is fitted first, then the time to synchronise and its overlap (nonlinear least squares on log step times
    from several starts), then the corrections (linear least squares). Figures are rounded to four significant digits,
    the work to six, because an error in it is one in each completion time; `fit_errors` includes the error of rounding.

    Raise ProfileRangeError if the measurements lack a step on one GPU, a step on several GPUs that fill their nodes, or
    a second atomic batch size.
    """
    size = size or CardSize()
    steps = measured_steps(measured)
    has_full_nodes = any(min(step.gpus_by_node) == GPUS_PER_NODE for step in steps)
    has_one_gpu = any(step.num_replicas == 1 for step in steps)
    if not has_full_nodes or not has_one_gpu:
        raise ProfileRangeError(
            f"{measured.application.name}: too few measurements for a card; "
            f"measure steps on one GPU and on full nodes of {GPUS_PER_NODE} GPUs"
        )
    if len({step.atomic_batch_size for step in steps}) == 1:
        raise ProfileRangeError(
            f"{measured.application.name}: too few measurements for a card; all steps have the batch size "
            f"{steps[0].atomic_batch_size} on each GPU, measure two or more"
        )
    # Each part is rounded before the next is fitted, so that the next one corrects the rounding.
    grad = rounded(fit_grad(steps, size))
    several = [step for step in steps if step.num_replicas > 1]
    alone = float(np.median([step.sync_time for step in steps if step.num_replicas == 1]))
    sync = rounded(fit_sync(several, grad, alone))
    last = measured.application.num_epochs - 1
    # Factors of 1, with at most as many places as measured values of m.
    places = min(size.correction_places, len({step.atomic_batch_size for step in steps}))
    uncorrected = Corrections(size.correction_replicas, ((1.0,) * places,) * len(size.correction_replicas))
    losses = None
    if measured.losses:
        losses = rounded(fit_losses(measured.losses, size.loss_knots))
    card = Card(
        about=about,
        application=measured.application,
        work=rounded_figure(measured.epoch_end(last), 6),
        grad=grad,
        sync=sync,
        corrections=uncorrected,
        noise=rounded(fit_noise(measured, size)),
        losses=losses,
    )
    card = replace(card, corrections=rounded(fit_corrections(measured, several, card)))
    errors = {name: rounded(error) for name, error in placement_errors(measured, card).items()}
    return replace(card, fit_errors=errors)


def placement_errors(measured: MeasuredProfile, card: Card) -> dict[str, FitError]:
    """Return the errors of the card's step times by placement class, from all measured steps."""
    profile = CardProfile(card)
    errors = dict[str, list[float]]()
    for step in measured_steps(measured):
        fitted = profile.step_time(step.gpus_by_node, step.atomic_batch_size).step_time
        name = placement_class(step.gpus_by_node, card.grad.gpus_per_node)
        errors.setdefault(name, []).append(abs(fitted / step.step_time - 1.0))
    fit_errors = {}
    for name in PLACEMENT_CLASSES:
        if name in errors:
            fit_errors[name] = FitError(len(errors[name]), float(np.mean(errors[name])), max(errors[name]))
    return fit_errors


def fit_losses(losses: Sequence[float], most: int) -> LossCurve:
    """Fit a piecewise linear curve to the losses after 1, 2, 3 … epochs, by least squares of their ratios.

    It has up to `most` knots, and at most half the epochs, so that it does not copy noise. Each further knot is at the
    epoch with the least remaining error.

    >>> fit_losses([4.0, 3.0, 2.0, 2.0, 2.0, 2.0], 9).epochs
    (1, 3, 6)
    """
    epochs = range(1, len(losses) + 1)
    knots = sorted({1, len(losses)})
    while len(knots) < min(most, len(losses) // 2):
        candidates = [sorted([*knots, epoch]) for epoch in epochs if epoch not in knots]
        knots = min(candidates, key=lambda candidate: _fit_lines(candidate, losses)[1])
    values, _ = _fit_lines(knots, losses)
    return LossCurve(tuple(knots), tuple(values.tolist()))


def _fit_lines(knots: Sequence[int], losses: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """Return the losses at the knots, and the sum of the squared relative errors."""
    observed = np.array(losses)
    # Divided by the losses, so that the errors are relative: losses fall over several orders of magnitude.
    rows = hats(knots, range(1, len(losses) + 1)) / observed[:, None]
    values, *_ = np.linalg.lstsq(rows, np.ones(len(losses)), rcond=None)
    return values, float(((rows @ values - 1.0) ** 2).sum())
