"""Stretches of time in which a job holds the same GPUs: what a picture of a run is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import InvalidInputError
from polluxsim.look.shared import ALONE, instants
from polluxsim.look.slots import Slots, counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polluxsim.look.shared import Share
    from polluxsim.look.slots import Slot
    from polluxsim.records import AllocationRecord, SharingRecord
    from polluxsim.types import Cluster


class Stay(NamedTuple):
    """A stretch of time in which a job holds the same GPUs at the same batch size [examples]; it ends after its start.

    Attributes
    ----------
    placed
        When it was given these GPUs: before `start` where only the batch size changed since [s].
    restarts
        Its re-allocations so far, the one at `placed` included.
    came_from
        Its last stay on other GPUs, None if there was none.
    speed
        Its speed beside others on the same GPUs, over that alone.
    lanes
        The job's place on each of its GPUs where others may have them, too: the lowest that was free as it came.
    """

    job: str
    start: float
    end: float
    slots: tuple[Slot, ...]
    batch_size: int
    accumulation_steps: int
    placed: float
    restarts: int
    came_from: Stay | None
    speed: float = 1.0
    lanes: tuple[int, ...] = ()


def stays(
    records: Iterable[AllocationRecord], cluster: Cluster, end_time: float, sharing: Iterable[SharingRecord] = ()
) -> Iterator[Stay]:
    """Yield all stays of a run as they end.

    Who shares GPUs has those that are recorded. Others have numbers here that nobody recorded: a job keeps its slots
    for as long as it stays on a node; those it gets in addition are the node's lowest free ones, so the same run always
    gives the same slots. A job that completes leaves its slots at once, although nobody else can have them before the
    next round. Jobs that hold GPUs as the run ends stay until then [s].

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    slots, jobs = Slots(cluster), dict[str, _Holding]()
    for time, changed, shares in instants(records, sharing):
        changes = dict(changed)
        if shares:
            for job in sorted(shares.keys() - changes.keys() | slots.in_the_way(shares)):
                changes.setdefault(job, [_as_it_is(jobs, job, time)])
        yield from _ended(jobs, changes, time)
        slots.give({job: counts(of_job[-1]) for job, of_job in changes.items()}, shares, time)
        for job, of_job in changes.items():
            holding = jobs.setdefault(job, _Holding())
            holding.share = shares.get(job, holding.share)
            holding.change(of_job, slots.of(job), slots.lanes_of(job))
    yield from _ended(jobs, list(jobs), end_time)


def most_lanes(pieces: Iterable[Stay]) -> int:
    """Return on how many places of one GPU jobs were at once, one at least."""
    return 1 + max((max(stay.lanes, default=0) for stay in pieces), default=0)


def _as_it_is(jobs: Mapping[str, _Holding], job: str, time: float) -> AllocationRecord:
    """Return what a job has, as if it were recorded at a time [s]."""
    if job not in jobs or (now := jobs[job].now) is None:
        raise InvalidInputError(f"sharing.parquet: at {time:g} s job {job!r} shares GPUs, and was given none")
    return now._replace(time=time)


def _ended(jobs: dict[str, _Holding], names: Iterable[str], time: float) -> Iterator[Stay]:
    for name in names:
        if (job := jobs.get(name)) is not None and (stay := job.stay(time)) is not None:
            yield stay


@dataclass
class _Holding:
    """What one job holds, and since when."""

    now: AllocationRecord | None = None
    slots: tuple[Slot, ...] = ()
    placed: float = 0.0
    starts: int = 0
    last: Stay | None = None
    came_from: Stay | None = None
    share: Share = ALONE
    lanes: tuple[int, ...] = ()

    def change(self, records: Sequence[AllocationRecord], slots: tuple[Slot, ...], lanes: tuple[int, ...]) -> None:
        """Take over what is recorded of one instant."""
        for record in records:
            before, self.now = self.now, record
            if before is None or (before.nodes, before.gpus) != (record.nodes, record.gpus):
                self._place(record)
        if self.share.gpus and self.slots != slots and self.now is not None and self.placed < self.now.time:
            self._place(self.now)
        self.slots, self.lanes = slots, lanes

    def _place(self, record: AllocationRecord) -> None:
        self.placed, self.came_from = record.time, self.last
        self.starts += bool(record.nodes)

    def stay(self, end: float) -> Stay | None:
        """Return what has lasted until now, None if that is nothing."""
        now = self.now
        if now is None or not now.nodes or end <= now.time:
            return None
        source = self.came_from._replace(came_from=None) if self.came_from is not None else None
        what = (now.job, now.time, end, self.slots, now.batch_size, now.accumulation_steps)
        self.last = Stay(*what, self.placed, self.starts - 1, source, self.share.speed, self.lanes)
        return self.last
