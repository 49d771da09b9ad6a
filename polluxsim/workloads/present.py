"""The jobs that run or wait on a real cluster, as jobs of a run that begins at present, and the jobs before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.durations import DAY
from polluxsim.common.errors import InvalidInputError, bad_line
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import ANY, types_in
from polluxsim.hardware.placements import JobId
from polluxsim.logs.formats.base import JobStatus
from polluxsim.logs.site.queue import Queue, QueuedJob
from polluxsim.logs.trace_table import origin_of, read_info, read_trace
from polluxsim.workloads.history import Seen
from polluxsim.workloads.past import Past
from polluxsim.workloads.trace import TraceReplay
from polluxsim.workloads.workload import InvalidJobError, Job

LONG = 30 * DAY  # further run time of a job without a limit, before one is drawn [s]
JUST_BEFORE = 1e-3  # a job that was submitted at the time of the state, was submitted this long before [s]
MOST_HISTORY = 20_000  # jobs of a history that are used, the last ones


class Site(NamedTuple):
    """A real cluster: its nodes by number, and the names that its queue uses for them."""

    cluster: Cluster
    refusal: Callable[[Job], str]  # returns why a job can never run on the cluster; "" if it can
    node_numbers: Mapping[str, int] = {}  # by name; empty if the nodes have no names

    @property
    def partitions(self) -> Mapping[str, tuple[int, ...]]:
        """Return the numbers of the nodes of each partition; empty if the cluster has no partitions."""
        return self.cluster.partitions

    def queue_of(self, job: QueuedJob) -> str | None:
        """Return the queue of a job: its first partition that has nodes, or its tenant without partitions."""
        if not self.partitions:
            return job.tenant
        return next((name for name in job.partitions if name in self.partitions), None)


@dataclass
class PresentJobs:
    """The jobs of a queue as jobs of a run that begins at the time of the queue."""

    jobs: list[Job] = field(default_factory=list)  # in order of submission
    started: dict[JobId, float] = field(default_factory=dict)  # start of each running job [s], at most 0
    # Reasons why waiting jobs are not in the run, by name. They have no forecast, and do not delay other jobs.
    kept_out: dict[JobId, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)  # running jobs that are not in the run, by reason


def present_jobs(queue: Queue, site: Site) -> PresentJobs:
    """Return the jobs of a queue. Time 0 is the time of the queue.

    A waiting job that cannot start for now is kept out, with the jobs that wait for it. A running job is left out if it
    is on a node that takes no other jobs, or does not fit on the nodes. Raise InvalidInputError if a job has an invalid
    value.
    """
    present = PresentJobs()
    for queued in queue.jobs:
        if queued.is_running:
            _add_running(present, queue, queued, site)
        else:
            _add_waiting(present, queue, queued, site)
    _keep_out_followers(present)
    present.jobs.sort(key=lambda job: job.submit_time)
    return present


def _add_running(present: PresentJobs, queue: Queue, queued: QueuedJob, site: Site) -> None:
    """Add a running job, or count it as left out."""
    numbers = site.node_numbers
    if numbers and any(node not in numbers for node, _ in queued.placement):
        present.left_out["run on nodes that take no other jobs"] += 1
        return
    if queued.started is None:
        raise ValueError("the job does not run")
    started = min(queued.started - queue.time, 0.0)
    placement: tuple[tuple[int, int], ...] = ()
    if numbers:
        placement = tuple(sorted((numbers[node], gpus) for node, gpus in queued.placement))
    if sum(gpus for _, gpus in placement) != ceil(queued.num_gpus):
        placement = ()  # the queue states only a part of it
    past = Past.running(started, ceil(queued.num_gpus), placement=placement)
    job = _job(queue, queued, site, min(queued.submitted - queue.time, started, -JUST_BEFORE), past)
    if site.refusal(job):
        present.left_out["do not fit on the nodes that are given"] += 1
        return
    present.jobs.append(job)
    present.started[queued.name] = started


def _add_waiting(present: PresentJobs, queue: Queue, queued: QueuedJob, site: Site) -> None:
    """Add a waiting job, or keep it out."""
    if queued.kept_out:
        present.kept_out[queued.name] = queued.kept_out
        return
    if site.partitions and queued.partitions and site.queue_of(queued) is None:
        reason = f"wait for partition {queued.partitions[0]}, of which no node takes jobs"
        present.kept_out[queued.name] = reason
        return
    if queued.begin is not None and queued.begin > queue.time:
        job = _job(queue, queued, site, queued.begin - queue.time, None)
    else:
        submit_time = min(queued.submitted - queue.time, -JUST_BEFORE)
        job = _job(queue, queued, site, submit_time, Past.pending())
    if site.refusal(job):
        present.kept_out[queued.name] = "do not fit on the nodes that take jobs"
        return
    present.jobs.append(job)


def _job(queue: Queue, queued: QueuedJob, site: Site, submit_time: float, past: Past | None) -> Job:
    """Return a job of the queue.

    It lasts until its time limit or, if the limit is unknown or over, for `LONG` from now on. A draw of its run time
    replaces this duration.
    """
    ran = 0.0
    after = queued.after
    if past is not None:
        ran = past.progress
    if past is not None and past.is_running:
        after = ()  # it has started, so it waits for no job
    limit = queued.time_limit
    duration = ran + LONG
    if limit is not None and limit > ran:
        duration = limit
    types = tuple(gpu.name for gpu in types_in(queued.gpu_type))
    known_types = tuple(name for name in types if name in site.cluster.types and name != ANY.name)
    num_gpus = ceil(queued.num_gpus)
    num_nodes = None
    gpus_per_task = None
    if num_gpus == queued.num_gpus:  # a job that shares a GPU gets a whole one, to which no request fits
        gpus_per_task = queued.gpus_per_task
        if gpus_per_task is None:
            num_nodes = queued.num_nodes
    try:
        return Job.rigid(
            queued.name,
            submit_time,
            num_gpus,
            duration,
            user=queued.user,
            queue=site.queue_of(queued),
            time_limit=limit,
            after=after,
            gpu_types=known_types,
            priority=queued.priority or 0.0,
            job_name=queued.job_name,
            qos=queued.qos,
            num_nodes=num_nodes,
            gpus_per_task=gpus_per_task,
            past=past,
        )
    except InvalidJobError as error:
        raise bad_line(queued.place.file, queued.place.line, str(error)) from None


def _keep_out_followers(present: PresentJobs) -> None:
    """Keep jobs out that wait for jobs which are not in the run."""
    # Each job that is kept out may have followers of its own.
    has_changed = True
    while has_changed:
        names = {job.job_id for job in present.jobs}
        followers = [job for job in present.jobs if not names.issuperset(job.after)]
        has_changed = bool(followers)
        for job in followers:
            present.kept_out[job.job_id] = "wait for jobs that have no forecast"
        present.jobs = [job for job in present.jobs if names.issuperset(job.after)]


class History(NamedTuple):
    """The jobs of a log, on the clock of the log, from its first submission on."""

    source: str  # name of the file
    seen: Sequence[Seen]
    end: float  # last submission, or the time of the queue if it is earlier [s on the clock of the log]
    notes: Sequence[str]  # sentences on jobs that are left out
    load: float  # GPU time of the jobs relative to that of the nodes of the site [1]


def read_history(path: Path, queue: Queue, present: PresentJobs, site: Site) -> History:
    """Return the jobs of a log from which run times and arrivals are drawn.

    The jobs of the queue are in it, with the time that they have run. They count as arrivals if they were submitted
    within the log. Jobs that were submitted after the queue, and jobs that the cluster cannot run, are left out.

    Raise InvalidInputError if the file is not a trace, or no job is left.
    """
    # As `Site.queue_of` reads the jobs of the queue.
    queue_field = "partition" if site.partitions else "tenant"
    workload = TraceReplay(str(path), queue=queue_field).load({})
    rows = read_trace(path)[1]
    now = _now_in(path, queue)
    of_queue = {job.name for job in queue.jobs}
    notes = [f"{path.name}: {note}" for note in workload.notes]
    left_out = Counter[str]()
    history = list[Seen]()
    for job in workload.jobs:
        row = rows[job.line - 1]
        if job.submit_time > now:
            left_out["submitted after the time of the queue"] += 1
        elif row.job in of_queue:
            continue  # the queue has it
        elif site.partitions and job.queue not in site.partitions:
            left_out["of partitions without nodes"] += 1
        else:
            types = tuple(name for name in job.gpu_types if name in site.cluster.types)
            plain = replace(job, after=(), cancel_time=None, gpu_types=types)
            if site.refusal(plain):
                left_out["that do not fit on the nodes"] += 1
                continue
            history.append(Seen(plain, job.duration or 0.0, row.status != JobStatus.RUNNING))
    if len(history) > MOST_HISTORY:
        left_out[f"before the last {MOST_HISTORY:,}"] += len(history) - MOST_HISTORY
        history = history[-MOST_HISTORY:]
    if not history:
        raise InvalidInputError(f"{path}: no job of the log can be used for the forecast; give the log of this cluster")
    notes += [f"{path.name}: {count} jobs {reason} left out" for reason, count in left_out.items()]
    first = history[0].job.submit_time
    end = min(now, workload.jobs[-1].submit_time)
    moved = []
    for seen_job in history:
        job = replace(seen_job.job, submit_time=seen_job.job.submit_time - first)
        moved.append(seen_job._replace(job=job))
    moved += _of_queue(present, now - first, end - first)
    work = sum(seen_job.ran * seen_job.job.num_replicas for seen_job in history)
    # The load of a few hours would say little about that of days.
    capacity = max(end - first, DAY) * site.cluster.num_gpus
    return History(path.name, moved, end - first, notes, work / capacity)


def _now_in(path: Path, queue: Queue) -> float:
    """Return the time of the queue on the clock of a log [s]; ∞ if the times of the log are relative."""
    info = read_info(path)
    if not info.time_zone:
        return inf
    return queue.time - origin_of(path, info).timestamp()


def _of_queue(present: PresentJobs, now: float, end: float) -> Iterator[Seen]:
    """Yield the jobs of the queue, those within the log as arrivals.

    `now` and `end`, the times of the queue and of the end of the log, are on the clock of the log [s].
    """
    for job in present.jobs:
        ran = -present.started.get(job.job_id, 0.0)
        submitted = now + job.submit_time
        if 0 <= submitted <= end:
            yield Seen(replace(job, past=None, submit_time=submitted, after=()), ran, False)
        else:
            yield Seen(job, ran, False)
