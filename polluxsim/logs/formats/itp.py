"""Microsoft ITP (2021): a folder of `clusterNN.csv`, one per cluster, times from the start of collection."""

from __future__ import annotations

from polluxsim.logs.formats.base import Dropped, LogJob
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat


def _parse(row: LogRow) -> LogJob | Dropped:
    if (num_gpus := row.gpus("num_gpu")) == 0:
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
    layout=Layout(("job_id", "submission_time", "duration", "num_gpu")),
    parse=_parse,
    files="cluster*.csv",
)
