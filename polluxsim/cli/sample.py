"""`polluxsim sample`: a workload drawn from the Philly trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.workload_file import add_drawing, write_drawn

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
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
    from polluxsim.workloads.sampling import PhillySample

    source = PhillySample(str(options.trace), options.jobs, tuned=not options.realistic, seed=options.seed)
    write_drawn(source, options)
