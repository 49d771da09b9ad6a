"""`polluxsim report`: finished runs as one interactive HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Write finished runs as one interactive HTML file. The file needs no network."
    parser.epilog = "Example: polluxsim report SWEEP -o report.html"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=option_help.RUNS)
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
                        help="HTML file to write (default: %(default)s)")  # fmt: skip
    parser.add_argument("--baseline", metavar="NAME", help=option_help.BASELINE)
    parser.set_defaults(action=_report)


def _report(options: Namespace) -> None:
    from polluxsim.look.report.writing import write_report

    write_report(options.runs, options.output, options.baseline)
