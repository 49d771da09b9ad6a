"""Commands that write workload files: `generate`, `sample` and `map`."""

from __future__ import annotations

import argparse
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.cli import shared_options
from polluxsim.cli.shared_options import import_from_here
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.mapping import MappedTrace
    from polluxsim.workloads.source import Source
    from polluxsim.workloads.workload import Workload

SUFFIX = ".csv"

OPTION_NAMES = {"num_jobs": "jobs", "tuned": "realistic"}
"""Names of options, by the names of the settings of a workload, where they differ."""


def add_drawing(parser: ArgumentParser) -> None:
    """Declare the options of commands that draw jobs."""
    parser.add_argument("--profiles", type=Path, metavar="DIR", help="folder of profiles (default: those of polluxsim)")
    parser.add_argument("--seed", type=shared_options.whole_number(0), default=0,
                        help="seed of the random draws (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--realistic",
        action="store_true",
        help="take the GPUs of the trace and the initial batch size; by default both are tuned as in the paper",
    )


def write_drawn(source: Source, options: Namespace) -> None:
    """Draw a workload and write it."""
    check_workload_name(options.output)
    with options_named():
        workload = source.load(profiles_of(options))
    write_workload_file(workload, options.output)


@contextmanager
def options_named() -> Iterator[None]:
    """Name the options of the command in errors about the settings of a workload."""
    try:
        yield
    except InvalidConfigError as error:
        named = re.sub(r"\bworkload\.(\w+)", lambda found: f"--{OPTION_NAMES.get(found[1], found[1])}", str(error))
        raise InvalidConfigError(named) from None


def check_workload_name(output: Path) -> None:
    """Raise `InvalidInputError` if the name of a file does not end like the name of a workload file."""
    if output.suffix != SUFFIX:
        raise InvalidInputError(f"{output}: a workload is a CSV file; give a name that ends in {SUFFIX}")


def profiles_of(options: Namespace) -> Mapping[str, Profile]:
    """Return the profiles of `--profiles`, by application."""
    from polluxsim.applications.folder import ProfileFolder

    return ProfileFolder(None if options.profiles is None else str(options.profiles)).load()


def write_workload_file(workload: Workload, output: Path) -> None:
    """Write a workload, and make its folder if it does not exist. Print the number of jobs."""
    from polluxsim.workloads.workload import write_workload

    output.parent.mkdir(parents=True, exist_ok=True)
    write_workload(workload, output)
    print(f"{output}: {len(workload.jobs)} jobs")


SAMPLED_OPTIONS = ("jobs",)
REPLAY_OPTIONS = ("start", "rate", "heartbeat")


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Draw a workload with the statistics of the Philly trace, and write it to a file. OUT.csv is a workload of "
        "applications with profiles. OUT.parquet is a log of jobs with GPUs and durations, as 'polluxsim import' "
        "writes it."
    )
    parser.epilog = "Example: polluxsim generate workload.csv --jobs 320 --hours 16 --seed 1"
    parser.add_argument("output", type=Path, metavar="OUT", help="file to write, .csv or .parquet")
    parser.add_argument(
        "--kind", choices=("sampled", "replay"),
        help="'sampled' draws jobs independently as in the paper; 'replay' draws bursts by hour and weekday (default: "
        "sampled, and replay for .parquet)",
    )  # fmt: skip
    add_drawing(parser)
    parser.add_argument("--hours", type=int, metavar="H",
                        help="length of the workload (default: 8; 1920, 80 days, for .parquet)")  # fmt: skip
    parser.add_argument("--jobs", type=int, metavar="N", help="for sampled: number of jobs (default: 160)")
    parser.add_argument("--start", type=int, metavar="H", help="for replay: first hour, since Monday 0:00 UTC")
    parser.add_argument("--rate", type=float, metavar="X", help="for replay: factor of the number of bursts")
    parser.add_argument("--heartbeat", action=argparse.BooleanOptionalAction, default=None,
                        help="for replay: add a short job every 10 minutes")  # fmt: skip
    parser.set_defaults(action=_generate)


