"""How many figures a card may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CardSize:
    """How many figures a card may have.

    Parameters
    ----------
    grad_knots, alone_knots
        Most knots of m for the time of a pass and for the factor of a lone GPU; the latter has at most one
        less than there are measured m, so that a curve is fitted to its few rows, not copied from them.
    correction_replicas, correction_places
        Knots of K of the corrections, and their most places of m.
    noise_stages, noise_knots
        Most stages of training and knots of M for the noise scale.
    loss_knots
        Most knots of the loss by epoch, and no more than half the epochs, so that its noise is not copied.
    """

    grad_knots: int = 6
    alone_knots: int = 3
    correction_replicas: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 48, 64)
    correction_places: int = 4
    noise_stages: int = 8
    noise_knots: int = 3
    loss_knots: int = 10
