"""The stages in the life of a job, and the jobs that exchanged GPUs with it, from the allocations of a run.

An allocation has the number of GPUs on each node, and no record states which job got a GPU from which. This module
compares what jobs gained and lost on each node at one time. If several jobs lost GPUs on a node, each of them can have
given them, so the numbers are upper limits. Only numbered GPUs, which jobs share, have exact answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from polluxsim.look.batch_choosers import BatchChoosers
from polluxsim.look.occupancy import gpus_by_node
from polluxsim.look.why.events import failed_nodes, outages_by_node
from polluxsim.records.results import AllocationRecord, JobRecord
from polluxsim.records.storage import Run
from polluxsim.statistics.series import ALONE, Share, active_jobs, gpus_in_use, instants, lifetime

GpusByNode = dict[int, int]


class Stage(NamedTuple):
    """A period in the life of a job with equal GPUs by node, or without any."""

    start: float  # [s]
    end: float  # [s]
    before: Mapping[int, int]  # GPUs by node before the stage
    gpus: Mapping[int, int]  # GPUs by node
    batch_sizes: tuple[int, ...]  # total batch sizes in order [examples]
    given_by: Mapping[str, int]  # GPUs that the job got at the start from other jobs, by job
    taken_by: Mapping[str, int]  # GPUs that other jobs got from it at the start, by job
    has_run: bool = False  # whether the job held GPUs before
    failed: Mapping[int, str] = MappingProxyType({})  # the kind of outage by node, if the job lost all GPUs to outages
    chosen_by: tuple[str, ...] = ("agent",)  # the sides that chose the batch sizes, in order

    @property
    def event(self) -> str:
        """Return the event at the start of the stage, in a word or two."""
        num_before = sum(self.before.values())
        num_now = sum(self.gpus.values())
        if num_now == 0:
            return self._event_without_gpus(num_before)
        if num_before == 0 and not self.has_run:
            return "started"
        if num_before == 0:
            # The first allocation of a job from before the run is at 0 s. It is no event of the run.
            return "ran before" if self.start == 0 else "resumed"
        if num_now == num_before:
            return "moved"
        return "grew" if num_now > num_before else "shrank"

    def _event_without_gpus(self, num_before: int) -> str:
        """Return the event at the start of a wait, given the number of GPUs before it."""
        if self.failed:
            return "failed"
        return "paused" if num_before else "waits"


class ClusterState(NamedTuple):
    """The jobs and the GPUs in use at one time."""

    gpus_of: Mapping[str, int]  # GPUs of each job that holds any; a shared GPU counts for each of its jobs
    active_jobs: int  # jobs submitted and not complete
    gpus_in_use: int  # a shared GPU counts once


def stages(run: Run, job: JobRecord) -> list[Stage]:
    """Return the stages of a job in order, from its submission to its end or the end of the run."""
    start, end = lifetime(run.result, job)
    outages = outages_by_node(run.result)
    job_stages: list[Stage] = []
    # Each stage reaches to the end of the job, until the next one cuts it off.
    if start < end:
        job_stages.append(Stage(start, end, {}, {}, (), {}, {}))
    has_run = job.start_time is not None and job.start_time < 0
    placed: dict[str, GpusByNode] = {}
    shared: dict[str, Share] = {}
    for time, changes, shares in instants(run.result.allocation_records, run.result.sharing_records):
        # If an allocation changes several times at one time, only the last change has an effect.
        last_changes = {name: records[-1] for name, records in changes.items()}
        if job.job in last_changes and time < end:
            before = placed.get(job.job, {})
            gpus = gpus_by_node(last_changes[job.job])
            # Only numbers tell which jobs exchanged GPUs that more than one job holds.
            if job.job in shares or job.job in shared:
                given_by, taken_by = _exchanged_by_number(job.job, shared, shares)
            else:
                given_by, taken_by = _exchanged_by_node(job.job, placed, last_changes)
            batch_sizes: tuple[int, ...] = ()
            failed: dict[int, str] = {}
            if gpus:
                batch_sizes = (last_changes[job.job].batch_size,)
            else:
                failed = failed_nodes(before, time, outages)
            _add(job_stages, Stage(time, end, before, gpus, batch_sizes, given_by, taken_by, has_run, failed))
            if gpus:
                has_run = True
        # After the stage, which needs the GPUs of all jobs before the changes.
        for name, record in last_changes.items():
            placed[name] = gpus_by_node(record)
        shared |= shares
    choosers = BatchChoosers(run.result)
    lasting_stages = []
    for stage in job_stages:
        # The wait of a job that gets GPUs when it is submitted has no duration.
        if stage.end > stage.start:
            chosen_by = choosers.within(job.job, stage.start, stage.end)
            lasting_stages.append(stage._replace(chosen_by=tuple(chosen_by)))
    return lasting_stages


def _add(job_stages: list[Stage], stage: Stage) -> None:
    """Append a stage and end the one before, or add its batch size to the one before if the GPUs are equal."""
    if not job_stages:
        job_stages.append(stage)
        return
    last = job_stages[-1]
    if last.gpus == stage.gpus:
        job_stages[-1] = last._replace(batch_sizes=last.batch_sizes + stage.batch_sizes)
    else:
        job_stages[-1] = last._replace(end=stage.start)
        job_stages.append(stage)


def cluster_at(run: Run, time: float) -> ClusterState:
    """Return the jobs and the GPUs in use at a time [s], after all events at this time."""
    gpus_of = dict[str, int]()
    for record in run.result.allocation_records:
        if record.time > time:
            break
        gpus_of[record.job] = sum(record.gpus)
    holders = {job: gpus for job, gpus in gpus_of.items() if gpus}
    num_active = int(active_jobs(run.result).at(time))
    num_in_use = int(gpus_in_use(run.result).at(time))
    return ClusterState(holders, num_active, num_in_use)


def _exchanged_by_node(
    job: str, placed: Mapping[str, GpusByNode], changes: Mapping[str, AllocationRecord]
) -> tuple[Counter[str], Counter[str]]:
    """Return how many GPUs each other job can have given to a job, and taken from it, in the changes of one time.

    Allocations record counts of GPUs by node. So the function matches what one job gained on a node with what other
    jobs lost there; if several jobs lost GPUs, each of them counts.
    """
    before = placed.get(job, {})
    now = gpus_by_node(changes[job])
    gained = _increase(before, now)
    lost = _increase(now, before)
    given_by = Counter[str]()
    taken_by = Counter[str]()
    for name, record in changes.items():
        if name == job:
            continue
        other_before = placed.get(name, {})
        other_now = gpus_by_node(record)
        given_by[name] = _overlap(gained, _increase(other_now, other_before))
        taken_by[name] = _overlap(lost, _increase(other_before, other_now))
    # The plus leaves out jobs that exchanged no GPU.
    return +given_by, +taken_by


def _exchanged_by_number(
    job: str, before: Mapping[str, Share], now: Mapping[str, Share]
) -> tuple[Counter[str], Counter[str]]:
    """Return how many numbered GPUs each other job gave to a job, and took from it."""
    gpus_before = set(before.get(job, ALONE).gpus)
    gpus_now = gpus_before
    if job in now:
        gpus_now = set(now[job].gpus)
    given_by = Counter[str]()
    taken_by = Counter[str]()
    for name in now.keys() - {job}:
        other_before = set(before.get(name, ALONE).gpus)
        other_now = set(now.get(name, ALONE).gpus)
        given_by[name] = len((gpus_now - gpus_before) & (other_before - other_now))
        taken_by[name] = len((gpus_before - gpus_now) & (other_now - other_before))
    return +given_by, +taken_by


def _increase(before: Mapping[int, int], now: Mapping[int, int]) -> GpusByNode:
    """Return the additional GPUs, by node on which there are any."""
    additional: GpusByNode = {}
    for node, gpus in now.items():
        num_before = before.get(node, 0)
        if gpus > num_before:
            additional[node] = gpus - num_before
    return additional


def _overlap(gained: GpusByNode, lost: GpusByNode) -> int:
    """Return how many of the gained GPUs can be among the lost ones, by nodes."""
    return sum(min(gpus, lost.get(node, 0)) for node, gpus in gained.items())
