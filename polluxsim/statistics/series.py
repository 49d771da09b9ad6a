"""Series over time and values over jobs that follow from the tables of a run, and ranks of users and queues."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.placements import Gpus
from polluxsim.metrics.summary import waiting_time
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
    others: Mapping[str, Share]  # by job


class Instant(NamedTuple):
    """The changes at one time."""

    time: float  # [s]
    changes: Mapping[str, Sequence[AllocationRecord]]  # by job, in their order
    shares: Mapping[str, Share]  # by job


def instants(allocations: Iterable[AllocationRecord], sharing: Iterable[SharingRecord]) -> Iterator[Instant]:
    """Yield all changes of a run in order of time. A job that loses all its GPUs also loses its share."""
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
        # Records of one instant can have any order. The last record of each job counts.
        gone = (job for job, of_job in changes.items() if job in sharers and not of_job[-1].nodes)
        yield Instant(time, changes, shares | dict.fromkeys(gone, ALONE))


def shares_of(result: Result, job: str) -> list[Stretch]:
    """Return the stretches of a job since its first numbered GPUs, in order."""
    now, found = dict[str, Share](), list[Stretch]()
    for time, _, shares in instants(result.allocation_records, result.sharing_records):
        now |= shares
        own = now.get(job, ALONE)
        if not own.gpus and not found:
            continue
        common = {name: tuple(sorted({*own.gpus} & {*each.gpus})) for name, each in now.items() if name != job}
        others = {name: Share(gpus, now[name].speed) for name, gpus in common.items() if gpus}
        if not found or found[-1][1:] != (own.speed, others):
            found.append(Stretch(time, own.speed, others))
    return found


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
        cuts = np.unique(np.concatenate([edges, self.times[(self.times > edges[0]) & (self.times < edges[-1])]]))
        area = np.concatenate([[0.0], np.cumsum(self.at(cuts[:-1]) * np.diff(cuts))])
        return np.diff(area[np.searchsorted(cuts, edges)]) / np.diff(edges)


def _counted(changes: Iterable[tuple[float, int]]) -> Steps:
    """Return the sum of all changes up to each time, given changes with their times [s]."""
    events = np.fromiter(chain.from_iterable(changes), float).reshape(-1, 2)
    events = events[np.argsort(events[:, 0], kind="stable")]
    return Steps(events[:, 0], np.cumsum(events[:, 1]))


def submitted(result: Result) -> list[JobRecord]:
    """Return the jobs that were submitted before the run ended."""
    return [job for job in result.job_records if job.submit_time <= result.end_time]


def lifetime(result: Result, job: JobRecord) -> tuple[float, float]:
    """Return the submission of a job, and its end or the end of the run [s]."""
    return job.submit_time, result.end_time if job.left_at is None else job.left_at


def active_jobs(result: Result) -> Steps:
    """Return the jobs that are submitted and have not ended."""
    return _counted(_arrivals_and_ends(result))


def waiting_jobs(result: Result) -> Steps:
    """Return the jobs that are submitted, have not ended, and hold no GPU."""
    return _counted(chain(_arrivals_and_ends(result), _losses_of_all_gpus(result)))


def _arrivals_and_ends(result: Result) -> Iterator[tuple[float, int]]:
    """Yield (time, 1) at the submission of each job, and (time, −1) at its end [s]."""
    for job in submitted(result):
        yield job.submit_time, 1
        if job.left_at is not None:
            yield job.left_at, -1


def _losses_of_all_gpus(result: Result) -> Iterator[tuple[float, int]]:
    """Yield (time, 1) when a job loses its last GPU, and (time, −1) when it gets its first GPU."""
    holders = set[str]()
    for record in result.allocation_records:
        if bool(record.nodes) != (record.job in holders):
            yield record.time, -1 if record.nodes else 1
            (holders.add if record.nodes else holders.discard)(record.job)


def gpus_in_use(result: Result, nodes: Collection[int] | None = None) -> Steps:
    """Return the GPUs that jobs hold until they complete or lose them, on all nodes or on the given ones."""
    return _counted(chain(_changes_of_gpus(result, nodes), _changes_of_sharing(result, nodes)))


def _changes_of_gpus(result: Result, nodes: Collection[int] | None) -> Iterator[tuple[float, int]]:
    """Yield the time of each allocation [s] and the additional GPUs of its job."""
    held = dict[str, int]()
    for record in result.allocation_records:
        pairs = zip(record.nodes, record.gpus, strict=True)
        now = sum(gpus for node, gpus in pairs if nodes is None or node in nodes)
        yield record.time, now - held.get(record.job, 0)
        held[record.job] = now


def _changes_of_sharing(result: Result, nodes: Collection[int] | None) -> Iterator[tuple[float, int]]:
    """Yield the correction of GPUs in use for sharing: a shared GPU is in use once, but several jobs hold it."""
    if not result.sharing_records:
        return
    held: dict[str, Gpus] = {}
    saved = 0
    for time, _, shares in instants(result.allocation_records, result.sharing_records):
        held |= {job: share.gpus for job, share in shares.items()}
        named = [gpu for gpus in held.values() for gpu in gpus if nodes is None or gpu[0] in nodes]
        now = len(named) - len(set(named))
        yield time, saved - now
        saved = now


def nodes_up(result: Result) -> Steps:
    """Return the nodes that are up, at rounds in which something happened."""
    return _of_rounds(result, "nodes")


def is_adaptive(result: Result) -> bool:
    """Return whether a job trained at a statistical efficiency below 1. Rigid jobs have efficiency 1."""
    return any(0 < record.efficiency < MOST_EFFICIENCY for record in result.round_records)


def _of_rounds(result: Result, column: str) -> Steps:
    """Return a column of the table of rounds as a function of time."""
    records = result.round_records
    times, values = (np.fromiter(map(attrgetter(name), records), float, len(records)) for name in ("time", column))
    return Steps(times, values)


def bin_edges(end_time: float, bin_width: float) -> Array:
    """Return the edges of bins from 0 to the end of the run, shape (n + 1,) [s]. The last bin may be narrower.

    >>> bin_edges(70.0, 30.0).tolist()
    [0.0, 30.0, 60.0, 70.0]
    """
    edges = np.arange(0.0, end_time, bin_width)
    return np.append(edges, end_time) if end_time > 0 else np.array([0.0, bin_width])


def usage_by_bin(result: Result, edges: Array) -> tuple[Array, Array]:
    """Return the mean number of GPUs in use in each bin, and their mean statistical efficiency, shape (n,) each.

    The edges have shape (n + 1,) [s]. The bins add up to the GPU time of all jobs. The efficiency at a time is that of
    the last round. Its mean is weighted by GPU time, and nan in a bin without GPUs in use.
    """
    gpus = gpus_in_use(result)
    efficiency = _of_rounds(result, "efficiency")
    inside = [times[(times > edges[0]) & (times < edges[-1])] for times in (gpus.times, efficiency.times)]
    cuts = np.unique(np.concatenate([edges, *inside, np.clip([result.end_time], edges[0], edges[-1])]))
    starts, lengths = cuts[:-1], np.diff(cuts)
    gpu_time = gpus.at(starts) * lengths * (starts < result.end_time)
    bins = np.searchsorted(edges, starts, side="right") - 1
    total = np.bincount(bins, gpu_time, len(edges) - 1)
    weighted = np.bincount(bins, gpu_time * efficiency.at(starts), len(edges) - 1)
    mean = np.divide(weighted, total, out=np.full(len(total), np.nan), where=total > 0)
    return total / np.diff(edges), mean


def _with_times(result: Result) -> list[JobRecord]:
    """Return the jobs that are complete or cut off, whose completion times the metrics of a run count."""
    return [job for job in submitted(result) if job.status in (Status.COMPLETED, Status.CUT_OFF)]


def completion_hours(result: Result) -> tuple[Array, int]:
    """Return the completion times of complete jobs, shape (n,) [h], and the number of complete or cut-off jobs."""
    jobs = _with_times(result)
    return np.array([job.jct for job in jobs if job.jct is not None], float) / HOUR, len(jobs)


def fairness(result: Result) -> Array:
    """Return the finish-time fairness ρ of the jobs with a known value, shape (n,)."""
    known = (job.finish_time_fairness for job in result.job_records)
    return np.array([rho for rho in known if rho is not None], float)


def cumulative(values: ArrayLike, count: int | None = None, most: int | None = None) -> tuple[Array, Array]:
    """Return an empirical distribution: sorted values, and the share of values up to each.

    The known values have shape (n,). There are `count` values, by default n; the unknown ones are larger. Of more than
    `most` points, points at even ranks are kept, among them the first and the last.
    """
    known = np.sort(np.asarray(values, float))
    shares = np.arange(1, len(known) + 1) / max(len(known) if count is None else count, 1)
    if most is None or len(known) <= most:
        return known, shares
    kept = np.unique(np.linspace(0, len(known) - 1, most).round().astype(int))
    return known[kept], shares[kept]


def hours_by_application(result: Result) -> dict[str, Array]:
    """Return the completion times of the jobs by application [h]. A job that was cut off counts with its age."""
    found: dict[str, list[float]] = {}
    for job in _with_times(result):
        time = result.end_time - job.submit_time if job.jct is None else job.jct
        found.setdefault(job.application, []).append(time / HOUR)
    return {name: np.array(found[name]) for name in sorted(found)}


class Spread(NamedTuple):
    """Spread of values of jobs, in the unit of the values."""

    mean: float
    low: float  # 10th percentile
    high: float  # 90th percentile
    jobs: int


def spread_of(values: Array) -> Spread:
    """Return the mean and the percentiles of values, shape (n,)."""
    low, high = np.percentile(values, (10, 90))
    return Spread(float(values.mean()), float(low), float(high), len(values))


NOBODY = "nobody named"  # name of the jobs without a user or queue


class Rank(NamedTuple):
    """The submitted jobs of a user or queue."""

    place: int  # 1 for the longest mean wait
    jobs: int
    wait: float  # mean time from submission to the first GPU, or to the end of a job that never had a GPU [s]
    total_wait: float  # mean time without a GPU [s]
    jct: float | None  # mean JCT of completed jobs [s]; None without any
    gpu_seconds: float  # GPU time of all jobs [GPU s]


def ranks(results: Iterable[Result], by: str) -> dict[str, Rank]:
    """Return the ranks of users or queues (`by`: "user" or "queue") over the jobs of all runs, by name.

    The longest mean wait comes first. Raise InvalidInputError if no job has a user or queue.
    """
    jobs: Mapping[str, list[tuple[JobRecord, Result]]] = defaultdict(list)
    for result in results:
        for job in result.job_records:
            if job.submit_time < result.end_time:
                jobs[getattr(job, by) or NOBODY].append((job, result))
    if not jobs.keys() - {NOBODY}:
        raise InvalidInputError(f"no job of these runs has a {by}; give runs of a workload that names them")
    found = {name: _rank(of_name) for name, of_name in jobs.items()}
    order = sorted(found, key=lambda name: (-found[name].wait, name))
    return {name: found[name]._replace(place=place) for place, name in enumerate(order, start=1)}


def _rank(jobs: Sequence[tuple[JobRecord, Result]]) -> Rank:
    """Return the means of jobs, without a place."""
    waits, jcts = list[float](), list[float]()
    for job, result in jobs:
        start, end = lifetime(result, job)
        waits.append(end - start if job.queueing_delay is None else job.queueing_delay)
        jcts += [] if job.jct is None else [job.jct]
    total_wait = sum(waiting_time(job, result.end_time) for job, result in jobs)
    gpu_seconds = sum(job.gpu_seconds for job, _ in jobs)
    jct = sum(jcts) / len(jcts) if jcts else None
    return Rank(0, len(jobs), sum(waits) / len(jobs), total_wait / len(jobs), jct, gpu_seconds)


def failures(result: Result) -> Iterator[tuple[tuple[str, float], float]]:
    """Yield each loss to a failure: the job with the time at which it got the GPUs, and the time of the loss [s].

    Policies give GPUs only at rounds. Between rounds jobs lose GPUs when they complete, or when a node or the job
    fails.
    """
    down = {(outage.time, outage.node) for outage in result.outage_records}
    rounds = {record.time for record in result.round_records}
    ends = {job.job: job.left_at for job in result.job_records if job.status is not Status.FAILED}
    last: dict[str, AllocationRecord] = {}
    for record in result.allocation_records:
        before = last.get(record.job)
        if before is not None and (before.nodes, before.gpus) == (record.nodes, record.gpus):
            continue
        last[record.job] = record
        if before is not None and before.nodes and not record.nodes:
            is_crash = record.time not in rounds and record.time != ends.get(record.job)
            if is_crash or any((record.time, node) in down for node in before.nodes):
                yield (record.job, before.time), record.time


SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # largest numbers of GPUs of groups of jobs of similar size


def size_name(size: int) -> str:
    """Return the range of GPUs of a size, given as an index of `SIZES`, or their number for larger sizes.

    >>> [size_name(size) for size in (0, 2, 9)]
    ['1', '3–4', '> 256']
    """
    if size == len(SIZES):
        return f"> {SIZES[-1]}"
    first = SIZES[size - 1] + 1 if size else 1
    return f"{first}" if first == SIZES[size] else f"{first}–{SIZES[size]}"


def waits_and_slowdowns(result: Result) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Return waiting times in total [s] and slowdowns of complete jobs, by the size of the jobs as for `size_name`.

    The size is that of the number of GPUs that a job asks for. The slowdown is the JCT over the time with GPUs.
    """
    waits: dict[int, list[float]] = {}
    slowdowns: dict[int, list[float]] = {}
    for job in result.job_records:
        if job.jct is not None and job.run_time and job.num_replicas:
            size = bisect_left(SIZES, job.num_replicas)
            waits.setdefault(size, []).append(max(job.jct - job.run_time, 0.0))
            slowdowns.setdefault(size, []).append(job.jct / job.run_time)
    return waits, slowdowns
