"""SenseTime Helios: `cluster_log.csv` of one cluster, naive local times, GPU and CPU jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.logs.formats.base import Clock, Dropped, LogJob
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat, counts_beside
from polluxsim.logs.formats.states import ENDED, NEVER_RAN, NO_GPU, oddities_of_times

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state",
    "submit_time", "start_time", "end_time", "duration", "queue",
)  # fmt: skip


def _parse(row: LogRow) -> LogJob | Dropped:
    num_gpus = row.gpus("gpu_num")
    if (state := row.name("state")) not in ENDED:
        return row.dropped(f"state is none of {', '.join(ENDED)}")
    if num_gpus == 0:
        return row.dropped(NO_GPU)
    if not row.has("start_time"):
        return row.dropped(NEVER_RAN)
    submitted, start = row.time("submit_time"), row.time("start_time")
    end, duration = row.time("end_time"), row.seconds("duration")
    return LogJob(
        place=row.place,
        job=row.name("job_id"),
        submitted=submitted,
        duration=duration,
        num_gpus=num_gpus,
        user=row.word("user"),
        tenant=row.word("vc"),
        status=ENDED[state],
        extras=(row.count("node_num"), start - submitted),
        oddities=oddities_of_times(submitted, start, end, duration),
    )


def _cluster_gpus(source: Path) -> int | None:
    """Return the most GPUs that the cluster had on any day, from the table beside the log [GPUs]."""
    return max(counts_beside(source, "cluster_gpu_number.csv", ("date", "total")), default=0) or None


HELIOS = TableFormat(
    name="helios",
    citation="SenseTime Helios, Hu et al., SC '21, CC-BY-4.0",
    layout=Layout(COLUMNS),
    parse=_parse,
    clock=Clock.LOCAL,
    # The log names no zone. The clusters' owner is in China, where one zone without summer time holds.
    time_zone="Asia/Shanghai",
    extras=("num_nodes", "queueing_delay"),
    files="cluster_log.csv",
    cluster_gpus=_cluster_gpus,
)
