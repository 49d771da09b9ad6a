"""When nodes fail: as it was recorded, or drawn from rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, gamma, inf, isfinite, log
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.engine.nodes import NODE_DAYS
from polluxsim.errors import InvalidConfigError
from polluxsim.tables import read_rows
from polluxsim.types import MOST_SECONDS, Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polluxsim.tables import Row

    Draw = Callable[[int], Sequence[float]]

COLUMNS = ("node", "time", "down_until")
"""Of a record; `kind` may say what befell the node."""

_LIMITS = (
    ("rate", 0, inf),
    ("shape", 0.05, inf),
    ("repair_time", 0, MOST_SECONDS),
    ("repair_spread", 0, 10),
    ("group_size", 1, inf),
    ("group_rate", 0, inf),
)
"""Least and most of each parameter; beyond, times come to more than a clock can tell."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class DrawnFailures:
    """Each node fails by itself, and each group of neighbours as one, again and again.

    Parameters
    ----------
    rate
        Failures per 1,000 days of a node's being up; 0 is never.
    shape
        Of the Weibull distribution of the time from a repair to the next failure: 1 is exponential; below 1, a node
        that has just failed is the likeliest to fail. All are new at time 0.
    repair_time
        Mean time from a failure until the node is up again [s].
    repair_spread
        Standard deviation of the logarithm of that time (log-normal); 0 is always the mean.
    group_size
        Nodes of a rack or at a switch, neighbours by number.
    group_rate
        Failures per 1,000 days of a group, which take all its nodes down; 0 is never.
    """

    rate: float
    shape: float = 1.0
    repair_time: float = 3600.0
    repair_spread: float = 0.0
    group_size: int = 1
    group_rate: float = 0.0

    def __post_init__(self) -> None:
        for name, least, most in _LIMITS:
            value = getattr(self, name)
            if not (isfinite(value) and least <= value <= most):
                upper = "" if most == inf else f" up to {most:g}"
                allowed = f"a finite number ≥ {least:g}{upper}"
                raise InvalidConfigError(f"cluster.failures.{name} is {value}, allowed is {allowed}")

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return even numbers for nodes, and odd ones for groups."""
        if self.rate:
            yield from range(0, 2 * num_nodes, 2)
        if self.group_rate:
            yield from range(1, 2 * -(-num_nodes // self.group_size), 2)

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage:
        """Return when a node or a group fails next, for how long."""
        index, is_group = divmod(unit, 2)
        nodes = range(index * self.group_size, (index + 1) * self.group_size) if is_group else (index,)
        mean = NODE_DAYS / (self.group_rate if is_group else self.rate)
        life, repair = draw(2)
        up = mean * (-log(life)) ** (1 / self.shape) / gamma(1 + 1 / self.shape)
        spread = self.repair_spread
        down = self.repair_time * exp(spread * _NORMAL.inv_cdf(repair) - spread**2 / 2)
        return Outage(tuple(nodes), since + up, down, "group failure" if is_group else "failure")


@dataclass(frozen=True)
class RecordedFailures:
    """Nodes fail as a file says.

    Parameters
    ----------
    path
        CSV or Parquet with columns node (from 0), time and down_until [s]; an empty `down_until` is for good. A column
        `kind` is optional.
    """

    path: str
    _outages: tuple[_Line, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_outages", tuple(map(_line, read_rows(Path(self.path), COLUMNS))))

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return a unit for each row.

        Raises
        ------
        InvalidInputError
            Naming the first row with a node that is not there.
        """
        for line in self._outages:
            if max(line.outage.nodes) >= num_nodes:
                raise line.row.error("node", f"a node's number, 0 to {num_nodes - 1}")
        return range(len(self._outages))

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage | None:
        """Return what the row says, once."""
        return None if number else self._outages[unit].outage


class _Line(NamedTuple):
    """A row, and what it says."""

    row: Row
    outage: Outage


def _line(row: Row) -> _Line:
    time, until = row.number("time", at_least=0), inf
    if row.has("down_until"):
        until = row.number("down_until", above=time)
    kind = row.text("kind") if row.has("kind") else "failure"
    return _Line(row, Outage((row.integer("node", at_least=0),), time, until - time, kind))
