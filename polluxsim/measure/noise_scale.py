"""The gradient noise scale from gradients of two batch sizes."""

from __future__ import annotations

from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class SquaredNorms(NamedTuple):
    """Squared norms of one step's gradient over a part of its examples and over the whole batch, and their sizes."""

    part: float
    whole: float
    part_size: int
    batch_size: int

    def estimates(self) -> tuple[float, float]:
        """Return unbiased estimates of |G|² and tr Σ, which may be negative."""
        part, whole, small, large = self
        return (large * whole - small * part) / (large - small), (part - whole) / (1 / small - 1 / large)

    def check(self) -> None:
        """Raise InvalidConfigError if these cannot be norms of a part and the whole."""
        for name, norm in (("part", self.part), ("whole", self.whole)):
            if not (isfinite(norm) and norm >= 0):
                raise InvalidConfigError(f"gradients: squared norm {name}={norm}, allowed are finite numbers ≥ 0")
        if not 1 <= self.part_size < self.batch_size:
            raise InvalidConfigError(
                f"gradients: part_size={self.part_size}, allowed are 1 to {self.batch_size - 1}, one below batch_size"
            )


class NoiseScale(NamedTuple):
    """What several steps say of the noise.

    Attributes
    ----------
    sqr, trace
        Means of the estimates of |G|² and of tr Σ, 0 where they come out negative [1].
    standard_error
        Of their ratio, for steps with the same parameters; infinite for a single step [examples].
    """

    sqr: float
    trace: float
    standard_error: float

    @property
    def value(self) -> float:
        """Return tr Σ / |G|² [examples]; infinite where no gradient stands out of the noise."""
        return self.trace / self.sqr if self.sqr else inf


def noise_scale(steps: Sequence[SquaredNorms]) -> NoiseScale:
    """Return the noise scale from one step or more.

    Both estimates are averaged before one is divided by the other, as the ratio of a single step is biased; the error
    is that of a ratio of means (delta method). Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch
    Training", appendix A.1.

    >>> noise_scale([SquaredNorms(part=3.0, whole=2.0, part_size=1, batch_size=2)] * 2)
    NoiseScale(sqr=1.0, trace=2.0, standard_error=0.0)
    """
    sqr, trace = np.array([step.estimates() for step in steps]).T
    mean_sqr, mean_trace = max(float(sqr.mean()), 0.0), max(float(trace.mean()), 0.0)
    if len(steps) < 2 or mean_sqr == 0.0:
        return NoiseScale(mean_sqr, mean_trace, inf)
    off = trace - mean_trace / mean_sqr * sqr
    return NoiseScale(mean_sqr, mean_trace, float(off.std(ddof=1)) / sqrt(len(steps)) / mean_sqr)
