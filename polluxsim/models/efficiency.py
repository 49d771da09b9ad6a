"""Statistical efficiency of a larger batch, from the mean and variance of the gradient."""

from __future__ import annotations

from typing import NamedTuple


class GradientStatistics(NamedTuple):
    """Squared norm and variance of the (pre-conditioned) gradient at one moment of training."""

    sqr: float  # squared norm of the mean gradient, in any unit; 0 for an infinite noise scale
    var: float  # variance of the gradient at the initial batch size, in the unit of `sqr`

    def noise_scale(self, init_batch_size: int) -> float:
        """Return the gradient noise scale φ = M0·var/sqr [examples].

        Source: Pollux (OSDI '21), §3.1.
        """
        return init_batch_size * self.var / self.sqr if self.sqr else float("inf")


def gain(statistics: GradientStatistics, scale: float) -> float:
    """Return the gain: the progress of one optimiser step at batch size `scale`·M0 [M0-steps].

    The gain is (var + sqr) / (var/scale + sqr), in [1, scale] for scale ≥ 1; 1 if the denominator is not positive.

    Source: AdaScale's gain as Pollux (OSDI '21), §3.1, uses it.

    >>> gain(GradientStatistics(sqr=1.0, var=3.0), 3.0)
    2.0
    """
    sqr, var = statistics
    denominator = var / scale + sqr
    return (var + sqr) / denominator if denominator > 0 else 1.0


def efficiency_of_gain(gain: float, scale: float) -> float:
    """Return the statistical efficiency from the gain at batch size `scale`·M0, in (0, 1].

    It is the share of the examples that train the model as well as examples at M0. A batch can be smaller than M0 by
    rounding, if the GPUs do not divide it. The efficiency is then 1, as at M0: these examples lose nothing.
    """
    return gain / scale if scale > 1 else 1.0


def efficiency(statistics: GradientStatistics, scale: float) -> float:
    """Return the statistical efficiency gain/scale at batch size `scale`·M0, in (0, 1]; 1 up to M0.

    Above M0 it equals (φ + M0) / (φ + M). Source: Pollux (OSDI '21), §3.1.
    """
    return efficiency_of_gain(gain(statistics, scale), scale)
