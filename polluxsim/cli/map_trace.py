"""`polluxsim map`: jobs with profiles in place of a trace's jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.cli.finished_run import import_from_here
from polluxsim.cli.workload_file import add_drawing, check_name, profiles_of, write

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from polluxsim.workloads.mapping import MappedTrace


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Replace the jobs of a log with applications that have profiles, and write a workload file. The command "
        "prints which jobs it left out."
    )
    parser.epilog = "Example: polluxsim map log.parquet workload.csv --start 24 --hours 8"
    parser.add_argument("trace", type=Path, metavar="TRACE", help="log, as 'polluxsim import' writes it (.parquet)")
    parser.add_argument("output", type=Path, metavar="OUT", help="workload file to write, .csv")
    parser.add_argument(
        "--rule", default="gpu-time-class", metavar="NAME",
        help="rule that chooses the application: gpu-time-class, the rule of the paper, or your class as module.Class "
        "(default: %(default)s)",
    )  # fmt: skip
    add_drawing(parser)
    parser.add_argument("--start", type=float, default=0, metavar="H",
                        help="start of the window after the start of the log [h] (default: 0)")  # fmt: skip
    parser.add_argument("--hours", type=float, metavar="H", help="length of the window [h] (default: to the end)")
    parser.add_argument("--min-duration", type=float, default=60, metavar="S",
                        help="shortest duration of the jobs to use [s] (default: %(default)s)")  # fmt: skip
    parser.add_argument("--max-gpu-hours", type=float, default=1000, metavar="H",
                        help="upper limit of the GPU time of the jobs to use [h] (default: %(default)s)")  # fmt: skip
    parser.add_argument("--status", action="append", metavar="STATUS",
                        help=f"final status of the jobs to use, or 'any'; {option_help.REPEATED} (default: completed)",
                        )  # fmt: skip
    parser.set_defaults(action=_map)


def _map(options: Namespace) -> None:
    check_name(options.output)
    import_from_here()  # a rule of the user's own
    workload, report = _source(options).map(profiles_of(options))
    write(workload, options.output)
    print(report.as_text())


def _source(options: Namespace) -> MappedTrace:
    from polluxsim.workloads.mapping import MappedTrace
    from polluxsim.workloads.selection import Selection

    statuses = None if "any" in (options.status or ()) else tuple(options.status or ("completed",))
    select = Selection(options.start, options.hours, options.min_duration, options.max_gpu_hours, statuses)
    return MappedTrace(str(options.trace), options.rule, not options.realistic, options.seed, select)
