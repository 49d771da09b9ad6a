"""Cases of a what-if, and levels of a search, that are worse than harder ones, so that the answer is not monotone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from polluxsim.common.durations import length
from polluxsim.studies.log_replays import Case


def not_monotone(waits: Mapping[Case, Sequence[float]], percentile: str) -> Iterator[str]:
    """Yield a line for each case that is visibly worse than the next case with fewer nodes or a higher load.

    `waits` has the mean wait and percentiles of the wait of each case [s], the `percentile` second.
    """
    has_several_failures = len({case.failures for case in waits}) > 1
    # A curve has the cases that differ only on its axis. Its key is such a case, with 0 on the axis.
    curves_of_nodes: dict[Case, dict[float, float]] = {}
    curves_of_loads: dict[Case, dict[float, float]] = {}
    for case, times in waits.items():
        wait = times[1]  # the first percentile is behind the mean
        curves_of_nodes.setdefault(case._replace(nodes=0), {})[case.nodes] = wait
        curves_of_loads.setdefault(case._replace(load=0), {})[case.load] = wait
    # More nodes, and a lower load, should never make waits longer.
    for key, curve in curves_of_nodes.items():
        where = f"{key.policy}, load {key.load:g}"
        if has_several_failures:
            where += f", failures {key.failures}"
        for words in _reversed_waits(curve, "{:g} nodes", easier_upwards=True):
            yield f"not monotone: {where}: the {percentile} wait is {words}"
    for key, curve in curves_of_loads.items():
        where = f"{key.policy}, {key.nodes} nodes"
        if has_several_failures:
            where += f", failures {key.failures}"
        for words in _reversed_waits(curve, "load {:g}", easier_upwards=False):
            yield f"not monotone: {where}: the {percentile} wait is {words}"


def _reversed_waits(curve: Mapping[float, float], level: str, *, easier_upwards: bool) -> Iterator[str]:
    """Yield words on the waits [s] of a curve that are longer than at the next harder level. `level` is a format."""
    for easier, harder in reversals(curve, easier_upwards=easier_upwards).items():
        easier_wait = length(curve[easier])
        harder_wait = length(curve[harder])
        if easier_wait != harder_wait:  # a difference below the printed digits is none to the reader
            yield f"{easier_wait} with {level.format(easier)} and {harder_wait} with {level.format(harder)}"


def reversals(curve: Mapping[float, float], *, easier_upwards: bool) -> dict[float, float]:
    """Return the levels with a greater, which means worse, value than the next harder level, each with this level.

    >>> reversals({43: 9.0, 44: 5.0, 45: 7.0}, easier_upwards=True)
    {45: 44}
    """
    harder_first = sorted(curve, reverse=not easier_upwards)
    next_harder = {}
    for harder, easier in pairwise(harder_first):
        if curve[easier] > curve[harder]:
            next_harder[easier] = harder
    return next_harder