def _generate(options: argparse.Namespace) -> None:
    is_trace = options.output.suffix == ".parquet"
    kind = options.kind or ("replay" if is_trace else "sampled")
    given = _given(kind, options)
    with options_named():
        if is_trace:
            _write_trace(kind, given, options)
        else:
            write_drawn(_generated(kind, given, options), options)


def _given(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of one kind of workload that were given. Refuse options of the other kind."""
    own, others = (REPLAY_OPTIONS, SAMPLED_OPTIONS) if kind == "replay" else (SAMPLED_OPTIONS, REPLAY_OPTIONS)
    for name in others:
        if getattr(options, name) is not None:
            raise InvalidConfigError(
                f"--{name} cannot be used with --kind {kind}; leave it out, or choose another kind"
            )
    return {name: value for name in ("hours", "seed", *own) if (value := getattr(options, name)) is not None}


def _generated(kind: str, given: dict[str, Any], options: argparse.Namespace) -> Source:
    from polluxsim.workloads.philly import PhillyLike, PhillyLikeReplay

    if kind == "replay":
        return PhillyLikeReplay(tuned=not options.realistic, **given)
    if "jobs" in given:
        given["num_jobs"] = given.pop("jobs")
    return PhillyLike(tuned=not options.realistic, **given)


def _write_trace(kind: str, given: Mapping[str, Any], options: argparse.Namespace) -> None:
    from polluxsim.common.durations import HOUR
    from polluxsim.logs.formats.philly import PHILLY_GPUS
    from polluxsim.workloads.philly_replay import ReplayLike, write_replay

    output: Path = options.output
    if kind != "replay":
        raise InvalidInputError(f"{output}: --kind sampled writes a workload; give a name that ends in .csv")
    if options.realistic or options.profiles is not None:
        raise InvalidConfigError(
            "--realistic and --profiles are for workloads, because a log has no applications; leave them out, or give "
            "a name that ends in .csv"
        )
    source = ReplayLike(**given)
    output.parent.mkdir(parents=True, exist_ok=True)
    jobs = write_replay(source, output)
    gpu_hours = float((jobs.durations * jobs.gpus).sum()) / HOUR
    print(
        f"{output}: {len(jobs.times)} jobs in {source.hours} h, {gpu_hours:.0f} GPU-hours, "
        f"{gpu_hours / source.hours / PHILLY_GPUS:.0%} of Philly's {PHILLY_GPUS} GPUs"
    )


def add_sample(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Draw jobs from the Philly trace as in the Pollux paper, and write them to a workload file."
    parser.epilog = "Example: polluxsim sample philly.csv workload.csv --seed 1"
    parser.add_argument("trace", type=Path, metavar="TRACE",
                        help="philly.csv of Pollux's artifact, or a log as 'polluxsim import' writes it")  # fmt: skip
    parser.add_argument("output", type=Path, metavar="OUT", help="workload file to write, .csv")
    parser.add_argument("--jobs", type=int, default=160, metavar="N", help="number of jobs (default: %(default)s)")
    add_drawing(parser)
    parser.set_defaults(action=_sample)


def _sample(options: Namespace) -> None:
    from polluxsim.workloads.philly import PhillySample

    source = PhillySample(str(options.trace), options.jobs, tuned=not options.realistic, seed=options.seed)
    write_drawn(source, options)


def add_map(parser: ArgumentParser) -> None:
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
                        help=f"status of jobs, or 'any'; {shared_options.REPEATED} (default: completed)")  # fmt: skip
    parser.set_defaults(action=_map)


def _map(options: Namespace) -> None:
    check_workload_name(options.output)
    import_from_here()  # a rule of the user's own
    workload, report = _mapped_trace(options).map(profiles_of(options))
    write_workload_file(workload, options.output)
    print(report.as_text())


def _mapped_trace(options: Namespace) -> MappedTrace:
    from polluxsim.workloads.mapping import MappedTrace
    from polluxsim.workloads.selection import Selection

    statuses = None if "any" in (options.status or ()) else tuple(options.status or ("completed",))
    select = Selection(options.start, options.hours, options.min_duration, options.max_gpu_hours, statuses)
    return MappedTrace(str(options.trace), options.rule, not options.realistic, options.seed, select)
