"""Least squares with coefficients ≥ 0, for a few of them, in plain arithmetic: the same bits everywhere."""

from __future__ import annotations

from itertools import combinations
from math import fsum, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH = 1e-12
"""A sum of squares that is not lower by more than this is no better: fewer coefficients do."""


def nonnegative_least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return x ≥ 0 with the least |rows·x − values|², by trying which coefficients are above 0.

    Parameters
    ----------
    rows
        Shape (n, k), k small: 2^k problems are solved.
    values
        Shape (n,), of a size near 1.

    Returns
    -------
    list
        Shape (k,). Of solutions that are as good, one with the fewest coefficients above 0, the first ones first.

    >>> nonnegative_least_squares([(1.0, 1.0), (0.5, 1.0)], [1.0, 0.75])
    [0.5, 0.5]
    """
    width = len(rows[0])
    best, least = [0.0] * width, fsum(value * value for value in values)
    for count in range(1, min(width, len(rows)) + 1):
        for chosen in combinations(range(width), count):
            part = _solved([[row[column] for column in chosen] for row in rows], values)
            if part is None or min(part) < 0:
                continue
            off = (_dot([row[column] for column in chosen], part) - v for row, v in zip(rows, values, strict=True))
            if (error := fsum(each * each for each in off)) < least - ENOUGH:
                full = dict(zip(chosen, part, strict=True))
                best, least = [full.get(column, 0.0) for column in range(width)], error
    return best


def _solved(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float] | None:
    """Return the least-squares solution by the normal equations, None where it is not unique."""
    columns = list(zip(*rows, strict=True))
    matrix = [[*(_dot(one, other) for other in columns), _dot(one, values)] for one in columns]
    scale = max((row[place] for place, row in enumerate(matrix)), default=inf)
    for pivot, row in enumerate(matrix):
        if row[pivot] <= 1e-13 * scale:
            return None
        for lower in matrix[pivot + 1 :]:
            factor = lower[pivot] / row[pivot]
            lower[pivot:] = [a - factor * b for a, b in zip(lower[pivot:], row[pivot:], strict=True)]
    solution: list[float] = []
    for row in reversed(matrix):
        known = len(solution)
        rest = row[-1] - _dot(row[len(row) - 1 - known : -1], solution)
        solution.insert(0, rest / row[len(row) - 2 - known])
    return solution


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return fsum(a * b for a, b in zip(one, other, strict=True))
