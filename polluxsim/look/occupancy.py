"""The GPUs that each job held over time, by number: stretches of time, and rectangles of GPUs and time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate, count, groupby, pairwise, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.gpu_types import NOBODY_SAYS, NodeTypes
from polluxsim.hardware.placements import Gpu
from polluxsim.statistics.series import ALONE, instants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from polluxsim.hardware.clusters import Cluster
    from polluxsim.hardware.placements import Gpus
    from polluxsim.records.results import AllocationRecord, Result, SharingRecord
    from polluxsim.statistics.series import Share


class Slot(NamedTuple):
    """One GPU: its node, and which one of that node, counted from 0."""

    node: int
    gpu: int


def consecutive(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first of each run of neighbours among rising numbers, and how many it has.

    >>> consecutive([2, 3, 4, 7])
    [(2, 3), (7, 1)]
    """
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return [(numbers[0], len(numbers))]
    each = (list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]))
    return [(run[0][1], len(run)) for run in each]


def gpus_by_node(record: AllocationRecord) -> dict[int, int]:
    """Return the GPUs of each node that a record gives."""
    return dict(zip(record.nodes, record.gpus, strict=True)) if record.nodes else {}


class Tenure(NamedTuple):
    """A stretch of time in which a job holds neighbouring GPUs of a node: the first one, and how many [s; s]."""

    start: float
    end: float
    job: str
    node: int
    first: int
    length: int


def tenures(records: Iterable[AllocationRecord], cluster: Cluster, end_time: float) -> Iterator[Tenure]:
    """Yield who holds which GPUs as `stays` does, where nobody shares any and batch sizes do not matter: it is quicker.

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    slots = Slots(cluster)
    placed: dict[str, AllocationRecord] = {}
    for time, together in groupby(records, key=attrgetter("time")):
        left: dict[str, AllocationRecord | None] = {}
        for record in together:
            before = placed.get(record.job)
            if before is None or before.nodes != record.nodes or before.gpus != record.gpus:
                left.setdefault(record.job, before)
                placed[record.job] = record
        if ended := [before for before in left.values() if before is not None and before.nodes]:
            yield from slots.held_until(time, ended)
        slots.give({job: gpus_by_node(placed[job]) for job in left}, {}, time)
    yield from slots.held_until(end_time, placed.values())


class Slots:
    """The GPUs of all nodes, free or held."""

    def __init__(self, cluster: Cluster) -> None:
        self._sizes = cluster.gpus_per_node
        self._free = [list(range(gpus)) for gpus in self._sizes]
        self._held: dict[str, dict[int, list[int]]] = {}
        self._named: dict[str, Gpus] = {}
        self._users = defaultdict[Gpu, dict[str, int]](dict)

    def lanes_of(self, job: str) -> tuple[int, ...]:
        """Return the place of a job on each of its GPUs that others may have, too."""
        return tuple(self._users[gpu][job] for gpu in sorted(self._named.get(job, ())))

    def of(self, job: str) -> tuple[Slot, ...]:
        """Return the GPUs of a job."""
        if named := self._named.get(job):
            return tuple(Slot(*gpu) for gpu in sorted(named))
        held = sorted(self._held.get(job, {}).items())
        return tuple(Slot(node, gpu) for node, gpus in held for gpu in sorted(gpus))

    def held_until(self, time: float, placed: Iterable[AllocationRecord]) -> Iterator[Tenure]:
        """Yield what jobs held since they were placed, where that ends now [s]."""
        for record in placed:
            if record.nodes and record.time < time:
                for node, gpus in self._held[record.job].items():
                    for first, length in consecutive(sorted(gpus)):
                        yield Tenure(record.time, time, record.job, node, first, length)

    def in_the_way(self, shares: Mapping[str, Share]) -> set[str]:
        """Return the jobs without numbers that were drawn on GPUs which others name now: they make room."""
        if not (named := {gpu for share in shares.values() for gpu in share.gpus}):
            return set()
        return {job for job in self._held if job not in self._named and not named.isdisjoint(self.of(job))}

    def give(self, counts: dict[str, dict[int, int]], shares: Mapping[str, Share], time: float) -> None:
        """Give jobs their new numbers of GPUs on each node, after all have left what they give up."""
        moved = {job: share.gpus for job, share in shares.items() if share.gpus != self._named.get(job, ())}
        for job in moved:
            self._leave(job)
        away = self.in_the_way(shares) if shares else ()
        if moved or self._named:
            named = self._named.keys() | {job for job, gpus in moved.items() if gpus}
            counts = {job: {} if job in named else wanted for job, wanted in counts.items()}
        for job, wanted in counts.items():
            if job in self._held:
                self._shrink(job, {} if job in away else wanted)
        for job, numbers in moved.items():
            self._take(job, numbers, time)
        for job, wanted in counts.items():
            if wanted:
                self._grow(job, wanted, time)

    def _take(self, job: str, gpus: Gpus, time: float) -> None:
        for node, number in gpus:
            users = self._users[node, number]
            if not users:
                if node >= len(self._free) or number not in self._free[node]:
                    raise InvalidInputError(
                        f"sharing.parquet: at {time:g} s job {job!r} is on GPU {number} of node {node}, allowed is one "
                        "that is there, and not held whole by another"
                    )
                self._free[node].remove(number)
            users[job] = next(lane for lane in count() if lane not in users.values())
        if gpus:
            self._named[job] = gpus

    def _leave(self, job: str) -> None:
        for node, number in self._named.pop(job, ()):
            del self._users[node, number][job]
            if not self._users[node, number]:
                self._free[node].append(number)

    def _shrink(self, job: str, wanted: dict[int, int]) -> None:
        held = self._held.pop(job)
        for node, gpus in held.items():
            self._free[node] += gpus[wanted.get(node, 0) :]
        if wanted:
            self._held[job] = {node: gpus[: wanted[node]] for node, gpus in held.items() if node in wanted}

    def _grow(self, job: str, wanted: dict[int, int], time: float) -> None:
        held = self._held.setdefault(job, {})
        for node, gpus in wanted.items():
            own = held.setdefault(node, [])
            more, free = gpus - len(own), self._free[node] if node < len(self._free) else []
            if more > len(free):
                raise InvalidInputError(
                    f"allocations.parquet: at {time:g} s jobs hold more GPUs of node {node} than the cluster has"
                )
            free.sort()
            own += free[:more]
            del free[:more]


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
        slots.give({job: gpus_by_node(of_job[-1]) for job, of_job in changes.items()}, shares, time)
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


class Occupancy(NamedTuple):
    """Rectangles in order of their start, from when to when [s]; all arrays have one entry for each.

    A job is an index among the job records, `row` the first GPU, counted over all nodes, `rows` the number of GPUs, all
    on one node. `shared` is None where no jobs share GPUs.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    job: NDArray[np.int64]
    row: NDArray[np.int64]
    rows: NDArray[np.int64]
    gpus_per_node: tuple[int, ...]
    node_types: NodeTypes = NOBODY_SAYS
    shared: Parts | None = None


