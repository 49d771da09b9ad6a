"""`polluxsim generate`: a load by the statistics of the Philly trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.cli.workload_file import add_drawing, write_drawn
from polluxsim.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.workloads.source import Source

SAMPLED_OPTIONS = ("jobs",)
REPLAY_OPTIONS = ("start", "rate", "heartbeat")


def add(parser: argparse.ArgumentParser) -> None:
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
    if is_trace:
        _write_trace(kind, given, options)
    else:
        write_drawn(_source(kind, given, options), options)


def _given(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of one kind of load that were given; those of the other one must not be."""
    own, others = (REPLAY_OPTIONS, SAMPLED_OPTIONS) if kind == "replay" else (SAMPLED_OPTIONS, REPLAY_OPTIONS)
    for name in others:
        if getattr(options, name) is not None:
            raise InvalidConfigError(f"--{name} is given, allowed with --kind {kind} is to leave it out")
    return {name: value for name in ("hours", "seed", *own) if (value := getattr(options, name)) is not None}


def _source(kind: str, given: dict[str, Any], options: argparse.Namespace) -> Source:
    from polluxsim.workloads.philly_like import PhillyLike, PhillyLikeReplay

    if kind == "replay":
        return PhillyLikeReplay(tuned=not options.realistic, **given)
    if "jobs" in given:
        given["num_jobs"] = given.pop("jobs")
    return PhillyLike(tuned=not options.realistic, **given)


def _write_trace(kind: str, given: Mapping[str, Any], options: argparse.Namespace) -> None:
    from polluxsim.durations import HOUR
    from polluxsim.logs.formats.philly import PHILLY_GPUS
    from polluxsim.workloads.replay_like import ReplayLike, write_replay

    output: Path = options.output
    if kind != "replay":
        raise InvalidInputError(f"{output}: a sampled load is a workload, allowed is a name that ends in .csv")
    if options.realistic or options.profiles is not None:
        raise InvalidConfigError("--realistic and --profiles are for workloads (.csv): a trace has no applications")
    source = ReplayLike(**given)
    output.parent.mkdir(parents=True, exist_ok=True)
    jobs = write_replay(source, output)
    gpu_hours = float((jobs.durations * jobs.gpus).sum()) / HOUR
    print(
        f"{output}: {len(jobs.times)} jobs in {source.hours} h, {gpu_hours:.0f} GPU-hours, "
        f"{gpu_hours / source.hours / PHILLY_GPUS:.0%} of Philly's {PHILLY_GPUS} GPUs"
    )
