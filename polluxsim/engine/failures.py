"""Failures of nodes and jobs: recorded in a file, or drawn from rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, gamma, inf, log
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, ClassVar

from polluxsim.common.durations import HOUR, NODE_DAYS
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.values import NonNegativeInt, PositiveInt, Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.clusters import Outage
from polluxsim.hardware.placements import MOST_SECONDS

Draw = Callable[[int], Sequence[float]]

COLUMNS = ("node", "time", "down_until")  # columns that a file of failures must have

_NORMAL = NormalDist()


RATE = Range(least=0, most=NODE_DAYS)  # failures per 1,000 days: at most one a second
TIME = Range(least=0, most=MOST_SECONDS)  # [s]


@takes_settings("cluster.failures")
@dataclass(frozen=True)
class DrawnFailures:
    """Failures of nodes, and of groups of nodes with neighbouring numbers, at random.

    Parameters
    ----------
    rate
        Failures per 1,000 days in which a node is up; 0 means never.
    shape
        Shape of the Weibull distribution of the time from a repair to the next failure. With 1 the distribution is
        exponential. Below 1, failures are most likely just after a repair. All nodes are new at the first submission.
    repair_time
        Mean time of a repair, which begins when a crew is free, by default at the failure [s].
    repair_spread
        Standard deviation of the logarithm of the repair time (log-normal). With 0, each repair takes the mean time.
    group_size
        Number of nodes in a group (for example, a rack).
    group_rate
        Failures per 1,000 days of a group; a failure takes all nodes of the group down; 0 means never.
    """

    rate: Annotated[float, RATE]
    shape: Annotated[float, Range(least=0.05)] = 1.0
    repair_time: Annotated[Seconds, TIME] = 3600.0
    repair_spread: Annotated[float, Range(least=0, most=10)] = 0.0
    group_size: PositiveInt = 1
    group_rate: Annotated[float, RATE] = 0.0

    def without_effect(self, jobs: object, cluster: object) -> Iterator[str]:
        """Yield a sentence if all rates are 0, or if the size of groups has no effect because their rate is 0."""
        if not self.rate and not self.group_rate:
            yield "cluster.failures has no effect: rate and group_rate are 0"
        elif self.group_size > 1 and not self.group_rate:
            yield "cluster.failures.group_size has no effect: group_rate is 0"

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return even numbers for nodes, and odd numbers for groups; none for those without a rate."""
        if self.rate:
            yield from range(0, 2 * num_nodes, 2)
        if self.group_rate:
            num_groups = ceil(num_nodes / self.group_size)  # the last group can be smaller
            yield from range(1, 2 * num_groups, 2)

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage:
        """Return the next outage of a node or a group."""
        index, is_group = divmod(unit, 2)
        if is_group:
            # The last group may name nodes that do not exist. They are ignored, as nodes that are not up.
            nodes = tuple(range(index * self.group_size, (index + 1) * self.group_size))
            mean = NODE_DAYS / self.group_rate
            kind = "group failure"
        else:
            nodes = (index,)
            mean = NODE_DAYS / self.rate
            kind = "failure"
        life, repair = draw(2)
        # The inverse of the Weibull distribution, with the scale that gives it this mean.
        up = mean * (-log(life)) ** (1 / self.shape) / gamma(1 + 1 / self.shape)
        # The last term makes `repair_time` the mean of the log-normal distribution, and not its median.
        spread = self.repair_spread
        down = self.repair_time * exp(spread * _NORMAL.inv_cdf(repair) - spread**2 / 2)
        return Outage(nodes, since + up, down, kind, is_repair=True)


@takes_settings("cluster.spot")
@dataclass(frozen=True)
class SpotReclaims:
    """Reclaims of rented nodes at random, after a warning. Another node takes the place of each node later.

    Parameters
    ----------
    rate
        Reclaims per 1,000 days in which a node is up.
    away_time
        Time until another node replaces it [s].
    warning
        Time between the warning and the reclaim [s]. A job whose checkpoint takes at most this time loses no work.
    """

    rate: Annotated[float, RATE]
    away_time: Annotated[Seconds, TIME] = 600.0
    warning: Annotated[Seconds, TIME] = 120.0

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return a unit for each node; none if the rate is 0."""
        if not self.rate:
            return ()
        return range(num_nodes)

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage:
        """Return the next reclaim of a node."""
        (life,) = draw(1)
        return Outage((unit,), since - log(life) * NODE_DAYS / self.rate, self.away_time, "reclaimed", self.warning)


@takes_settings("engine.job_failures")
@dataclass(frozen=True)
class JobFailures:
    """Failures of jobs that hold GPUs, at random. A job goes back to the queue, and fails for good after some retries.

    Parameters
    ----------
    rate
        Failures per hour in which a job holds GPUs.
    retries
        Number of times that a job starts again after a failure.
    """

    rate: Annotated[float, Range(least=0, most=HOUR)]
    retries: NonNegativeInt = 3


@dataclass(frozen=True)
class RecordedFailures:
    """Failures of nodes from a file.

    Parameters
    ----------
    path
        CSV or Parquet with the columns `node` (from 0), `time` and `down_until` [s]; an empty `down_until` means for
        good. Optional columns are `kind` (a word), `warning` (time from the announcement of the outage to its start
        [s]), and `drain` (time before the outage in which the node starts no jobs [s]).
    """

    path: str
    _outages: tuple[tuple[Row, Outage], ...] = field(init=False, repr=False, compare=False)

    recurs: ClassVar = False
    """False, because the file has a last failure."""

    repairs_are_given: ClassVar = True
    """True, because the file contains the end of each failure. `cluster.repairs` has no effect on these failures."""

    def __post_init__(self) -> None:
        # The class is frozen, so this field is set past its check.
        outages = tuple((row, _outage(row)) for row in read_rows(Path(self.path), COLUMNS))
        object.__setattr__(self, "_outages", outages)

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return a unit for each row. A row with a node that is not there raises an `InvalidInputError`."""
        for row, outage in self._outages:
            if max(outage.nodes) >= num_nodes:
                raise row.error("node", f"a node's number, 0 to {num_nodes - 1}")
        return range(len(self._outages))

    def outage(self, unit: int, number: int, since: float, draw: Draw) -> Outage | None:
        """Return the outage of a row, which happens once; None after it."""
        if number > 0:
            return None
        _, outage = self._outages[unit]
        return outage


def _outage(row: Row) -> Outage:
    """Return the outage in a row of a file of failures."""
    time = row.number("time", at_least=0)
    until = inf
    if row.has("down_until"):
        until = row.number("down_until", above=time)
    kind = "failure"
    if row.has("kind"):
        kind = row.text("kind")
    warning = 0.0
    if row.has("warning"):
        warning = row.number("warning", at_least=0)
    drain = 0.0
    if row.has("drain"):
        drain = row.number("drain", at_least=0)
    return Outage((row.integer("node", at_least=0),), time, until - time, kind, warning, drain=drain)