class Parts(NamedTuple):
    """What rectangles are of GPUs that jobs share; all arrays have one entry for each rectangle.

    It is the part with the number `place`, from 0, `of` so many equal ones: one for each job that is there. The job's
    speed is that beside the others over that alone, and it has the GPU since it was `placed` [s].
    """

    place: NDArray[np.int64]
    of: NDArray[np.int64]
    speed: NDArray[np.float64]
    placed: NDArray[np.float64]


def occupancy(result: Result, cluster: Cluster) -> Occupancy:
    """Return who held which GPU when.

    A change of placement begins a new rectangle also where a GPU stays with its job, as the job restarts; a change of
    the batch size alone does not. On GPUs that jobs share one begins, too, whenever who is there or a speed changes,
    and none overlap: of a GPU with n jobs each has an n-th.

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    index = {record.job: number for number, record in enumerate(result.job_records)}
    offsets = [0, *accumulate(cluster.gpus_per_node)]
    if result.sharing_records:
        pieces = stays(result.allocation_records, cluster, result.end_time, result.sharing_records)
        return _shared(pieces, index, offsets, cluster)
    found = [
        (start, end, index[job], offsets[node] + first, length)
        for start, end, job, node, first, length in tenures(result.allocation_records, cluster, result.end_time)
    ]
    start, end, job, row, rows = np.array(sorted(found), dtype=np.float64).reshape(-1, 5).T
    held, first, count = (column.astype(int) for column in (job, row, rows))
    return Occupancy(start, end, held, first, count, cluster.gpus_per_node, cluster.node_types)


def _shared(pieces: Iterable[Stay], index: Mapping[str, int], offsets: Sequence[int], cluster: Cluster) -> Occupancy:
    on: defaultdict[Slot, list[tuple[int, Stay]]] = defaultdict(list)
    for stay in pieces:
        for slot, lane in zip(stay.slots, stay.lanes or repeat(0), strict=False):
            on[slot].append((lane, stay))
    slots: defaultdict[_Part, list[Slot]] = defaultdict(list)
    for slot in sorted(on):
        for part in _parts(on[slot]):
            slots[part].append(slot)
    found = [
        (part.start, part.end, index[part.job], offsets[node] + first, count, *part[3:])
        for part, there in slots.items()
        for node, first, count in _runs(there)
    ]
    start, end, *columns, speed, placed = np.array(sorted(found), dtype=np.float64).reshape(-1, 9).T
    held, row, rows, place, of = (column.astype(int) for column in columns)
    shared = Parts(place, of, speed, placed)
    return Occupancy(start, end, held, row, rows, cluster.gpus_per_node, cluster.node_types, shared)


class _Part(NamedTuple):
    start: float
    end: float
    job: str
    place: int
    of: int
    speed: float
    placed: float


def _parts(there: Iterable[tuple[int, Stay]]) -> Iterator[_Part]:
    """Yield the parts of a GPU, each for as long as the same jobs are there at the same speeds."""
    by_lane = sorted(there, key=lambda pair: (pair[0], pair[1].start))
    times = sorted({time for _, stay in by_lane for time in (stay.start, stay.end)})
    users: dict[float, tuple[tuple[str, float, float], ...]] = dict.fromkeys(times, ())
    for _, stay in by_lane:
        for time in times[bisect_left(times, stay.start) : bisect_left(times, stay.end)]:
            users[time] += ((stay.job, stay.speed, stay.placed),)
    for jobs, stretch in groupby(pairwise(times), key=lambda pair: users[pair[0]]):
        (start, end), *rest = stretch
        for place, (job, speed, placed) in enumerate(jobs):
            yield _Part(start, rest[-1][1] if rest else end, job, place, len(jobs), speed, placed)


def _runs(slots: Sequence[Slot]) -> Iterator[tuple[int, int, int]]:
    """Yield node, first GPU and length of every run of neighbouring GPUs of a node."""
    for node, there in groupby(slots, key=attrgetter("node")):
        for first, length in consecutive([slot.gpu for slot in there]):
            yield node, first, length
