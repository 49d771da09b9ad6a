"""`polluxsim report`: finished runs as one interactive HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.table import BASELINE_HELP

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = "Write finished runs as one interactive HTML file that needs no network."
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run, or of a sweep")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
        help="HTML file to write (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--baseline", metavar="NAME", help=BASELINE_HELP)
    parser.set_defaults(action=_report)


def _report(options: Namespace) -> None:
    from polluxsim.look.report.writing import write_report

    write_report(options.runs, options.output, options.baseline)
