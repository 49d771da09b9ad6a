"""Series over time that follow from the records of a run: jobs, GPUs in use, nodes, shared GPUs and failures.

A run records only changes. Between two changes, a value stays as it is after the earlier change (`Steps`). Several
changes can have the same time, and only the state after the last of them counts. For example, a job can lose GPUs and
get other GPUs at one time, and does not wait between these two records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polluxsim.common.instants import has_come
from polluxsim.hardware.placements import Gpu, Gpus
from polluxsim.records.results import AllocationRecord, JobRecord, Result, SharingRecord, Status

Array = NDArray[np.float64]

_TIME = attrgetter("time")


class Share(NamedTuple):
    """The numbered GPUs of a job that shares GPUs."""

    gpus: Gpus
    speed: float  # relative to the speed alone


ALONE = Share((), 1.0)  # share of a job that shares no GPU


class Stretch(NamedTuple):
    """A period in which a job has the same speed and the same other jobs on its GPUs."""

    start: float  # [s]
    speed: float  # relative to the speed alone
    others: Mapping[str, Share]  # by job; the GPUs are those that both jobs hold


class Instant(NamedTuple):
    """The changes at one time."""

    time: float  # [s]
    changes: Mapping[str, Sequence[AllocationRecord]]  # by job, in their order
    shares: Mapping[str, Share]  # by job


def instants(allocations: Iterable[AllocationRecord], sharing: Iterable[SharingRecord]) -> Iterator[Instant]:
    """Yield all changes of a run in order of time. A job that loses all its GPUs also loses its share."""
    sharers: set[str] = set()
    records: Iterable[AllocationRecord | SharingRecord] = allocations
    if sharing:
        records = merge(allocations, sharing, key=_TIME)
    for time, together in groupby(records, key=_TIME):
        changes: dict[str, list[AllocationRecord]] = {}
        shares: dict[str, Share] = {}
        for record in together:
            if isinstance(record, AllocationRecord):
                changes.setdefault(record.job, []).append(record)
            else:
                shares[record.job] = Share(tuple(zip(record.nodes, record.gpus, strict=True)), record.speed)
        sharers |= shares.keys()
        # Records of one instant can have any order. The last record of each job counts.
        for job, of_job in changes.items():
            if job in sharers and not of_job[-1].nodes:
                shares[job] = ALONE
        yield Instant(time, changes, shares)


def shares_of(result: Result, job: str) -> list[Stretch]:
    """Return the stretches of a job since its first numbered GPUs, in order."""
    shares_now = dict[str, Share]()
    stretches = list[Stretch]()
    for time, _, shares in instants(result.allocation_records, result.sharing_records):
        shares_now |= shares
        gpus, speed = shares_now.get(job, ALONE)
        if not gpus and not stretches:
            continue
        neighbours = {}
        for name, share in shares_now.items():
            common = set(gpus) & set(share.gpus)
            if name != job and common:
                neighbours[name] = Share(tuple(sorted(common)), share.speed)
        # Most changes are of jobs on other GPUs.
        if not stretches or (stretches[-1].speed, stretches[-1].others) != (speed, neighbours):
            stretches.append(Stretch(time, speed, neighbours))
    return stretches


MOST_EFFICIENCY = 1 - 1e-6  # an efficiency above this value counts as 1


class Steps(NamedTuple):
    """A step function of time: the value from each time on, and 0 before the first time."""

    times: Array  # rising, shape (n,) [s]
    values: Array  # shape (n,)

    def at(self, moments: ArrayLike) -> Array:
        """Return the value at each time, after a step at exactly that time."""
        steps = np.searchsorted(self.times, np.asarray(moments, float), side="right")
        return np.concatenate([[0.0], self.values])[steps]

    def means(self, edges: Array) -> Array:
        """Return the mean over each bin, shape (n,), of bins with edges of shape (n + 1,)."""
        inside = self.times[(self.times > edges[0]) & (self.times < edges[-1])]
        # Between two cuts, the value does not change, and no bin begins.
        cuts = np.unique(np.concatenate([edges, inside]))
        area = np.concatenate([[0.0], np.cumsum(self.at(cuts[:-1]) * np.diff(cuts))])
        return np.diff(area[np.searchsorted(cuts, edges)]) / np.diff(edges)


def _counted(changes: Iterable[tuple[float, int]]) -> Steps:
    """Return the sum of all changes up to each time, given changes with their times [s]."""
    events = np.fromiter(chain.from_iterable(changes), float).reshape(-1, 2)
    events = events[np.argsort(events[:, 0], kind="stable")]
    # Several changes of one time are one step, because the values between them last for no time.
    times = np.unique(events[:, 0])
    last = np.searchsorted(events[:, 0], times, side="right") - 1
    return Steps(times, np.cumsum(events[:, 1])[last])


def submitted(result: Result) -> list[JobRecord]:
    """Return the jobs that were submitted before the run ended."""
    return [job for job in result.job_records if has_come(job.submit_time, result.end_time)]


def lifetime(result: Result, job: JobRecord) -> tuple[float, float]:
    """Return the submission of a job, or 0 if it is earlier, and its end, or that of the run if it did not end [s]."""
    start = max(job.submit_time, 0.0)
    if job.left_at is None:
        return start, result.end_time
    return start, job.left_at


def allocations_of(result: Result, job: JobRecord) -> list[AllocationRecord]:
    """Return the allocations of a job before its end, in order of time. At its end, a job has one without GPUs."""
    _, end = lifetime(result, job)
    allocations = []
    for record in result.allocation_records:
        if record.job == job.job and record.time < end:
            allocations.append(record)
    return allocations


def active_jobs(result: Result) -> Steps:
    """Return the number of jobs that are submitted and have not ended, over time."""
    return _counted(_arrivals_and_ends(result))


def waiting_jobs(result: Result) -> Steps:
    """Return the number of jobs that are submitted, have not ended, and hold no GPU, over time."""
    return _counted(chain(_arrivals_and_ends(result), _losses_of_all_gpus(result)))


def _arrivals_and_ends(result: Result) -> Iterator[tuple[float, int]]:
    """Yield (time, 1) at the submission of each job, and (time, −1) at its end [s]."""
    for job in submitted(result):
        yield max(job.submit_time, 0.0), 1
        if job.left_at is not None:
            yield job.left_at, -1


def _losses_of_all_gpus(result: Result) -> Iterator[tuple[float, int]]:
    """Yield (time, 1) when a job loses its last GPU, and (time, −1) when it gets its first GPU."""
    holders = set[str]()
    for record in result.allocation_records:
        has_gpus = bool(record.nodes)
        if has_gpus and record.job not in holders:
            holders.add(record.job)
            yield record.time, -1
        elif not has_gpus and record.job in holders:
            holders.remove(record.job)
            yield record.time, 1


def gpus_in_use(result: Result, nodes: Collection[int] | None = None) -> Steps:
    """Return the number of GPUs that jobs hold, over time, on all nodes or on the given ones.

    A shared GPU counts once.
    """
    return _counted(chain(_changes_of_gpus(result, nodes), _changes_of_sharing(result, nodes)))


def _changes_of_gpus(result: Result, nodes: Collection[int] | None) -> Iterator[tuple[float, int]]:
    """Yield the time of each allocation [s] and the additional GPUs of its job."""
    gpus_of = dict[str, int]()
    for record in result.allocation_records:
        num_gpus = 0
        for node, gpus in zip(record.nodes, record.gpus, strict=True):
            if nodes is None or node in nodes:
                num_gpus += gpus
        yield record.time, num_gpus - gpus_of.get(record.job, 0)
        gpus_of[record.job] = num_gpus


def _changes_of_sharing(result: Result, nodes: Collection[int] | None) -> Iterator[tuple[float, int]]:
    """Yield the correction of GPUs in use for sharing: a shared GPU is in use once, but several jobs hold it."""
    if not result.sharing_records:
        return
    gpus_of: dict[str, Gpus] = {}
    saved_before = 0  # GPUs that jobs would hold in addition if they did not share
    for time, _, shares in instants(result.allocation_records, result.sharing_records):
        for job, share in shares.items():
            gpus_of[job] = share.gpus
        gpus_of_jobs: list[Gpu] = []  # a shared GPU once for each of its jobs
        for gpus in gpus_of.values():
            for node, number in gpus:
                if nodes is None or node in nodes:
                    gpus_of_jobs.append((node, number))
        saved = len(gpus_of_jobs) - len(set(gpus_of_jobs))
        yield time, saved_before - saved
        saved_before = saved


def nodes_up(result: Result) -> Steps:
    """Return the number of nodes that are up, over time. It changes at rounds only, as the run records it."""
    return _of_rounds(result, "nodes")


def is_adaptive(result: Result) -> bool:
    """Return whether a job trained at a statistical efficiency below 1. Rigid jobs have efficiency 1."""
    return any(0 < record.efficiency < MOST_EFFICIENCY for record in result.round_records)


def _of_rounds(result: Result, column: str) -> Steps:
    """Return a column of the table of rounds as a function of time."""
    records = result.round_records
    times = np.fromiter(map(_TIME, records), float, len(records))
    values = np.fromiter(map(attrgetter(column), records), float, len(records))
    return Steps(times, values)


LATE_START = 0.2  # runs whose first submission is after this share of the time are shown from this submission on [1]


def axis_start(results: Iterable[Result]) -> float:
    """Return the start of the time axis of runs [s]: time 0, or their first submission if it is late."""
    results = list(results)
    first = min(result.start_time for result in results)
    end = max(result.end_time for result in results)
    if LATE_START * end < first < end:
        return first
    # A short wait for the first submission stays, so that runs have the clock of their workload.
    return 0.0


def bin_edges(end_time: float, bin_width: float, start: float = 0.0) -> Array:
    """Return the edges of bins from a start to the end of the run, shape (n + 1,) [s]. The last bin may be narrower.

    A run that ends at the start or earlier has one bin of the full width.

    >>> bin_edges(70.0, 30.0).tolist(), bin_edges(70.0, 30.0, start=20.0).tolist()
    ([0.0, 30.0, 60.0, 70.0], [20.0, 50.0, 70.0])
    """
    if end_time <= start:
        return np.array([start, start + bin_width])
    edges = np.arange(start, end_time, bin_width)
    # By rounding, `arange` can return an edge at the end itself.
    return np.append(edges[edges < end_time], end_time)


def usage_by_bin(result: Result, edges: Array) -> tuple[Array, Array]:
    """Return the mean number of GPUs in use in each bin, and their mean statistical efficiency, shape (n,) each.

    The edges have shape (n + 1,) [s]. Times their widths, the means add up to the GPU time of all jobs. The efficiency
    at a time is that of the last round. Its mean is weighted by GPU time, and nan in a bin without GPUs in use.
    """
    gpus = gpus_in_use(result)
    efficiency = _of_rounds(result, "efficiency")
    # Between two cuts, neither the GPUs in use nor the efficiency changes, and no bin begins.
    times = np.concatenate([gpus.times, efficiency.times])
    inside = times[(times > edges[0]) & (times < edges[-1])]
    end = np.clip([result.end_time], edges[0], edges[-1])
    cuts = np.unique(np.concatenate([edges, inside, end]))
    starts = cuts[:-1]
    lengths = np.diff(cuts)
    gpu_time = gpus.at(starts) * lengths * (starts < result.end_time)
    bins = np.searchsorted(edges, starts, side="right") - 1
    total = np.bincount(bins, gpu_time, len(edges) - 1)
    weighted = np.bincount(bins, gpu_time * efficiency.at(starts), len(edges) - 1)
    mean = np.divide(weighted, total, out=np.full(len(total), np.nan), where=total > 0)
    return total / np.diff(edges), mean


def failures(result: Result, interval: float | None) -> Iterator[tuple[tuple[str, float], float]]:
    """Yield each loss to a failure: the job with the time at which it got the GPUs, and the time of the loss [s].

    Policies give GPUs only at rounds. Between rounds jobs lose GPUs when they complete, or when a node or the job
    fails. `interval` is the round interval [s]: a round at no multiple of it follows a failure, which is its first
    change. Without it, failures of jobs are not told from preemptions in such a round. Records of one time are in the
    order of their events.
    """
    down = {(outage.time, outage.node) for outage in result.outage_records}
    rounds = {record.time for record in result.round_records}
    # The end of a failed job is its last failure, which counts.
    ends: dict[str, float | None] = {}
    for job in result.job_records:
        if job.status is not Status.FAILED:
            ends[job.job] = job.left_at
    # Rounds at no multiple of the interval that follow no outage: a job failed.
    rounds_after_failures: set[float] = set()
    if interval:
        rounds_after_failures = {time for time in rounds if round(time / interval) * interval != time}
    rounds_after_failures -= {time for time, _ in down}
    times_so_far: set[float] = set()
    placed: dict[str, AllocationRecord] = {}  # the last change of GPUs, by job
    for record in result.allocation_records:
        is_first = record.time not in times_so_far
        times_so_far.add(record.time)
        before = placed.get(record.job)
        if before is not None and (before.nodes, before.gpus) == (record.nodes, record.gpus):
            continue
        placed[record.job] = record
        loses_all_gpus = before is not None and before.nodes and not record.nodes
        if before is None or not loses_all_gpus:
            continue
        # The failure is the first change of its round. Further changes are those of the policy.
        is_between_rounds = record.time not in rounds or (is_first and record.time in rounds_after_failures)
        is_crash = is_between_rounds and record.time != ends.get(record.job)
        if is_crash or any((record.time, node) in down for node in before.nodes):
            yield (record.job, before.time), record.time
