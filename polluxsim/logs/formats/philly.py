"""Microsoft Philly as in the artifact of Pollux (OSDI '21): `philly.csv`, a row for each job that passed."""

from __future__ import annotations

import math

from polluxsim.logs.formats.base import Clock, JobStatus, LogJob
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat

PHILLY_GPUS = 2490
"""GPUs of the 552 machines in Philly's machine list (Jeon et al., ATC '19) [GPUs]."""


def _parse(row: LogRow) -> LogJob:
    duration, num_gpus = row.seconds("duration"), row.within("num_gpus", 1, 1e6)
    same = math.isclose(row.within("gpu_time", 0, 1e17), duration * num_gpus, abs_tol=1.0)
    return LogJob(
        place=row.place,
        # The file has no job names; its line is the one thing that tells two jobs apart.
        job=f"philly-{row.line}",
        submitted=row.time("timestamp"),
        duration=duration,
        num_gpus=num_gpus,
        tenant=row.word("cluster"),
        status=JobStatus.COMPLETED,
        oddities=() if same else ("gpu_time is not duration · num_gpus",),
    )


PHILLY = TableFormat(
    name="philly",
    citation="Microsoft Philly, Jeon et al., ATC '19, CC-BY-4.0; philly.csv of Pollux's artifact, OSDI '21",
    caveat="only jobs that passed: the load of failed and killed jobs is missing",
    layout=Layout(("timestamp", "duration", "num_gpus", "gpu_time", "cluster")),
    parse=_parse,
    clock=Clock.LOCAL,
    time_zone="UTC",
    files="philly.csv",
    cluster_gpus=lambda source: PHILLY_GPUS,
)
