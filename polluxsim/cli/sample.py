"""`polluxsim sample`: a workload drawn from the Philly trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.workload_file import add_drawing, write_drawn

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = "Draw jobs from the Philly trace, as the paper's evaluation did, into a workload file."
    parser.add_argument("trace", type=Path, metavar="TRACE", help="philly.csv of the Pollux artifact, or .parquet")
    parser.add_argument("output", type=Path, metavar="OUT", help="workload file to write (.csv)")
    parser.add_argument("--jobs", type=int, default=160, metavar="N", help="jobs to draw (default: %(default)s)")
    add_drawing(parser)
    parser.set_defaults(action=_sample)


def _sample(options: Namespace) -> None:
    from polluxsim.workloads.sampling import PhillySample

    source = PhillySample(str(options.trace), options.jobs, tuned=not options.realistic, seed=options.seed)
    write_drawn(source, options)
