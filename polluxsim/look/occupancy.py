"""The GPUs that each job held over time, as periods, and as rectangles of GPUs and time.

A run records how many GPUs of each node a job has, and their numbers only where jobs share GPUs. Drawings need
numbers for all GPUs; `Slots` assigns them.

Two jobs are on one GPU only if the run records both of them there. All changes of one time are therefore one step:
first every job gives up GPUs, then every job takes some. In the order of the records, a job could take a GPU whose
holder gives it up in a later record of the same time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import UNKNOWN_TYPES, NodeTypes
from polluxsim.hardware.placements import Gpu, Gpus
from polluxsim.records.results import AllocationRecord, Result, SharingRecord
from polluxsim.statistics.series import ALONE, Share, instants


class Slot(NamedTuple):
    """A GPU: its node, and its number on that node, from 0."""

    node: int
    gpu: int


def gpus_by_node(record: AllocationRecord) -> dict[int, int]:
    """Return the number of GPUs on each node of an allocation."""
    return dict(zip(record.nodes, record.gpus, strict=True))


class Slots:
    """The GPUs of all nodes, free or held.

    A job that stays on a node keeps its GPUs there. Additional GPUs are the lowest free ones of the
    node, so the same run always has the same numbers. GPUs that jobs share have their recorded numbers.

    Each GPU is in exactly one place: free, assigned to one job, or recorded for one or more jobs. A job has either
    assigned or recorded GPUs, never both.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._free: list[list[Slot]] = []  # by node
        for node, num_gpus in enumerate(cluster.gpus_per_node):
            self._free.append([Slot(node, gpu) for gpu in range(num_gpus)])
        self._held: dict[str, dict[int, list[Slot]]] = {}  # assigned GPUs, by job and node
        self._recorded: dict[str, Gpus] = {}  # recorded GPUs, by job
        self._lanes = defaultdict[Gpu, dict[str, int]](dict)  # lane of each job on a recorded GPU

    def lanes_of(self, job: str) -> tuple[int, ...]:
        """Return the lane of a job on each of its recorded GPUs: the lowest that was free when it came."""
        return tuple(self._lanes[gpu][job] for gpu in sorted(self._recorded.get(job, ())))

    def of(self, job: str) -> tuple[Slot, ...]:
        """Return the GPUs of a job in order."""
        recorded = self._recorded.get(job)
        if recorded:
            return tuple(Slot(node, gpu) for node, gpu in sorted(recorded))
        return tuple(sorted(chain.from_iterable(self._held.get(job, {}).values())))

    def in_the_way(self, shares: Mapping[str, Share]) -> set[str]:
        """Return the jobs whose assigned GPUs are now recorded for other jobs."""
        recorded: set[Gpu] = set()
        for share in shares.values():
            recorded.update(share.gpus)
        if not recorded:
            return set()
        jobs = self._held.keys() - self._recorded.keys()
        return {job for job in jobs if not recorded.isdisjoint(self.of(job))}

    def give(self, counts: dict[str, dict[int, int]], shares: Mapping[str, Share], time: float) -> None:
        """Give jobs their GPUs, after all jobs have left the GPUs that they give up at this time [s].

        `counts` has the number of GPUs on each node by job, and `shares` the recorded GPUs. Raise InvalidInputError if
        there are not enough free GPUs, or if recorded GPUs are not free.
        """
        moved: dict[str, Gpus] = {}
        for job, share in shares.items():
            if share.gpus != self._recorded.get(job, ()):
                moved[job] = share.gpus
        # All jobs give up GPUs before any job takes some, because the jobs may exchange them.
        for job in moved:
            self._leave(job)
        displaced: set[str] = set()
        if shares:
            displaced = self.in_the_way(shares)
        assigned = self._counts_to_assign(counts, moved)
        for job, wanted in assigned.items():
            if job not in self._held:
                continue
            if job in displaced:
                # The job gives up all its GPUs here, and gets others after the jobs with recorded GPUs.
                self._shrink(job, {})
            else:
                self._shrink(job, wanted)
        # Recorded numbers come first, because assigned GPUs can have any free number.
        for job, numbers in moved.items():
            self._take(job, numbers, time)
        for job, wanted in assigned.items():
            if wanted:
                self._grow(job, wanted, time)

    def _counts_to_assign(
        self, counts: dict[str, dict[int, int]], moved: Mapping[str, Gpus]
    ) -> dict[str, dict[int, int]]:
        """Return the number of GPUs to assign to each job by node: none to a job with recorded GPUs.

        `moved` contains the recorded GPUs of the jobs whose recorded GPUs change.
        """
        if not moved and not self._recorded:
            return counts
        recorded = set(self._recorded)
        for job, gpus in moved.items():
            if gpus:
                recorded.add(job)
        assigned: dict[str, dict[int, int]] = {}
        for job, wanted in counts.items():
            if job in recorded:
                assigned[job] = {}
            else:
                assigned[job] = wanted
        return assigned

    def _take(self, job: str, gpus: Gpus, time: float) -> None:
        """Give a job recorded GPUs. On each GPU, the job gets the lowest free lane."""
        for node, number in gpus:
            users = self._lanes[node, number]
            # The first user takes the GPU from the free ones. Further users find it taken.
            if not users:
                if node >= len(self._free) or Slot(node, number) not in self._free[node]:
                    raise InvalidInputError(
                        f"sharing.parquet: at {time:g} s job {job!r} shares GPU {number} of node {node}, which "
                        "does not exist or belongs to one job alone"
                    )
                self._free[node].remove(Slot(node, number))
            lane = 0
            while lane in users.values():
                lane += 1
            users[job] = lane
        if gpus:
            self._recorded[job] = gpus

    def _leave(self, job: str) -> None:
        """Take all recorded GPUs from a job."""
        for node, number in self._recorded.pop(job, ()):
            del self._lanes[node, number][job]
            if not self._lanes[node, number]:
                self._free[node].append(Slot(node, number))

    def _shrink(self, job: str, wanted: dict[int, int]) -> None:
        """Take the assigned GPUs from a job that it has in addition to the wanted number on each node."""
        assigned = self._held.pop(job)
        remaining: dict[int, list[Slot]] = {}
        for node, gpus in assigned.items():
            num_wanted = wanted.get(node, 0)
            self._free[node] += gpus[num_wanted:]
            if num_wanted:
                remaining[node] = gpus[:num_wanted]
        if wanted:
            self._held[job] = remaining

    def _grow(self, job: str, wanted: dict[int, int], time: float) -> None:
        """Assign GPUs to a job, up to the wanted number on each node."""
        assigned = self._held.setdefault(job, {})
        for node, gpus in wanted.items():
            gpus_here = assigned.setdefault(node, [])
            num_missing = gpus - len(gpus_here)
            free: list[Slot] = []
            if node < len(self._free):
                free = self._free[node]
            if num_missing > len(free):
                raise InvalidInputError(
                    f"allocations.parquet: at {time:g} s jobs hold more GPUs of node {node} than the cluster has"
                )
            # GPUs come back in the order in which jobs leave them. The lowest ones are assigned first.
            free.sort()
            gpus_here += free[:num_missing]
            del free[:num_missing]


