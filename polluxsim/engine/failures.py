"""When nodes and jobs fail: as it was recorded, or drawn from rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, gamma, inf, isfinite, log
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

from polluxsim.common.durations import HOUR, NODE_DAYS
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.tables import read_rows
from polluxsim.hardware.clusters import Outage
from polluxsim.hardware.placements import MOST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from polluxsim.common.tables import Row

    Draw = Callable[[int], Sequence[float]]

COLUMNS = ("node", "time", "down_until")
"""Of a record; `kind` may say what befell the node."""

_LIMITS = (
    ("rate", 0, NODE_DAYS),
    ("shape", 0.05, inf),
    ("repair_time", 0, MOST_SECONDS),
    ("repair_spread", 0, 10),
    ("group_size", 1, inf),
    ("group_rate", 0, NODE_DAYS),
)
"""Least and most of each parameter: a failure a second, and times that a clock can tell."""

_SPOT_LIMITS = (("rate", 0, NODE_DAYS), ("away_time", 0, MOST_SECONDS), ("warning", 0, MOST_SECONDS))

_NORMAL = NormalDist()


def check_limits(group: str, settings: object, limits: Iterable[tuple[str, float, float]]) -> None:
    """Check settings, each given with the least and the most allowed.

    Raises
    ------
    InvalidConfigError
        Naming the first that is not a finite number within them.
    """
    for name, least, most in limits:
        value = getattr(settings, name)
        if not (isfinite(value) and least <= value <= most):
            allowed = f"a finite number ≥ {least:g}" + ("" if most == inf else f" up to {most:g}")
            raise InvalidConfigError(f"{group}.{name} is {value}, allowed is {allowed}")


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
        check_limits("cluster.failures", self, _LIMITS)

    def without_effect(self, jobs: object, cluster: object) -> Iterator[str]:
        """Yield a sentence if nodes never fail at these rates, or groups of nodes never do."""
        if not self.rate and not self.group_rate:
            yield "cluster.failures has no effect: rate and group_rate are 0"
        elif self.group_size > 1 and not self.group_rate:
            yield "cluster.failures.group_size has no effect: group_rate is 0"

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
        return Outage(tuple(nodes), since + up, down, "group failure" if is_group else "failure", is_repair=True)


@dataclass(frozen=True)
class SpotReclaims:
    """Rented nodes are taken away at random, after a warning, and come back later.

    Parameters
    ----------
    rate
        Reclaims per 1,000 days of a node's being up.
    away_time
        Time until another node is there in its place [s].
    warning
        Time between the warning and the reclaim [s]; who can save its work within it loses none.
    """

    rate: float
    away_time: float = 600.0
    warning: float = 120.0

    def __post_init__(self) -> None:
        check_limits("cluster.spot", self, _SPOT_LIMITS)

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return a unit for each node."""
        return range(num_nodes if self.rate else 0)

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage:
        """Return when a node is taken away next."""
        (life,) = draw(1)
        return Outage((unit,), since - log(life) * NODE_DAYS / self.rate, self.away_time, "reclaimed", self.warning)


@dataclass(frozen=True)
class JobFailures:
    """Each job fails at a rate while it holds GPUs, goes back to the queue, and after some retries fails for good.

    Parameters
    ----------
    rate
        Failures an hour of holding GPUs.
    retries
        How often a job is run again.
    """

    rate: float
    retries: int = 3

    def __post_init__(self) -> None:
        check_limits("engine.job_failures", self, (("rate", 0, HOUR), ("retries", 0, inf)))


@dataclass(frozen=True)
class RecordedFailures:
    """Nodes fail as a file says.

    Parameters
    ----------
    path
        CSV or Parquet with columns node (from 0), time and down_until [s]; an empty `down_until` is for good. Optional
        are `kind`, a word, `warning`, for how long it is known before [s], as that of maintenance is, and `drain`, for
        how long before the node takes no further jobs [s].
    """

    path: str
    _outages: tuple[tuple[Row, Outage], ...] = field(init=False, repr=False, compare=False)

    repairs_are_given: ClassVar = True
    """The file has the end of each failure, so that `cluster.repairs` changes nothing."""

    def __post_init__(self) -> None:
        outages = tuple((row, _outage(row)) for row in read_rows(Path(self.path), COLUMNS))
        object.__setattr__(self, "_outages", outages)

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return a unit for each row.

        Raises
        ------
        InvalidInputError
            Naming the first row with a node that is not there.
        """
        for row, outage in self._outages:
            if max(outage.nodes) >= num_nodes:
                raise row.error("node", f"a node's number, 0 to {num_nodes - 1}")
        return range(len(self._outages))

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage | None:
        """Return what the row says, once."""
        return None if number else self._outages[unit][1]


def _outage(row: Row) -> Outage:
    time = row.number("time", at_least=0)
    until = row.number("down_until", above=time) if row.has("down_until") else inf
    kind = row.text("kind") if row.has("kind") else "failure"
    warning, drain = (row.number(name, at_least=0) if row.has(name) else 0.0 for name in ("warning", "drain"))
    return Outage((row.integer("node", at_least=0),), time, until - time, kind, warning, drain=drain)
