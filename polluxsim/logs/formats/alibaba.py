"""Alibaba: the tasks and jobs of the PAI cluster (2020), and the pods of the openb cluster (2023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from pathlib import Path
from sys import intern
from typing import NamedTuple

from polluxsim.common.errors import reading
from polluxsim.hardware.hosts import MIB
from polluxsim.logs.formats.base import (
    BadRowError,
    Dropped,
    Entry,
    JobStatus,
    LogClock,
    LogJob,
    RowReason,
    as_gang,
    gpus_together,
    oddities_of_times,
    source_files,
)
from polluxsim.logs.formats.log_rows import MAX_GPUS, LogRow, TableFormat, TableLayout, beside, read_rows

PAI_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip

PAI_JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")

PAI_JOB_TABLE = "pai_job_table.csv"  # table of the jobs, beside the table of their tasks

PERCENT = 100  # the plan columns count hundredths of a core and of a GPU

PAI_STATES = {
    "Terminated": JobStatus.COMPLETED,
    "Failed": JobStatus.FAILED,
    "Running": JobStatus.RUNNING,
    "Waiting": None,
}

OPENB_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
    "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip

OPENB_PHASES = {
    "Succeeded": JobStatus.COMPLETED,
    "Failed": JobStatus.FAILED,
    "Running": JobStatus.RUNNING,
    "Pending": None,
    "Unknown": None,
}


def _parse_pai(row: LogRow) -> LogJob | Dropped:
    """Return the job of a task, submitted at its start, or why the task is no job."""
    status = row.one_of("status", PAI_STATES)
    # A task without a plan for GPUs leaves the cell empty.
    per_instance = (row.optional_within("plan_gpu", 0, 1e6) or 0.0) / PERCENT
    # Before the other cells, which a task that never ran leaves empty.
    if status is None or not row.has("start_time"):
        return row.dropped(RowReason.NEVER_RAN)
    if per_instance == 0:
        return row.dropped(RowReason.NO_GPU)
    if not row.has("end_time"):
        return row.dropped(RowReason.NO_END)
    instances = row.count("inst_num", at_least=1)
    if instances * per_instance > MAX_GPUS:
        raise row.error("inst_num", f"a number of instances that need at most {MAX_GPUS:g} GPUs")
    start = row.instant("start_time")
    end = row.instant("end_time")
    if end < start:
        return row.dropped(RowReason.END_BEFORE_START)
    # The task stays in the name until `_joined` has found the tasks of each job.
    job = f"{row.name('job_name')}/{row.name('task_name')}"
    # The plans are those of one instance.
    cpus = row.optional_within("plan_cpu", 0, 1e6)
    if cpus is not None:
        cpus = instances * cpus / PERCENT
    memory = row.optional_within("plan_mem", 0, 1e6)
    if memory is not None:
        memory = instances * memory
    return LogJob(
        place=row.place,
        job=job,
        submitted=start,
        duration=end - start,
        num_gpus=instances * per_instance,
        status=status,
        extras=(
            instances,
            row.word("gpu_type"),
            cpus,
            memory,
            gpus_together([per_instance]),
            None,  # the queueing delay, which `_of_job` adds
        ),
    )


class _Submission(NamedTuple):
    """The values of a job in the job table."""

    user: str | None
    status: JobStatus | None
    time: float  # submission, on the log's clock [s]


class PaiFormat(TableFormat):
    """The task table, joined with the job table if that stands beside it: the tasks of a job are one gang."""

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each task, and an error for each bad row of the job table."""
        jobs = dict[str, _Submission]()
        table = beside(source, PAI_JOB_TABLE)
        if not table.is_file():
            yield from super().read(source, zone)
            return
        for row in read_rows(table, TableLayout(PAI_JOB_COLUMNS, has_header=False)):
            try:
                if isinstance(row, BadRowError):
                    raise row
                user = row.word("user")
                status = row.one_of("status", PAI_STATES)
                if row.has("start_time"):
                    # A user has many jobs, so one copy of the name saves much memory.
                    interned_user = user and intern(user)
                    jobs[row.name("job_name")] = _Submission(interned_user, status, row.instant("start_time"))
            except BadRowError as error:
                yield error
        yield from _joined(super().read(source, zone), jobs, _several_tasks(source_files(source, self.files)))


def _several_tasks(paths: list[Path]) -> set[str]:
    """Return the names of the jobs of several tasks. Most jobs have one, so the set is small."""
    counts = Counter[str]()
    # The job is the first cell, so the lines need not be split into cells.
    for path in paths:
        with reading(path), path.open(encoding="utf-8-sig", errors="replace") as lines:
            counts.update(line.partition(",")[0].strip() for line in lines)
    return {name for name, count in counts.items() if count > 1}


