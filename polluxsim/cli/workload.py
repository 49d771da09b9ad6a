"""Command that writes the jobs of a workload to a file: `workload`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.options import add_output
from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from polluxsim.workloads.workload import Workload

DECIDING = ("workload", "profiles", "seed")  # parts of a configuration on which the jobs depend

# Endings of the files
WORKLOAD = ".csv"
LOG = ".parquet"


def add_workload(parser: ArgumentParser) -> None:
    parser.description = (
        "Write the jobs of a workload to a file. FILE.csv is a workload file, which 'polluxsim run workload.path=FILE' "
        "reads. FILE.parquet is a log of jobs with GPUs and durations, as 'polluxsim log import' writes it. "
        "'polluxsim run --help workload=NAME' prints the settings of a workload."
    )
    parser.epilog = (
        "Example: polluxsim workload workload=philly-like workload.num_jobs=320 workload.hours=16 seed=1 -o jobs.csv"
    )
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE",
                        help="choice and settings of the workload, the folder of profiles (profiles.path=DIR), and "
                        "seed=N (default: the workload of 'polluxsim run')")  # fmt: skip
    add_output(parser, "file to write, .csv or .parquet", required=True)
    parser.set_defaults(action=_workload)


def _workload(options: Namespace) -> None:
    """Write the jobs of a workload to a file, and print what it contains."""
    output: Path = options.output
    if output.suffix not in (WORKLOAD, LOG):
        raise InvalidInputError(
            f"{output}: must end in {WORKLOAD} for a workload, or in {LOG} for a log; give another name"
        )
    for word in options.names:
        setting = word.lstrip("+~").partition("=")[0]
        # A group inside another one, like workload/rule, has a slash.
        group = setting.replace("/", ".").partition(".")[0]
        if group not in DECIDING:
            raise InvalidConfigError(
                f"{word} has no effect: the jobs depend on workload, profiles and seed only; leave it out"
            )
    from polluxsim.run.building import load
    from polluxsim.run.composing import compose
    from polluxsim.run.configurations import import_from_here
    from polluxsim.run.spec import check_parts
    from polluxsim.workloads.log_file import write_log
    from polluxsim.workloads.workload import write_workload

    import_from_here()  # a class or a rule of the user
    spec = compose(options.names)
    check_parts(spec.config)
    workload = load(spec.config, "workload", load(spec.config, "profiles"))
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.suffix == LOG:
        write_log(workload, output)
    else:
        write_workload(workload, output)
    print(f"{output}: {_contents(workload)}")
    for note in workload.notes:
        print(note)


def _contents(workload: Workload) -> str:
    """Return in words the number of jobs, the GPU time of those with a duration, and the jobs of each application.

    A number of 0 is left out, except for that of all jobs.
    """
    number = len(workload.jobs)
    parts = [f"{number} job" if number == 1 else f"{number} jobs"]
    gpu_time = sum(job.num_replicas * (job.fixed_duration or 0.0) for job in workload.jobs)
    if gpu_time:
        parts.append(f"{gpu_time / HOUR:.0f} GPU-hours")
    applications = Counter(job.application for job in workload.jobs if not job.is_rigid)
    parts += [f"{count} × {name}" for name, count in sorted(applications.items())]
    return ", ".join(parts)