class Stay(NamedTuple):
    """A period, which is not empty, in which a job holds the same GPUs at one batch size."""

    job: str
    start: float  # [s]
    end: float  # [s]
    slots: tuple[Slot, ...]
    batch_size: int  # in total [examples]
    accumulation_steps: int
    placed: float  # time when the job got these GPUs [s]
    restarts: int  # re-allocations up to `placed`
    came_from: Stay | None  # the last stay on other GPUs
    speed: float = 1.0  # beside other jobs on the same GPUs, relative to the speed alone
    lanes: tuple[int, ...] = ()  # on each shared GPU, the lowest lane that was free when the job came


def stays(
    records: Iterable[AllocationRecord], cluster: Cluster, end_time: float, sharing: Iterable[SharingRecord] = ()
) -> Iterator[Stay]:
    """Yield all stays of a run in the order in which they end.

    A job that completes releases its GPUs at once, although other jobs can get them only at the next round. Jobs that
    hold GPUs when the run ends stay until `end_time` [s]. Raise InvalidInputError if jobs hold more GPUs than exist.
    """
    slots = Slots(cluster)
    holdings = dict[str, _Holding]()
    for time, changed, shares in instants(records, sharing):
        changes = dict(changed)
        if shares:
            # A job whose share changes, or whose GPUs another job now shares, begins a new stay as well.
            for job in sorted(shares.keys() - changes.keys() | slots.in_the_way(shares)):
                changes.setdefault(job, [_unchanged(holdings, job, time)])
        # A stay ends before the changes, because it has the GPUs and the batch size from before them.
        yield from _ended(holdings, changes, time)
        counts: dict[str, dict[int, int]] = {}
        for job, of_job in changes.items():
            counts[job] = gpus_by_node(of_job[-1])
        slots.give(counts, shares, time)
        for job, of_job in changes.items():
            holding = holdings.setdefault(job, _Holding())
            holding.share = shares.get(job, holding.share)
            if of_job[-1].nodes:
                holding.change(of_job, slots.of(job), slots.lanes_of(job))
            else:
                holding.change(of_job, (), ())
    yield from _ended(holdings, list(holdings), end_time)


