"""Which GPU of a node a job holds: the record knows how many, and a picture needs to know which."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.errors import InvalidInputError
from polluxsim.gpu_types import NOBODY_SAYS
from polluxsim.look.groups import settings_of
from polluxsim.look.shared import ALONE, instants
from polluxsim.types import Cluster, Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polluxsim.look.shared import Share
    from polluxsim.records import AllocationRecord, SharingRecord
    from polluxsim.storage import Run
    from polluxsim.types import Gpus


class Slot(NamedTuple):
    """One GPU: its node, and which one of that node, counted from 0."""

    node: int
    gpu: int


class Stay(NamedTuple):
    """A stretch of time in which a job holds the same GPUs at the same batch size.

    Attributes
    ----------
    job
        Its name.
    start, end
        From when to when [s]; `end` is later than `start`.
    slots
        The GPUs, by node and number.
    batch_size, accumulation_steps
        What it trains at [examples; 1].
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
    records: Iterable[AllocationRecord],
    cluster: Cluster,
    end_time: float,
    sharing: Iterable[SharingRecord] = (),
) -> Iterator[Stay]:
    """Yield all stays of a run as they end.

    Who shares GPUs has those that are recorded. Others have numbers here that nobody recorded: a job keeps its slots
    for as long as it stays on a node; those it gets in addition are the node's lowest free ones, so the same run always
    gives the same slots. A job that completes leaves its slots at once, although nobody else can have them before the
    next round.

    Parameters
    ----------
    records
        Changes in order of time.
    cluster
        The GPUs there are.
    end_time
        When the run ended; jobs that hold GPUs then stay until then [s].
    sharing
        Who is on which GPUs by number, in order of time.

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    slots, jobs = _Slots(cluster), dict[str, _Holding]()
    for time, changed, shares in instants(records, sharing):
        changes = dict(changed)
        if shares:
            for job in sorted(shares.keys() - changes.keys() | slots.in_the_way(shares)):
                changes.setdefault(job, [_as_it_is(jobs, job, time)])
        yield from _ended(jobs, changes, time)
        slots.give({job: _counts(of_job[-1]) for job, of_job in changes.items()}, shares, time)
        for job, of_job in changes.items():
            holding = jobs.setdefault(job, _Holding())
            holding.share = shares.get(job, holding.share)
            holding.change(of_job, slots.of(job), slots.lanes_of(job))
    yield from _ended(jobs, list(jobs), end_time)


def cluster_of(run: Run) -> Cluster:
    """Return the cluster of a run: as run.json says, and as large as its records show where it grew, or is not said."""
    known = Cluster.of_groups(run.info["nodes"]) if "nodes" in run.info else None
    sizes = {} if known is None else dict(enumerate(known.gpus_per_node))
    for held in set(map(attrgetter("nodes", "gpus"), run.result.allocation_records)):
        for node, gpus in zip(*held, strict=True):
            sizes[node] = max(sizes.get(node, 1), gpus)
    for outage in run.result.outage_records:
        sizes[outage.node] = max(sizes.get(outage.node, 1), outage.gpus)
    # A run in which nobody ever held a GPU still had a node.
    nodes = tuple(sizes.get(node, 1) for node in range(max(sizes, default=0) + 1))
    return Cluster(nodes, node_types=known.node_types if known and known.num_nodes == len(nodes) else NOBODY_SAYS)


def num_gpus(run: Run) -> int | None:
    """Return the GPUs of a run's cluster, None of a run of before they were recorded, if its settings do not tell."""
    if isinstance(recorded := run.info.get("nodes"), list):
        return sum(int(count) * int(gpus) for count, gpus, *_ in recorded)
    cluster: dict[str, Any] = {key: value for key, value in settings_of(run).items() if key.startswith("cluster.")}
    if isinstance(groups := cluster.get("cluster.groups"), list):
        return sum(int(count) * int(gpus) for count, gpus, *_ in groups)
    nodes, gpus = cluster.get("cluster.num_nodes"), cluster.get("cluster.gpus_per_node")
    return nodes * gpus if isinstance(nodes, int) and isinstance(gpus, int) else None


def steady_gpus(run: Run) -> int | None:
    """Return the GPUs of a run's cluster, None where a policy rents nodes as it needs them, and where nobody knows."""
    return None if is_rented(run) else num_gpus(run)


def is_rented(run: Run) -> bool:
    """Return whether a policy rents the nodes of a run's cluster as it needs them."""
    return "cluster.least_nodes" in settings_of(run)


def most_lanes(pieces: Iterable[Stay]) -> int:
    """Return on how many places of one GPU jobs were at once, one at least."""
    return 1 + max((max(stay.lanes, default=0) for stay in pieces), default=0)


def _as_it_is(jobs: Mapping[str, _Holding], job: str, time: float) -> AllocationRecord:
    """Return what a job has, as if it were recorded at a time [s]."""
    if job not in jobs or (now := jobs[job].now) is None:
        raise InvalidInputError(f"sharing.parquet: at {time:g} s job {job!r} shares GPUs, and was given none")
    return now._replace(time=time)


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first of each run of neighbours among rising numbers, and how many it has.

    >>> runs([2, 3, 4, 7])
    [(2, 3), (7, 1)]
    """
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return [(numbers[0], len(numbers))]
    each = (list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]))
    return [(run[0][1], len(run)) for run in each]


def _counts(record: AllocationRecord) -> dict[int, int]:
    return dict(zip(record.nodes, record.gpus, strict=True)) if record.nodes else {}


def _ended(jobs: dict[str, _Holding], names: Iterable[str], time: float) -> Iterator[Stay]:
    for name in names:
        if (job := jobs.get(name)) is not None and (stay := job.stay(time)) is not None:
            yield stay


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
    slots = _Slots(cluster)
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
        slots.give({job: _counts(placed[job]) for job in left}, {}, time)
    yield from slots.held_until(end_time, placed.values())


class _Slots:
    """The GPUs of all nodes, free or held."""

    def __init__(self, cluster: Cluster) -> None:
        self._sizes = cluster.gpus_per_node
        self._free = [list(range(gpus)) for gpus in self._sizes]
        self._held: dict[str, dict[int, list[int]]] = {}
        self._named: dict[str, Gpus] = {}
        self._users = defaultdict[Gpu, dict[str, int]](dict)

    def lanes_of(self, job: str) -> tuple[int, ...]:
        return tuple(self._users[gpu][job] for gpu in sorted(self._named.get(job, ())))

    def of(self, job: str) -> tuple[Slot, ...]:
        if named := self._named.get(job):
            return tuple(Slot(*gpu) for gpu in sorted(named))
        held = sorted(self._held.get(job, {}).items())
        return tuple(Slot(node, gpu) for node, gpus in held for gpu in sorted(gpus))

    def held_until(self, time: float, placed: Iterable[AllocationRecord]) -> Iterator[Tenure]:
        for record in placed:
            if record.nodes and record.time < time:
                for node, gpus in self._held[record.job].items():
                    for first, length in runs(sorted(gpus)):
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
            before = self.now
            self.now = record
            if before is not None and (before.nodes, before.gpus) == (record.nodes, record.gpus):
                continue
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
