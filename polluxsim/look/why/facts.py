"""What the allocations alone say about a job: its stages, whose GPUs it got, and who got its own."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.look.series import active_jobs, gpus_in_use, lifetime
from polluxsim.look.shared import ALONE, instants
from polluxsim.look.slots import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polluxsim.look.shared import Share
    from polluxsim.records import AllocationRecord, JobRecord
    from polluxsim.storage import Run

    GpusByNode = dict[int, int]


class Stage(NamedTuple):
    """A stretch of a job's life [s] with the same GPUs by node, or without any.

    Attributes
    ----------
    batch_sizes
        Total batch sizes in it, in order, each once after another [examples].
    given_by, taken_by
        GPUs that other jobs gave up at its start where this one got more, and got where this one gave some up, by job.
    has_run
        Whether the job held GPUs before it.
    failed
        What befell nodes that it lost all its GPUs for, by node.
    """

    start: float
    end: float
    before: Mapping[int, int]
    gpus: Mapping[int, int]
    batch_sizes: tuple[int, ...]
    given_by: Mapping[str, int]
    taken_by: Mapping[str, int]
    has_run: bool = False
    failed: Mapping[int, str] = MappingProxyType({})

    @property
    def what(self) -> str:
        """Return what happened at the start of the stage, in a word."""
        had, has = sum(self.before.values()), sum(self.gpus.values())
        if not has:
            return "failed" if self.failed else "paused" if had else "waits"
        if not had:
            return "resumed" if self.has_run else "started"
        return "moved" if had == has else "grew" if has > had else "shrank"


class Moment(NamedTuple):
    """The cluster at one time: GPUs that each job holds, and how many are held at all, be it by several."""

    holders: Mapping[str, int]
    active_jobs: int
    gpus_in_use: int


def stages(run: Run, job: JobRecord) -> list[Stage]:
    """Return the stages of a job's life in order, from submission to its end or that of the run."""
    _, end = lifetime(run.result, job)
    placed: dict[str, GpusByNode] = {}
    fell = {(outage.time, outage.node): outage.kind for outage in run.result.outage_records}
    found = [Stage(job.submit_time, end, {}, {}, (), {}, {})] if job.submit_time < end else []
    shared: dict[str, Share] = {}
    for time, changes, shares in instants(run.result.allocation_records, run.result.sharing_records):
        last = {name: records[-1] for name, records in changes.items()}
        if job.job in last and time < end:
            stage = _stage_at(time, end, job.job, placed, last)
            if job.job in shares or job.job in shared:
                given_by, taken_by = _exchanged(job.job, shared, shares)
                stage = stage._replace(given_by=given_by, taken_by=taken_by)
            failed = {node: fell[time, node] for node in stage.before if (time, node) in fell and not stage.gpus}
            stage = stage._replace(has_run=any(each.gpus for each in found), failed=failed)
            if found and found[-1].gpus == stage.gpus:
                found[-1] = found[-1]._replace(batch_sizes=found[-1].batch_sizes + stage.batch_sizes)
            else:
                found = [*found[:-1], *(each._replace(end=time) for each in found[-1:]), stage]
        placed |= {name: counts(record) for name, record in last.items()}
        shared |= shares
    return [stage for stage in found if stage.end > stage.start]


def moment(run: Run, time: float) -> Moment:
    """Return who holds GPUs just after what happened at a time [s]."""
    held = dict[str, int]()
    for record in run.result.allocation_records:
        if record.time > time:
            break
        held[record.job] = sum(record.gpus)
    active, in_use = (int(steps(run.result).at(time)) for steps in (active_jobs, gpus_in_use))
    return Moment({job: gpus for job, gpus in held.items() if gpus}, active, in_use)


def _stage_at(
    time: float, end: float, job: str, placed: Mapping[str, GpusByNode], changes: Mapping[str, AllocationRecord]
) -> Stage:
    before, now = placed.get(job, {}), counts(changes[job])
    others = {name: (placed.get(name, {}), counts(record)) for name, record in changes.items() if name != job}
    return Stage(
        time,
        end,
        before,
        now,
        (changes[job].batch_size,) if now else (),
        given_by=_matched(_risen(before, now), {name: _risen(new, old) for name, (old, new) in others.items()}),
        taken_by=_matched(_risen(now, before), {name: _risen(old, new) for name, (old, new) in others.items()}),
    )


def _exchanged(job: str, before: Mapping[str, Share], now: Mapping[str, Share]) -> tuple[Counter[str], Counter[str]]:
    """Return whose GPUs by number a job got, and who got its own, of those who gave them up or got them just then."""
    had = set(before.get(job, ALONE).gpus)
    has = set(now[job].gpus) if job in now else had
    given_by, taken_by = Counter[str](), Counter[str]()
    for name in now.keys() - {job}:
        old, new = (set(shares.get(name, ALONE).gpus) for shares in (before, now))
        given_by[name] = len((has - had) & (old - new))
        taken_by[name] = len((had - has) & (new - old))
    return +given_by, +taken_by


def _risen(before: Mapping[int, int], now: Mapping[int, int]) -> GpusByNode:
    """Return by how many GPUs each node's number has risen, where it has."""
    return {node: gpus - before.get(node, 0) for node, gpus in now.items() if gpus > before.get(node, 0)}


def _matched(wanted: GpusByNode, others: Mapping[str, GpusByNode]) -> Counter[str]:
    """Return how many GPUs of the same nodes stand on the other side, at most as many as are wanted, by job."""
    found = Counter[str]()
    for (node, gpus), (name, theirs) in product(wanted.items(), others.items()):
        found[name] += min(gpus, theirs.get(node, 0))
    return +found


def largest(counts: Mapping[str, int], most: int) -> Iterable[tuple[str, int]]:
    """Return the largest counts, by name at a tie."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
