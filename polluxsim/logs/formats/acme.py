"""Shanghai AI Laboratory Acme: `trace_seren.csv` and `trace_kalos.csv`, times with their offset from UTC."""

from __future__ import annotations

from dataclasses import replace

from polluxsim.logs.formats.base import Clock, Dropped, LogJob
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat
from polluxsim.logs.formats.states import END_BEFORE_START, ENDED, NEVER_RAN, NO_END, NO_GPU, oddities_of_times

CITATION = "Shanghai AI Laboratory Acme, Hu et al., NSDI '24, CC-BY-4.0"

COLUMNS = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state",
    "submit_time", "start_time", "end_time", "duration", "queue", "gpu_time",
)  # fmt: skip


def _parse_seren(row: LogRow) -> LogJob | Dropped:
    return _left_out(row) or _job(row, row.seconds("duration"))


def _parse_kalos(row: LogRow) -> LogJob | Dropped:
    if left_out := _left_out(row):
        return left_out
    # Kalos counts its duration column from submission; the time on GPUs is from start to end.
    row.seconds("duration")
    duration = row.time("end_time") - row.time("start_time")
    return row.dropped(END_BEFORE_START) if duration < 0 else _job(row, duration)


def _left_out(row: LogRow) -> Dropped | None:
    num_gpus = row.gpus("gpu_num")
    if row.name("state") not in ENDED:
        return row.dropped(f"state is none of {', '.join(ENDED)}")
    if num_gpus == 0:
        return row.dropped(NO_GPU)
    if not row.has("start_time"):
        return row.dropped(NEVER_RAN)
    return None if row.has("end_time") else row.dropped(NO_END)


def _job(row: LogRow, duration: float) -> LogJob:
    submitted, start = row.time("submit_time"), row.time("start_time")
    return LogJob(
        place=row.place,
        job=row.name("job_id"),
        submitted=submitted,
        duration=duration,
        num_gpus=row.gpus("gpu_num"),
        user=row.word("user"),
        status=ENDED[row.name("state")],
        extras=(row.word("type"), row.count("node_num"), start - submitted),
        oddities=oddities_of_times(submitted, start, row.time("end_time"), duration),
    )


SEREN = TableFormat(
    name="seren",
    citation=f"{CITATION}; cluster Seren",
    layout=Layout(COLUMNS),
    parse=_parse_seren,
    clock=Clock.ZONED,
    time_zone="Asia/Shanghai",
    extras=("application", "num_nodes", "queueing_delay"),
    files="trace_seren.csv",
)

KALOS = replace(SEREN, name="kalos", citation=f"{CITATION}; cluster Kalos", parse=_parse_kalos, files="trace_kalos.csv")
