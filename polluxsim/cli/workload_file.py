"""Options and output of the commands that write a workload file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidInputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.source import Source
    from polluxsim.workloads.workload import Workload

SUFFIX = ".csv"


def add_drawing(parser: ArgumentParser) -> None:
    """Declare the options of commands that draw jobs."""
    parser.add_argument("--profiles", type=Path, metavar="DIR", help="folder of profiles (default: those of polluxsim)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws (default: %(default)s)")
    parser.add_argument(
        "--realistic",
        action="store_true",
        help="take the GPUs of the trace and the initial batch size; by default both are tuned as in the paper",
    )


def write_drawn(source: Source, options: Namespace) -> None:
    """Draw a workload and write it."""
    check_name(options.output)
    write(source.load(profiles_of(options)), options.output)


def check_name(output: Path) -> None:
    """Raise `InvalidInputError` where a file is not named as one of a workload."""
    if output.suffix != SUFFIX:
        raise InvalidInputError(f"{output}: allowed is the name of a file that ends in {SUFFIX}")


def profiles_of(options: Namespace) -> Mapping[str, Profile]:
    """Return the profiles that were asked for, by application."""
    from polluxsim.applications.folder import ProfileFolder

    return ProfileFolder(None if options.profiles is None else str(options.profiles)).load()


def write(workload: Workload, output: Path) -> None:
    """Write a workload, its folder too, and say so."""
    from polluxsim.workloads.workload import write_workload

    output.parent.mkdir(parents=True, exist_ok=True)
    write_workload(workload, output)
    print(f"{output}: {len(workload.jobs)} jobs")
