"""`polluxsim import`: check a cluster's log, and write it as Parquet."""

from __future__ import annotations

import json
from argparse import Action
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


EXAMPLE = "example-sacct.txt"
"""File of the shipped example log."""


FORMATS = {
    "philly-raw": "Philly of Microsoft, the published JSON log",
    "philly": "Philly, the file philly.csv of Pollux's artifact",
    "itp": "ITP 2021 of Microsoft",
    "helios": "Helios of SenseTime",
    "seren": "Acme of Shanghai AI Laboratory, cluster Seren",
    "kalos": "Acme, cluster Kalos",
    "pai2020": "PAI 2020 of Alibaba, tasks (and pai_job_table.csv beside them)",
    "openb2023": "openb 2023 of Alibaba, pods",
    "sia": "job list of Sia's simulator",
    "gavel": "job list of the simulators of Gavel and Shockwave",
    "tiresias": "job list of Tiresias's simulator",
    "slurm": "output of sacct --parsable2 or --json",
    "kueue": "Workloads of Kueue: kubectl get workloads -A -o json",
    "volcano": "PodGroups and Jobs of Volcano, from kubectl with -o json",
    "table": "any CSV or JSON with a row per job, and --columns",
}
"""Formats and their logs. A test compares the names with those of `polluxsim.logs.formats`."""

TABLE_KEYS = (
    "job", "submit", "eligible", "start", "end", "duration", "wait", "gpus", "user", "tenant", "partition", "status",
    "application", "gpu_type", "nodes", "cpus", "memory", "time_limit", "priority", "qos",
)  # fmt: skip
"""Keys of a map of columns. A test compares them with those of `polluxsim.logs.formats.table`."""

SACCT = (
    "  sacct --allusers --parsable2 --starttime 2026-01-01 --endtime 2026-02-01 \\\n"
    "  --format JobID,JobName,User,Account,Partition,QOS,Priority,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,NNodes,ReqTRES,AllocTRES \\\n  > sacct.txt"
)
"""Command of Slurm that prints a log with all columns that are read."""


class _Example(Action):
    """Print the example log."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> NoReturn:
        from polluxsim.shipped import shipped

        print((shipped("traces") / EXAMPLE).read_text(encoding="utf-8"), end="")
        parser.exit()


def _keys_of_tables() -> str:
    """Return the help on the columns of a table."""
    return (
        "Keys of --columns: "
        + ", ".join(TABLE_KEYS)
        + ".\nsubmit and gpus are needed. COLUMN*60 converts minutes, COLUMN:1002 takes the number of entry 1002 "
        "of a list like 1=8,1002=2. A column with the name of a key needs no pair."
    )


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Check every row of a cluster's log, and write the log as a Parquet file."
    parser.epilog = (
        "Formats:\n"
        + "\n".join(f"  {name:<15}{what}" for name, what in FORMATS.items())
        + f"\n\nThis command prints a log for the format slurm:\n{SACCT}\n\n"
        + _keys_of_tables()
        + "\n\nExample: polluxsim import slurm sacct.txt log.parquet --gpus 64"
    )
    parser.add_argument("--example", action=_Example, nargs=0,
                        help="print an example log for the format slurm, without other arguments")  # fmt: skip
    parser.add_argument("format", metavar="FORMAT", help="format of the log, from the list below")
    parser.add_argument("source", type=Path, metavar="SRC", help="file or folder to read")
    parser.add_argument("destination", type=Path, metavar="DST", help=".parquet file to write")
    parser.add_argument("--skip-bad", action="store_true", help="leave out invalid rows, and count them")
    parser.add_argument("--gpus", type=int, metavar="N", help="number of GPUs of the cluster, for the report")
    parser.add_argument("--time-zone", metavar="NAME",
                        help="default time zone, like Asia/Shanghai")  # fmt: skip
    parser.add_argument("--columns", action="append", default=[], metavar="KEY=COLUMN,…",
                        help="columns of a table, for the format table")  # fmt: skip
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
        columns=",".join(options.columns),
    )
    print(json.dumps(report.as_json(), indent=2) if options.json else as_text(report))