def most_lanes(all_stays: Iterable[Stay]) -> int:
    """Return the largest number of jobs that were on a GPU at once, at least 1."""
    last_lane = 0
    for stay in all_stays:
        last_lane = max([last_lane, *stay.lanes])
    return last_lane + 1


def _unchanged(holdings: Mapping[str, _Holding], job: str, time: float) -> AllocationRecord:
    """Return the present allocation of a job as a change at a time [s]."""
    holding = holdings.get(job)
    if holding is None or holding.now is None:
        raise InvalidInputError(f"sharing.parquet: at {time:g} s job {job!r} shares GPUs, but holds none")
    return holding.now._replace(time=time)


def _ended(holdings: Mapping[str, _Holding], names: Iterable[str], time: float) -> Iterator[Stay]:
    """Yield the stays of some jobs that end at a time [s]."""
    for name in names:
        if name in holdings:
            stay = holdings[name].stay(time)
            if stay is not None:
                yield stay


@dataclass
class _Holding:
    """The present GPUs of a job. The attributes are those of its next stay."""

    now: AllocationRecord | None = None
    slots: tuple[Slot, ...] = ()
    placed: float = 0.0  # [s]
    starts: int = 0  # number of allocations so far
    last: Stay | None = None  # the stay that ended last
    came_from: Stay | None = None
    share: Share = ALONE
    lanes: tuple[int, ...] = ()

    def change(self, records: Sequence[AllocationRecord], slots: tuple[Slot, ...], lanes: tuple[int, ...]) -> None:
        """Take over the changes of one time, of which the last one counts, and the GPUs after them."""
        for record in records:
            before = self.now
            self.now = record
            if before is None or (before.nodes, before.gpus) != (record.nodes, record.gpus):
                self._place(record)
        # A job with as many GPUs as before on each node can have other numbered GPUs.
        if self.share.gpus and self.slots != slots and self.now is not None and self.placed < self.now.time:
            self._place(self.now)
        self.slots = slots
        self.lanes = lanes

    def _place(self, record: AllocationRecord) -> None:
        """Begin the first stay on other GPUs, or on none."""
        self.placed = record.time
        if not record.nodes:
            return
        self.starts += 1
        self.came_from = None
        if self.last is not None:
            # Without its own `came_from`, a stay does not keep all earlier stays of the job in memory.
            self.came_from = self.last._replace(came_from=None)

    def stay(self, end: float) -> Stay | None:
        """Return the stay that ends at a time [s]; None if the job had no GPUs, or no time passed."""
        now = self.now
        if now is None or not now.nodes or end <= now.time:
            return None
        self.last = Stay(
            now.job,
            now.time,
            end,
            self.slots,
            now.batch_size,
            now.accumulation_steps,
            self.placed,
            self.starts - 1,
            self.came_from,
            self.share.speed,
            self.lanes,
        )
        return self.last


class Occupancy(NamedTuple):
    """Rectangles of GPUs and time in order of their start. All arrays have one entry for each rectangle."""

    start: NDArray[np.float64]  # [s]
    end: NDArray[np.float64]  # [s]
    job: NDArray[np.int64]  # index among the job records
    row: NDArray[np.int64]  # the first GPU, counted over all nodes
    rows: NDArray[np.int64]  # number of GPUs, all of one node
    gpus_per_node: tuple[int, ...]  # of the cluster, by node
    node_types: NodeTypes = UNKNOWN_TYPES
    shared: SharedParts | None = None  # None if no jobs share GPUs


class SharedParts(NamedTuple):
    """Parts of shared GPUs: a GPU with n jobs has n equal parts. All arrays have one entry for each rectangle."""

    place: NDArray[np.int64]  # index of the part among the n parts
    of: NDArray[np.int64]  # n
    speed: NDArray[np.float64]  # of the job beside other jobs, relative to its speed alone
    placed: NDArray[np.float64]  # time when the job got the GPU [s]


