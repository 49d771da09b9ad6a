"""Size classes by GPU time, and the applications that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.durations import HOUR
from polluxsim.errors import UnknownApplicationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.models.profile import Profile

# Source: Pollux (OSDI '21), §5.1, and its artifact.
CLASSES: Sequence[tuple[str, float, tuple[str, ...]]] = (
    ("S", 1 * HOUR, ("cifar10", "ncf")),
    ("M", 10 * HOUR, ("deepspeech2", "bert")),
    ("L", 100 * HOUR, ("yolov3",)),
    ("XL", 1000 * HOUR, ("imagenet",)),
)
"""Size classes: name, upper limit of GPU time [GPU s], and the applications that stand for them, at even odds."""


def classify(gpu_time: float) -> tuple[str, tuple[str, ...]] | None:
    """Return the size class of a job and the applications that stand for it; None from 1000 GPU-hours on.

    >>> classify(2 * 3600.0)
    ('M', ('deepspeech2', 'bert'))
    """
    return next(((name, applications) for name, limit, applications in CLASSES if gpu_time < limit), None)


def check_profiles(profiles: Mapping[str, Profile]) -> None:
    """Raise UnknownApplicationError if an application that stands for a size class has no profile."""
    if missing := [name for *_, names in CLASSES for name in names if name not in profiles]:
        raise UnknownApplicationError(
            f"workload: the size classes need profiles of {', '.join(missing)}, there are {', '.join(profiles)}"
        )
