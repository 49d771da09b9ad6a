"""`polluxsim import`: a cluster's log, checked and written as Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


SACCT = (
    "sacct --allusers --parsable2 --starttime 2026-01-01 --endtime 2026-02-01 --format "
    "JobID,JobName,User,Account,Partition,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,ReqTRES,AllocTRES "
    "> sacct.txt"
)
"""What prints a log of Slurm's, with all columns that are read."""


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = "Read a cluster's log, check every row, and write it as Parquet."
    parser.epilog = f"'slurm' reads what this prints on the cluster: {SACCT}"
    parser.add_argument("format", metavar="FORMAT", help="format of the log: philly, slurm, …")
    parser.add_argument("source", type=Path, metavar="SRC", help="file or folder to read")
    parser.add_argument("destination", type=Path, metavar="DST", help=".parquet file to write")
    parser.add_argument("--skip-bad", action="store_true", help="count rows that cannot be read, and leave them out")
    parser.add_argument("--gpus", type=int, metavar="N", help="size of the log's cluster, for the report")
    parser.add_argument("--time-zone", metavar="NAME", help="zone of a log's times that name none, like Asia/Shanghai")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(action=_import)


def _import(options: Namespace) -> None:
    from polluxsim.logs.importing import import_trace
    from polluxsim.logs.report_text import as_text

    report = import_trace(
        options.format,
        options.source,
        options.destination,
        skip_bad=options.skip_bad,
        cluster_gpus=options.gpus,
        time_zone=options.time_zone,
    )
    print(json.dumps(report.as_json(), indent=2) if options.json else as_text(report))
