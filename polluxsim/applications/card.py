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
    title
        Model and data set.
    optimizer
        Name of the optimiser.
    target
        What a completed job has reached.
    source
        Who measured what the card was fitted to, and where.
    license
        Under which licence the measurements are.
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
