"""Which GPU of a node a job holds: the record knows how many, and a picture needs to know which."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.errors import InvalidInputError
from polluxsim.gpu_types import NOBODY_SAYS
from polluxsim.look.groups import settings_of
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from polluxsim.records import AllocationRecord
    from polluxsim.storage import Run


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


def stays(records: Iterable[AllocationRecord], cluster: Cluster, end_time: float) -> Iterator[Stay]:
    """Yield all stays of a run as they end.

    A job keeps its slots for as long as it stays on a node; those it gets in addition are the node's lowest free ones,
    so the same run always gives the same slots. A job that completes leaves its slots at once, although nobody else
    can have them before the next round.

    Parameters
    ----------
    records
        Changes in order of time.
    cluster
        The GPUs there are.
    end_time
        When the run ended; jobs that hold GPUs then stay until then [s].

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    slots, jobs = _Slots(cluster), dict[str, _Holding]()
    for time, together in groupby(records, key=attrgetter("time")):
        # What is given and what is taken away at one instant stand in any order; the last word on each job counts.
        changes = _by_job(together)
        yield from _ended(jobs, changes, time)
        slots.give({job: _counts(of_job[-1]) for job, of_job in changes.items()}, time)
        for job, of_job in changes.items():
            jobs.setdefault(job, _Holding()).change(of_job, slots.of(job))
    yield from _ended(jobs, list(jobs), end_time)


def cluster_of(run: Run) -> Cluster:
    """Return the cluster of a run: as run.json says, and as large as its records show where it grew, or is not said."""
    known = Cluster.of_groups(run.info["nodes"]) if "nodes" in run.info else None
    sizes = {} if known is None else dict(enumerate(known.gpus_per_node))
    for record in run.result.allocation_records:
        for node, gpus in zip(record.nodes, record.gpus, strict=True):
            sizes[node] = max(sizes.get(node, 1), gpus)
    for outage in run.result.outage_records:
        sizes[outage.node] = max(sizes.get(outage.node, 1), outage.gpus)
    # A run in which nobody ever held a GPU still had a node.
    nodes = tuple(sizes.get(node, 1) for node in range(max(sizes, default=0) + 1))
    return Cluster(nodes, node_types=known.node_types if known and known.num_nodes == len(nodes) else NOBODY_SAYS)


def check_whole(run: Run) -> None:
    """Raise an error where jobs share GPUs: how many each holds is recorded, and not with whom.

    Raises
    ------
    InvalidInputError
        Naming the setting.
    """
    if any(name.startswith("engine.sharing.") for name in settings_of(run)):
        raise InvalidInputError(f"{run.name}: jobs share GPUs (engine.sharing), drawn are runs in which none does")


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


def _by_job(records: Iterable[AllocationRecord]) -> dict[str, list[AllocationRecord]]:
    changes: dict[str, list[AllocationRecord]] = {}
    for record in records:
        changes.setdefault(record.job, []).append(record)
    return changes


def _counts(record: AllocationRecord) -> dict[int, int]:
    return dict(zip(record.nodes, record.gpus, strict=True))


def _ended(jobs: dict[str, _Holding], names: Iterable[str], time: float) -> Iterator[Stay]:
    for name in names:
        if (job := jobs.get(name)) is not None and (stay := job.stay(time)) is not None:
            yield stay


class _Slots:
    """The GPUs of all nodes, free or held."""

    def __init__(self, cluster: Cluster) -> None:
        self._sizes = cluster.gpus_per_node
        self._free = [list(range(gpus)) for gpus in self._sizes]
        self._held: dict[str, dict[int, list[int]]] = {}

    def of(self, job: str) -> tuple[Slot, ...]:
        return tuple(Slot(node, gpu) for node, gpus in sorted(self._held[job].items()) for gpu in sorted(gpus))

    def give(self, counts: dict[str, dict[int, int]], time: float) -> None:
        """Give jobs their new numbers of GPUs on each node, after all have left what they give up."""
        for job, wanted in counts.items():
            self._shrink(self._held.setdefault(job, {}), wanted)
        for job, wanted in counts.items():
            for node, gpus in wanted.items():
                self._grow(self._held[job].setdefault(node, []), node, gpus, time)

    def _shrink(self, held: dict[int, list[int]], wanted: dict[int, int]) -> None:
        for node in list(held):
            kept = wanted.get(node, 0)
            self._free[node] += held[node][kept:]
            held[node] = held[node][:kept]
            if not kept:
                del held[node]

    def _grow(self, held: list[int], node: int, gpus: int, time: float) -> None:
        more = gpus - len(held)
        free = self._free[node] if node < len(self._free) else []
        if more > len(free):
            raise InvalidInputError(
                f"allocations.parquet: at {time:g} s jobs hold more GPUs of node {node} than the cluster has"
            )
        free.sort()
        held += free[:more]
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

    def change(self, records: Sequence[AllocationRecord], slots: tuple[Slot, ...]) -> None:
        """Take over what is recorded of one instant."""
        for record in records:
            before = self.now
            self.now = record
            if before is not None and (before.nodes, before.gpus) == (record.nodes, record.gpus):
                continue
            self.placed, self.came_from = record.time, self.last
            self.starts += bool(record.nodes)
        self.slots = slots

    def stay(self, end: float) -> Stay | None:
        """Return what has lasted until now, None if that is nothing."""
        now = self.now
        if now is None or not now.nodes or end <= now.time:
            return None
        source = self.came_from._replace(came_from=None) if self.came_from is not None else None
        batch = (now.batch_size, now.accumulation_steps)
        self.last = Stay(now.job, now.time, end, self.slots, *batch, self.placed, self.starts - 1, source)
        return self.last
