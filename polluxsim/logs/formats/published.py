"""Published CSV logs with one row for each job: Acme, Helios and ITP."""

from __future__ import annotations

from dataclasses import replace

from polluxsim.logs.formats.base import ENDED, Dropped, LogClock, LogJob, RowReason, oddities_of_times
from polluxsim.logs.formats.log_rows import LogRow, TableFormat, TableLayout, counts_beside

ACME_CITATION = "Shanghai AI Laboratory Acme, Hu et al., NSDI '24, CC-BY-4.0"

ACME_COLUMNS = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state",
    "submit_time", "start_time", "end_time", "duration", "queue", "gpu_time",
)  # fmt: skip


def _why_dropped(row: LogRow, *, needs_end: bool = True) -> str:
    """Return the reason to drop a row whose job did not end, had no GPUs or never ran; empty for other rows."""
    # Before the state, so that an invalid number is an error in every row.
    num_gpus = row.gpus("gpu_num")
    if row.name("state") not in ENDED:
        return f"state is not one of {', '.join(ENDED)}"
    if num_gpus == 0:
        return RowReason.NO_GPU
    if not row.has("start_time"):
        return RowReason.NEVER_RAN
    if needs_end and not row.has("end_time"):
        return RowReason.NO_END
    return ""


def _ended_job(row: LogRow, duration: float, extras: tuple[object, ...] = (), tenant: str | None = None) -> LogJob:
    """Return the job of a row with a duration [s]; the extras `num_nodes` and `queueing_delay` follow `extras`."""
    submitted = row.time("submit_time")
    start = row.time("start_time")
    end = None
    if row.has("end_time"):
        end = row.time("end_time")
    return LogJob(
        place=row.place,
        job=row.name("job_id"),
        submitted=submitted,
        duration=duration,
        num_gpus=row.gpus("gpu_num"),
        user=row.word("user"),
        tenant=tenant,
        status=ENDED[row.name("state")],
        extras=(*extras, row.count("node_num"), start - submitted),
        oddities=oddities_of_times(submitted, start, end, duration),
    )


def _parse_seren(row: LogRow) -> LogJob | Dropped:
    reason = _why_dropped(row)
    if reason:
        return row.dropped(reason)
    return _ended_job(row, row.seconds("duration"), (row.word("type"),))


def _parse_kalos(row: LogRow) -> LogJob | Dropped:
    """Return the job of a row of Kalos, whose durations include the wait, or why the row is no job."""
    reason = _why_dropped(row)
    if reason:
        return row.dropped(reason)
    row.seconds("duration")  # only checked: it counts from the submission, and the time on GPUs from the start
    duration = row.time("end_time") - row.time("start_time")
    if duration < 0:
        return row.dropped(RowReason.END_BEFORE_START)
    return _ended_job(row, duration, (row.word("type"),))


SEREN = TableFormat(
    name="seren",
    citation=f"{ACME_CITATION}; cluster Seren",
    layout=TableLayout(ACME_COLUMNS),
    parse=_parse_seren,
    clock=LogClock.ZONED,
    time_zone="Asia/Shanghai",
    extras=("application", "num_nodes", "queueing_delay"),
    files="trace_seren.csv",
)

KALOS = replace(
    SEREN, name="kalos", citation=f"{ACME_CITATION}; cluster Kalos", parse=_parse_kalos, files="trace_kalos.csv"
)


HELIOS_COLUMNS = (
    "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state",
    "submit_time", "start_time", "end_time", "duration", "queue",
)  # fmt: skip


def _parse_helios(row: LogRow) -> LogJob | Dropped:
    # The duration of such a job is stated, so its end is not needed.
    reason = _why_dropped(row, needs_end=False)
    if reason:
        return row.dropped(reason)
    return _ended_job(row, row.seconds("duration"), tenant=row.word("vc"))


HELIOS = TableFormat(
    name="helios",
    citation="SenseTime Helios, Hu et al., SC '21, CC-BY-4.0",
    layout=TableLayout(HELIOS_COLUMNS),
    parse=_parse_helios,
    clock=LogClock.LOCAL,
    # The log names no zone. The clusters' owner is in China, where one zone without summer time holds.
    time_zone="Asia/Shanghai",
    extras=("num_nodes", "queueing_delay"),
    files="cluster_log.csv",
    # The largest number of GPUs on any day.
    cluster_gpus=lambda log: max(counts_beside(log, "cluster_gpu_number.csv", ("date", "total")), default=0) or None,
)


def _parse_itp(row: LogRow) -> LogJob | Dropped:
    """Return the job of a row of one cluster, whose name is that of the file."""
    num_gpus = row.gpus("num_gpu")
    if num_gpus == 0:
        return row.dropped("no GPU")
    return LogJob(
        place=row.place,
        job=row.name("job_id"),
        submitted=row.instant("submission_time"),
        duration=row.seconds("duration"),
        num_gpus=num_gpus,
        tenant=row.path.stem,
    )


ITP = TableFormat(
    name="itp",
    citation="Microsoft ITP 2021, MIT licence; Gu et al., ElasticFlow, ASPLOS '23",
    caveat="the clusters of a folder become one trace; the tenant is the cluster's file",
    layout=TableLayout(("job_id", "submission_time", "duration", "num_gpu")),
    parse=_parse_itp,
    files="cluster*.csv",
)
