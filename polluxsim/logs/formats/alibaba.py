"""Alibaba: the task table of the PAI cluster (2020), and the pods of the openb cluster (2023)."""

from __future__ import annotations

from polluxsim.hosts import MIB
from polluxsim.logs.formats.base import Clock, Dropped, JobStatus, LogJob
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat
from polluxsim.logs.formats.states import END_BEFORE_START, NEVER_RAN, NO_END, NO_GPU, oddities_of_times

PAI_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip

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
    status = row.one_of("status", PAI_STATES)
    # A task without a plan for GPUs leaves the cell empty.
    per_instance = row.within("plan_gpu", 0, 1e6) / 100 if row.has("plan_gpu") else 0.0
    if status is None or not row.has("start_time"):
        return row.dropped(NEVER_RAN)
    if per_instance == 0:
        return row.dropped(NO_GPU)
    if not row.has("end_time"):
        return row.dropped(NO_END)
    instances = row.count("inst_num", at_least=1)
    start, end = row.instant("start_time"), row.instant("end_time")
    if end < start:
        return row.dropped(END_BEFORE_START)
    return LogJob(
        place=row.place,
        job=f"{row.name('job_name')}/{row.name('task_name')}",
        submitted=start,
        duration=end - start,
        num_gpus=instances * per_instance,
        status=status,
        extras=(
            instances,
            row.word("gpu_type"),
            instances * row.within("plan_cpu", 0, 1e6) / 100 if row.has("plan_cpu") else None,
            instances * row.within("plan_mem", 0, 1e6) if row.has("plan_mem") else None,
        ),
    )


def _parse_openb(row: LogRow) -> LogJob | Dropped:
    status = row.one_of("pod_phase", OPENB_PHASES)
    num_gpus = row.gpus("num_gpu") * row.within("gpu_milli", 0, 1000) / 1000
    if num_gpus == 0:
        return row.dropped(NO_GPU)
    if status is None or not row.has("scheduled_time"):
        return row.dropped(NEVER_RAN)
    if not row.has("deletion_time"):
        return row.dropped(NO_END)
    submitted, start = row.instant("creation_time"), row.instant("scheduled_time")
    end = row.instant("deletion_time")
    if end < start:
        return row.dropped(END_BEFORE_START)
    return LogJob(
        place=row.place,
        job=row.name("name"),
        submitted=submitted,
        duration=end - start,
        num_gpus=num_gpus,
        status=status,
        extras=(
            row.word("gpu_spec"),
            start - submitted,
            row.within("cpu_milli", 0, 1e9) / 1000 if row.has("cpu_milli") else None,
            row.within("memory_mib", 0, 1e9) * MIB if row.has("memory_mib") else None,
        ),
        oddities=oddities_of_times(submitted, start, end, end - start),
    )


PAI2020 = TableFormat(
    name="pai2020",
    citation="Alibaba PAI 2020 task table, Weng et al., NSDI '22, CC-BY-4.0",
    # The date: README of alibaba/clusterdata, cluster-trace-gpu-v2020, note on time.
    caveat="submission is the task's start, since the task table has no other; a job of several tasks is "
    "several rows; in Asia/Shanghai hour and weekday are true, the date is not",
    layout=Layout(PAI_COLUMNS, has_header=False),
    parse=_parse_pai,
    clock=Clock.ZONED,
    time_zone="Asia/Shanghai",
    extras=("num_instances", "gpu_type", "cpus", "memory"),
    files="pai_task_table*.csv",
)

OPENB2023 = TableFormat(
    name="openb2023",
    citation="Alibaba openb 2023 pods, Weng et al., ATC '23",
    layout=Layout(OPENB_COLUMNS),
    parse=_parse_openb,
    extras=("gpu_type", "queueing_delay", "cpus", "memory"),
    files="openb_pod_list_default.csv",
)