def _joined(entries: Iterator[Entry], jobs: Mapping[str, _Submission], several: set[str]) -> Iterator[Entry]:
    """Yield tasks as jobs, and other entries as they are; the tasks of a job in `several` become one gang.

    A gang runs from its first start to its last end. The gangs are last, because the tasks of a job may be anywhere in
    the table. All tasks of a gang but the first are dropped.
    """
    gangs = dict[str, LogJob]()
    for entry in entries:
        if not isinstance(entry, LogJob):
            yield entry
            continue
        name = entry.job.rpartition("/")[0]
        if name not in several:
            yield _of_job(entry, name, jobs)
        elif name in gangs:
            first = gangs[name]
            # `as_gang` takes the longest duration of a part, but the tasks may start at different times.
            start = min(first.submitted, entry.submitted)
            end = max(job.submitted + (job.duration or 0.0) for job in (first, entry))
            gang = as_gang(first, entry, PAI2020.extras)
            gangs[name] = gang._replace(submitted=start, duration=end - start)
            yield Dropped(entry.place, "task of a job, one gang with its first")
        else:
            gangs[name] = entry
    for name, gang in gangs.items():
        yield _of_job(gang, name, jobs)


def _of_job(task: LogJob, name: str, jobs: Mapping[str, _Submission]) -> LogJob:
    """Return a job from its task, with the values of its row in the job table if there is one."""
    job = jobs.get(name)
    if job is None:
        return task._replace(job=name, oddities=(*task.oddities, f"a job that is not in {PAI_JOB_TABLE}"))
    extras = list(task.extras)
    extras[-1] = task.submitted - job.time  # the queueing delay
    return task._replace(
        job=name,
        submitted=job.time,
        user=job.user,
        status=job.status or task.status,
        extras=tuple(extras),
        oddities=(*task.oddities, *oddities_of_times(job.time, task.submitted, None, 0.0)),
    )


def _parse_openb(row: LogRow) -> LogJob | Dropped:
    """Return the job of a pod, or why the pod is no job."""
    status = row.one_of("pod_phase", OPENB_PHASES)
    # `gpu_milli` is the share of each GPU, in thousandths.
    num_gpus = row.gpus("num_gpu") * row.within("gpu_milli", 0, 1000) / 1000
    if num_gpus == 0:
        return row.dropped(RowReason.NO_GPU)
    if status is None or not row.has("scheduled_time"):
        return row.dropped(RowReason.NEVER_RAN)
    if not row.has("deletion_time"):
        return row.dropped(RowReason.NO_END)
    submitted = row.instant("creation_time")
    start = row.instant("scheduled_time")
    end = row.instant("deletion_time")
    if end < start:
        return row.dropped(RowReason.END_BEFORE_START)
    job = row.name("name")
    cpus = row.optional_within("cpu_milli", 0, 1e9)
    if cpus is not None:
        cpus /= 1000
    memory = row.optional_within("memory_mib", 0, 1e9)
    if memory is not None:
        memory *= MIB
    return LogJob(
        place=row.place,
        job=job,
        submitted=submitted,
        duration=end - start,
        num_gpus=num_gpus,
        status=status,
        extras=(
            row.word("gpu_spec"),
            start - submitted,
            cpus,
            memory,
            row.word("qos"),
            gpus_together([num_gpus]),
        ),
        oddities=oddities_of_times(submitted, start, end, end - start),
    )


PAI2020 = PaiFormat(
    name="pai2020",
    citation="Alibaba PAI 2020 task table, Weng et al., NSDI '22, CC-BY-4.0",
    # The date and the meaning of the columns: README of alibaba/clusterdata, cluster-trace-gpu-v2020.
    caveat=f"without {PAI_JOB_TABLE} beside the task table, submission is the task's start, and a job of several tasks "
    "is several rows; in Asia/Shanghai hour and weekday are true, the date is not",
    layout=TableLayout(PAI_COLUMNS, has_header=False),
    parse=_parse_pai,
    clock=LogClock.ZONED,
    time_zone="Asia/Shanghai",
    extras=("num_instances", "gpu_type", "cpus", "memory", "gpus_per_task", "queueing_delay"),
    files="pai_task_table*.csv",
)

OPENB2023 = TableFormat(
    name="openb2023",
    citation="Alibaba openb 2023 pods, Weng et al., ATC '23",
    layout=TableLayout(OPENB_COLUMNS),
    parse=_parse_openb,
    extras=("gpu_type", "queueing_delay", "cpus", "memory", "qos", "gpus_per_task"),
    files="openb_pod_list_default.csv",
)
