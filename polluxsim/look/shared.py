"""Who is on which GPU by number, in runs in which jobs share them: from the records of that, instant by instant."""

from __future__ import annotations

from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.records import AllocationRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polluxsim.records import Result, SharingRecord
    from polluxsim.types import Gpus

_TIME = attrgetter("time")


class Share(NamedTuple):
    """The GPUs that a job has by number, and its speed there over that alone."""

    gpus: Gpus
    speed: float


ALONE = Share((), 1.0)
"""Of a job whose GPUs nobody else can have, or that has none."""


class Stretch(NamedTuple):
    """Since when [s] a job is as fast over that alone, and beside whom: who is on which of its GPUs, and how fast."""

    start: float
    speed: float
    others: Mapping[str, Share]


class Instant(NamedTuple):
    """What changed at one time [s]: allocations by job, in their order, and the GPUs that jobs have by number."""

    time: float
    changes: Mapping[str, Sequence[AllocationRecord]]
    shares: Mapping[str, Share]


def instants(allocations: Iterable[AllocationRecord], sharing: Iterable[SharingRecord]) -> Iterator[Instant]:
    """Yield all changes of a run in order of time; who loses all GPUs has none by number either."""
    sharers: set[str] = set()
    records: Iterable[AllocationRecord | SharingRecord] = (
        merge(allocations, sharing, key=_TIME) if sharing else allocations
    )
    for time, together in groupby(records, key=_TIME):
        changes: dict[str, list[AllocationRecord]] = {}
        shares: dict[str, Share] = {}
        for record in together:
            if isinstance(record, AllocationRecord):
                changes.setdefault(record.job, []).append(record)
            else:
                shares[record.job] = Share(tuple(zip(record.nodes, record.gpus, strict=True)), record.speed)
        sharers |= shares.keys()
        # What is given and what is taken away at one instant stand in any order; the last word on each job counts.
        gone = (job for job, of_job in changes.items() if job in sharers and not of_job[-1].nodes)
        yield Instant(time, changes, shares | dict.fromkeys(gone, ALONE))


def shares_of(result: Result, job: str) -> list[Stretch]:
    """Return the stretches of a job's life since it first had GPUs by number, one after the other."""
    now, found = dict[str, Share](), list[Stretch]()
    for time, _, shares in instants(result.allocation_records, result.sharing_records):
        now |= shares
        mine = now.get(job, ALONE)
        if not mine.gpus and not found:
            continue
        there = set(mine.gpus)
        common = {name: tuple(sorted(there.intersection(each.gpus))) for name, each in now.items() if name != job}
        others = {name: Share(gpus, now[name].speed) for name, gpus in common.items() if gpus}
        if not found or found[-1][1:] != (mine.speed, others):
            found.append(Stretch(time, mine.speed, others))
    return found
