"""What re-allocations cost: how long jobs run between two of them, and how much of that goes into restarts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polluxsim.records import AllocationRecord
    from polluxsim.types import JobId


class Overhead(NamedTuple):
    """Time of one job.

    Attributes
    ----------
    run_time
        Time during which it held GPUs [s].
    restart_time
        The part of it that it spent in starts and restarts instead of training [s].
    """

    run_time: float = 0.0
    restart_time: float = 0.0


def overheads(changes: Iterable[AllocationRecord], restart_delay: float, end_time: float) -> Mapping[JobId, Overhead]:
    """Return what every job that ever ran lost to starts, from the record of its changes.

    Parameters
    ----------
    changes
        Changes in order of time; one that leaves the placement as it is restarts nothing.
    restart_delay
        Time that a job loses when it is placed anew, its first start included; less if it is moved again before that
        is over [s].
    end_time
        When the run was over, for jobs that were cut off [s].
    """
    totals = defaultdict[str, Overhead](Overhead)
    held: dict[str, tuple[float, tuple[int, ...], tuple[int, ...]]] = {}

    def let_go(job: JobId, now: float) -> None:
        if (before := held.pop(job, None)) is not None:
            time, total = now - before[0], totals[job]
            totals[job] = Overhead(total.run_time + time, total.restart_time + min(time, restart_delay))

    for change in changes:
        if change.job in held and held[change.job][1:] == (change.nodes, change.gpus):
            continue
        let_go(change.job, change.time)
        if change.gpus:
            held[change.job] = (change.time, change.nodes, change.gpus)
    for job in list(held):
        let_go(job, end_time)
    return totals
