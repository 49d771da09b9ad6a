"""How often the 95 % intervals of `polluxsim.statistics.estimates` contain the true value, and how wide they are.

python benchmarks/interval_coverage.py [--samples 20000]

Prints the share of samples whose interval contains the true value, by distribution and number of units. The first table
has the log ratios of pairs, as in comparisons: the quantity is the mean log ratio, which is the logarithm of the ratio
of geometric means. The second has values of one setting, as in the means of a table; lognormal values have the mean 1
and the given standard deviation of their logarithms. The last line has the mean width for normal log ratios as a
multiple of the width of the paired t interval.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import stdtrit

from polluxsim.statistics.estimates import interval_of_mean, interval_of_positive_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    Interval = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

UNITS = (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30)


def half_zeros(mean: float, deviation: float) -> Draw:
    return lambda rng, shape: np.where(rng.random(shape) < 0.5, 0.0, rng.normal(mean, deviation, shape))


def lognormal(deviation: float) -> Draw:
    return lambda rng, shape: np.exp(rng.normal(-(deviation**2) / 2, deviation, shape))


# The distribution, and its mean.
LOG_RATIOS: Mapping[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.normal(0, 1, shape), 0.0),
    "exponential": (lambda rng, shape: rng.exponential(1, shape), 1.0),
    "t, 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, shape), 0.0),
    "half zeros, half N(0, 1)": (half_zeros(0, 1), 0.0),
    "half zeros, half N(1, 0.5²)": (half_zeros(1, 0.5), 0.5),
}
VALUES: Mapping[str, tuple[Draw, float]] = {
    "normal, deviation 0.2": (lambda rng, shape: rng.normal(1, 0.2, shape), 1.0),
    "lognormal, 0.3": (lognormal(0.3), 1.0),
    "lognormal, 0.6": (lognormal(0.6), 1.0),
    "lognormal, 1.0": (lognormal(1.0), 1.0),
    "Poisson, mean 2": (lambda rng, shape: rng.poisson(2, shape).astype(float), 2.0),
}


def coverage(draw: Draw, mean: float, units: int, samples: int, interval: Interval = interval_of_mean) -> float:
    """Return the share of samples whose interval contains the mean."""
    low, high = interval(draw(np.random.default_rng(units), (samples, units)))
    return float(((low <= mean) & (mean <= high)).mean())


def relative_width(units: int, samples: int) -> float:
    """Return the mean width of the intervals of normal values over the mean width of Student's intervals."""
    values = np.random.default_rng(units).normal(0, 1, (samples, units))
    low, high = interval_of_mean(values)
    student = 2 * stdtrit(units - 1, 0.975) * values.std(axis=1, ddof=1) / np.sqrt(units)
    return float((high - low).mean() / student.mean())


def coverage_table(
    title: str, distributions: Mapping[str, tuple[Draw, float]], samples: int, interval: Interval
) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("coverage [%]")
    for units in UNITS:
        table.add_column(str(units), justify="right")
    for name, (draw, mean) in distributions.items():
        table.add_row(name, *(f"{100 * coverage(draw, mean, units, samples, interval):.1f}" for units in UNITS))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000, help="for each number (default: %(default)s)")
    samples = parser.parse_args().samples
    console = Console(width=120)
    table = coverage_table("Log ratios, by number of pairs", LOG_RATIOS, samples, interval_of_mean)
    table.add_section()
    table.add_row("width, normal [t = 1]", *(f"{relative_width(units, samples):.2f}" for units in UNITS))
    console.print(table)
    console.print(
        coverage_table("Values of one setting, by number of runs", VALUES, samples, interval_of_positive_mean)
    )


if __name__ == "__main__":
    main()
