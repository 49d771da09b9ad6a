"""Commands that write workload files: `workload generate`, `workload sample` and `workload map`."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.cli.options import path, take, take_output
from polluxsim.common.durations import HOUR, MINUTE, length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from polluxsim.models.profile import Profile
    from polluxsim.workloads.mapping import MappedTrace
    from polluxsim.workloads.source import Source
    from polluxsim.workloads.workload import Workload

SETTING = re.compile(r"\bworkload\.(\w+)|^(?:select\.)?(rule|statuses|hours|start|min_duration|max_gpu_hours)(?= is)")
"""Name of a setting of a workload in the text of an error."""

OPTION_NAMES = {"num_jobs": "jobs", "tuned": "realistic", "hours": "duration", "statuses": "status",
                "min_duration": "min-duration", "max_gpu_hours": "max-gpu-hours"}  # fmt: skip
"""Names of options by names of settings of a workload, where the two names differ."""


def add_drawing(parser: ArgumentParser) -> None:
    """Declare the options of commands that draw jobs."""
    take(parser, "profiles")
    take(parser, "seed", default=0)
    take(parser, "realistic")


def write_drawn(source: Source, options: Namespace) -> None:
    """Draw a workload and write it."""
    check_workload_name(options.output)
    with options_named():
        workload = source.load(profiles_of(options))
    write_workload_file(workload, options.output)


@contextmanager
def options_named() -> Iterator[None]:
    """Name the options of the command in errors about the settings of a workload."""

    def option(setting: re.Match[str]) -> str:
        name = setting[1] or setting[2]
        return f"--{OPTION_NAMES.get(name, name)}"

    try:
        yield
    except (InvalidConfigError, InvalidInputError) as error:
        message = SETTING.sub(option, str(error)).replace("profiles.path is", "--profiles is")
        raise type(error)(message) from None


def check_workload_name(output: Path) -> None:
    """Raise InvalidInputError if a file does not have the name of a workload file."""
    if output.suffix != ".csv":
        raise InvalidInputError(f"{output}: a workload is a CSV file; give a name that ends in .csv")


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


OPTIONS_OF_KIND = {"sampled": ("jobs",), "replay": ("start", "rate", "heartbeat")}
"""Options that only one kind of generated workload has."""


def add_workload_generate(parser: ArgumentParser) -> None:
    parser.description = (
        "Draw a workload with the statistics of the Philly trace, and write it to a file. OUT.csv is a workload of "
        "applications with profiles. OUT.parquet is a log of jobs with GPUs and durations, as 'polluxsim log import' "
        "writes it."
    )
    parser.epilog = "Example: polluxsim workload generate -o workload.csv --jobs 320 --duration 16h --seed 1"
    take_output(parser, "file to write, .csv or .parquet", required=True)
    take(parser, "kind", choices=("sampled", "replay"), note="(default: sampled, and replay for .parquet)")
    add_drawing(parser)
    take(parser, "duration", note="whole hours (default: 8h; 80d for .parquet)")
    take(parser, "jobs", note="for sampled (default: 160)")
    take(parser, "start", note="for replay: whole hours since Monday 0:00 UTC")
    take(parser, "rate", note="for replay")
    take(parser, "heartbeat", note="for replay")
    parser.set_defaults(action=_generate)


def _generate(options: Namespace) -> None:
    is_trace = options.output.suffix == ".parquet"
    kind = options.kind or ("replay" if is_trace else "sampled")
    given = _given(kind, options)
    with options_named():
        if is_trace:
            _write_trace(kind, given, options)
        else:
            write_drawn(_generated(kind, given, options), options)


def _given(kind: str, options: Namespace) -> dict[str, Any]:
    """Return the options of one kind of workload that were given. Refuse options of the other kind."""
    other_kind = "sampled" if kind == "replay" else "replay"
    if foreign := [name for name in OPTIONS_OF_KIND[other_kind] if getattr(options, name) is not None]:
        raise InvalidConfigError(
            f"--{foreign[0]} cannot be used with --kind {kind}; leave it out, or choose another kind"
        )
    named = {name: getattr(options, name) for name in ("seed", *OPTIONS_OF_KIND[kind])}
    given = {name: value for name, value in named.items() if value is not None}
    if options.duration is not None:
        given["hours"] = _whole_hours("--duration", options.duration)
    if "start" in given:
        given["start"] = _whole_hours("--start", given["start"])
    return given


def _whole_hours(option: str, seconds: float) -> int:
    """Return a duration [s] in hours. Raise InvalidConfigError if it is not a whole number of hours."""
    if seconds % HOUR:
        raise InvalidConfigError(f"{option} is {length(seconds)}, must be a whole number of hours, like 8h or 2d")
    return int(seconds / HOUR)


def _generated(kind: str, given: dict[str, Any], options: Namespace) -> Source:
    """Return the source of a workload of applications with profiles."""
    from polluxsim.workloads.philly import PhillyLike, PhillyLikeReplay

    if kind == "replay":
        return PhillyLikeReplay(tuned=not options.realistic, **given)
    if "jobs" in given:
        given["num_jobs"] = given.pop("jobs")
    return PhillyLike(tuned=not options.realistic, **given)


def _write_trace(kind: str, given: Mapping[str, Any], options: Namespace) -> None:
    """Draw a log, write it, and print its size and the GPU time of its jobs."""
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
        f"{100 * gpu_hours / source.hours / PHILLY_GPUS:.0f} % of Philly's {PHILLY_GPUS} GPUs"
    )


def add_workload_sample(parser: ArgumentParser) -> None:
    parser.description = "Draw jobs from the Philly trace as in the Pollux paper, and write them to a workload file."
    parser.epilog = "Example: polluxsim workload sample philly.csv -o workload.csv --seed 1"
    parser.add_argument("trace", type=path, metavar="LOG",
                        help="philly.csv of Pollux's artifact, or a log as 'polluxsim log import' writes it",
                        )  # fmt: skip
    take_output(parser, "workload file to write, .csv", required=True)
    take(parser, "jobs", default=160)
    add_drawing(parser)
    parser.set_defaults(action=_sample)


def _sample(options: Namespace) -> None:
    from polluxsim.workloads.philly import PhillySample

    source = PhillySample(str(options.trace), options.jobs, tuned=not options.realistic, seed=options.seed)
    write_drawn(source, options)


def add_workload_map(parser: ArgumentParser) -> None:
    parser.description = (
        "Replace the jobs of a log with applications that have profiles, and write a workload file. The command "
        "prints which jobs it left out."
    )
    parser.epilog = "Example: polluxsim workload map log.parquet -o workload.csv --start 24h --duration 8h"
    parser.add_argument("trace", type=path, metavar="LOG", help="log, as 'polluxsim log import' writes it (.parquet)")
    take_output(parser, "workload file to write, .csv", required=True)
    take(parser, "rule", default="gpu-time-class")
    add_drawing(parser)
    take(parser, "start", note="since the start of the log (default: 0h)")
    take(parser, "duration", note="(default: to the end of the log)")
    take(parser, "min-duration", note="(default: 1min)")
    take(parser, "max-gpu-hours", default=1000.0)
    take(parser, "status", note="(default: completed)")
    parser.set_defaults(action=_map)


def _map(options: Namespace) -> None:
    check_workload_name(options.output)
    from polluxsim.run.configurations import import_from_here

    import_from_here()  # a rule of the user's own
    with options_named():
        workload, report = _mapped_trace(options).map(profiles_of(options))
    write_workload_file(workload, options.output)
    print(report.as_text())


def _mapped_trace(options: Namespace) -> MappedTrace:
    """Return the source that maps the jobs of a log to applications."""
    from polluxsim.workloads.mapping import MappedTrace
    from polluxsim.workloads.selection import Selection

    statuses = None if "any" in (options.status or ()) else tuple(options.status or ("completed",))
    hours = None if options.duration is None else options.duration / HOUR
    shortest = MINUTE if options.min_duration is None else options.min_duration
    select = Selection((options.start or 0) / HOUR, hours, shortest, options.max_gpu_hours, statuses)
    return MappedTrace(str(options.trace), options.rule, not options.realistic, options.seed, select)
