"""Profile cards: an application's speed and statistics in about 100 fitted figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.applications.card_parts import Corrections, GradTimes, Losses, NoiseScales, OtherType, SyncTimes
    from polluxsim.models.profile import Application
    from polluxsim.models.sensitivity import Sensitivity


@dataclass(frozen=True)
class FitError:
    """How far a card is from what it was fitted to, over one class of placements.

    Parameters
    ----------
    points
        Measured step times compared.
    mean, worst
        |fitted step time / measured − 1| [1].
    """

    points: int
    mean: float
    worst: float


@dataclass(frozen=True)
class About:
    """What a card says to its reader.

    Parameters
    ----------
    title, optimizer, target
        Model and data set, name of the optimiser, and what a completed job has reached.
    source, license
        Who measured what the card was fitted to, and where; and under which licence the measurements are.
    """

    title: str
    optimizer: str
    target: str
    source: str
    license: str


@dataclass(frozen=True)
class Card:
    """All figures of a profile card.

    Parameters
    ----------
    about
        For the reader.
    application
        Properties of the application.
    work
        Progress at completion [M0-steps]; epochs are of equal length.
    grad, sync, corrections
        The step time.
    noise
        The gradient statistics.
    losses
        How training converges; None if nobody says.
    fit_errors
        By placement class, for the classes that were measured.
    gpu_type
        Type of GPU that all this was measured on; None if nobody says.
    types
        The step time on other types, by name; all else is alike.
    sensitivity
        Speed by CPUs and memory, over that of all these figures; None if nobody says.
    """

    about: About
    application: Application
    work: float
    grad: GradTimes
    sync: SyncTimes
    corrections: Corrections
    noise: NoiseScales
    fit_errors: Mapping[str, FitError] = field(default_factory=dict)
    gpu_type: str | None = None
    types: Mapping[str, OtherType] = field(default_factory=dict)
    losses: Losses | None = None
    sensitivity: Sensitivity | None = None


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