def occupancy(result: Result, cluster: Cluster) -> Occupancy:
    """Return the rectangles of GPUs and time that jobs held.

    A change of placement begins a new rectangle, also on a GPU that the job keeps, because the job restarts. A change
    of only the batch size begins none. On shared GPUs, a change of the jobs or of their speeds also begins a new
    rectangle.
    """
    job_index = {record.job: number for number, record in enumerate(result.job_records)}
    first_rows = [0, *accumulate(cluster.gpus_per_node)]
    all_stays = stays(result.allocation_records, cluster, result.end_time, result.sharing_records)
    slots: Mapping[tuple[Any, ...], Sequence[Slot]]
    if result.sharing_records:
        slots = _slots_by_part(all_stays)
        num_columns = 9
    else:
        slots = _slots_by_placement(all_stays)
        num_columns = 5
    rows = []
    for (start, end, job, *part), gpus in slots.items():
        for node, first, length in _runs(gpus):
            rows.append((start, end, job_index[job], first_rows[node] + first, length, *part))
    # Without any row, the array needs its number of columns for the unpacking below.
    columns = np.array(sorted(rows), dtype=np.float64).reshape(-1, num_columns).T
    start, end = columns[:2]
    job, row, num_rows = columns[2:5].astype(int)
    shared = None
    if result.sharing_records:
        place, of = columns[5:7].astype(int)
        speed, placed = columns[7:]
        shared = SharedParts(place, of, speed, placed)
    return Occupancy(start, end, job, row, num_rows, cluster.gpus_per_node, cluster.node_types, shared)


def _slots_by_placement(all_stays: Iterable[Stay]) -> dict[tuple[Any, ...], Sequence[Slot]]:
    """Return the GPUs of each placement, by its start [s], its end [s] and its job."""
    # Stays on the same GPUs differ only in their batch size. They become one rectangle, up to the end of the last.
    last_stays = {(stay.job, stay.placed): stay for stay in all_stays}
    slots: dict[tuple[Any, ...], Sequence[Slot]] = {}
    for stay in last_stays.values():
        slots[stay.placed, stay.end, stay.job] = stay.slots
    return slots


def _slots_by_part(all_stays: Iterable[Stay]) -> Mapping[tuple[Any, ...], Sequence[Slot]]:
    """Return the GPUs with equal parts: start, end and job, and place, of, speed and placed as in `SharedParts`."""
    stays_on: defaultdict[Slot, list[tuple[int, Stay]]] = defaultdict(list)
    for stay in all_stays:
        # A stay without lanes is alone on its GPUs.
        for slot, lane in zip(stay.slots, stay.lanes or repeat(0), strict=False):
            stays_on[slot].append((lane, stay))
    slots = defaultdict(list)
    for slot in sorted(stays_on):
        for part in _parts(stays_on[slot]):
            slots[part].append(slot)
    return slots


def _parts(lanes_and_stays: Iterable[tuple[int, Stay]]) -> Iterator[tuple[float, float, str, int, int, float, float]]:
    """Yield the parts of a GPU as in `_slots_by_part`. A part ends when the jobs on the GPU or their speeds change."""
    # The parts of a GPU have the order of the lanes, so that a job does not jump while others come and go.
    by_lane = sorted(lanes_and_stays, key=lambda pair: (pair[0], pair[1].start))
    changes: set[float] = set()
    for _, stay in by_lane:
        changes |= {stay.start, stay.end}
    times = sorted(changes)
    users: dict[float, tuple[tuple[str, float, float], ...]] = dict.fromkeys(times, ())
    for _, stay in by_lane:
        first = bisect_left(times, stay.start)
        end = bisect_left(times, stay.end)
        for time in times[first:end]:
            users[time] += ((stay.job, stay.speed, stay.placed),)
    for jobs, periods in groupby(pairwise(times), key=lambda period: users[period[0]]):
        equal_periods = list(periods)
        start = equal_periods[0][0]
        until = equal_periods[-1][1]
        for place, (job, speed, placed) in enumerate(jobs):
            yield start, until, job, place, len(jobs), speed, placed


def _runs(slots: Sequence[Slot]) -> Iterator[tuple[int, int, int]]:
    """Yield the node, the first GPU and the length of each run of consecutive GPUs of a node.

    >>> list(_runs([Slot(0, 2), Slot(0, 3), Slot(0, 7), Slot(1, 0)]))
    [(0, 2, 2), (0, 7, 1), (1, 0, 1)]
    """
    first = slots[0]
    length = 1
    for slot in slots[1:]:
        if slot == (first.node, first.gpu + length):
            length += 1
        else:
            yield first.node, first.gpu, length
            first = slot
            length = 1
    yield first.node, first.gpu, length
