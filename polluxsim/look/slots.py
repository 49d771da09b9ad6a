"""Which GPU of a node a job holds: the record knows how many, and a picture needs to know which."""

from __future__ import annotations

from collections import defaultdict
from itertools import count, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import InvalidInputError
from polluxsim.types import Cluster, Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polluxsim.look.shared import Share
    from polluxsim.records import AllocationRecord
    from polluxsim.types import Gpus


class Slot(NamedTuple):
    """One GPU: its node, and which one of that node, counted from 0."""

    node: int
    gpu: int


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first of each run of neighbours among rising numbers, and how many it has.

    >>> runs([2, 3, 4, 7])
    [(2, 3), (7, 1)]
    """
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return [(numbers[0], len(numbers))]
    each = (list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]))
    return [(run[0][1], len(run)) for run in each]


def counts(record: AllocationRecord) -> dict[int, int]:
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
        slots.give({job: counts(placed[job]) for job in left}, {}, time)
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
