"""When jobs stopped for checkpoints, which follows from when they were given their GPUs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from polluxsim.checkpoints import Checkpoints
from polluxsim.durations import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.look.slots import Stay
    from polluxsim.records import CheckpointRecord
    from polluxsim.storage import Run


class Pauses:
    """The checkpoints of a run.

    Parameters
    ----------
    run
        Its settings say how often jobs save, its outages what was known of failures, its records the other checkpoints.
    num_nodes
        Of its cluster.
    """

    def __init__(self, run: Run, num_nodes: int) -> None:
        engine = run.info.get("config", {}).get("engine", {})
        settings = dict(engine.get("checkpoints") or {})
        known = settings.pop("_target_", "").endswith(f".{Checkpoints.__name__}")
        self._rules = Checkpoints(**settings) if known else None
        self._delay = float(engine.get("restart_delay", 0.0))
        self._failures = sorted(outage.time for outage in run.result.outage_records)
        self._num_nodes = num_nodes
        self._recorded: defaultdict[str, list[CheckpointRecord]] = defaultdict(list)
        for record in run.result.checkpoint_records:
            self._recorded[record.job].append(record)

    def of(self, stay: Stay, application: str) -> Iterator[tuple[float, float]]:
        """Yield from when to when a job stopped for checkpoints during a stay [s]."""
        saved = ((each.time, each.until) for each in self._recorded.get(stay.job, ()) if each.time > stay.placed)
        reached = stay.start
        for begin, end in sorted([*saved, *self._by_interval(stay, application)]):
            start, reached = max(begin, reached), max(min(end, stay.end), reached)
            if reached > start:
                yield start, reached

    def _by_interval(self, stay: Stay, application: str) -> Iterator[tuple[float, float]]:
        first, cycle, cost = self.rhythm(stay.placed, len({slot.node for slot in stay.slots}), application)
        number = max(int((stay.start - first) // cycle), 0) if cycle < inf else 0
        while (begin := first + number * cycle) < stay.end:
            yield begin, begin + cost
            number += 1

    def rhythm(self, placed: float, nodes: int, application: str) -> tuple[float, float, float]:
        """Return a job's first checkpoint on GPUs that it was given, the time from one to the next, and of each [s]."""
        if self._rules is None:
            return inf, inf, 0.0
        rate = nodes * self._failure_rate(placed, self._rules.expected_rate)
        interval, cost = self._rules.interval(application, rate), self._rules.cost_of(application)
        return placed + self._delay + interval, interval + cost, cost

    def _failure_rate(self, now: float, expected: float) -> float:
        """Return the failures of a node a second as jobs knew it that were given GPUs at a time [s]."""
        return (bisect_right(self._failures, now) + 1) / (self._num_nodes * now + 1000 * DAY / expected)
