"""`polluxsim compare`: settings against a baseline, over pairs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.cli.table import TENANTS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Compare each setting with a baseline over pairs of runs that have the same workload and seed. The command "
        "prints changes with 95 % intervals, changes for each application, and the jobs that lose most."
    )
    parser.epilog = "Example: polluxsim compare SWEEP --baseline policy=fifo"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=option_help.RUNS)
    parser.add_argument("--by", metavar="SETTING",
                        help="setting to compare, like policy.p; all other settings of a pair are equal",
                        )  # fmt: skip
    parser.add_argument("--baseline", metavar="NAME", help=option_help.BASELINE)
    parser.add_argument("--ranks", choices=TENANTS,
                        help="print also each user's or queue's rank by mean wait")  # fmt: skip
    parser.set_defaults(action=_compare)


def _compare(options: Namespace) -> None:
    from polluxsim.look.comparing import by_setting, compared
    from polluxsim.look.console import console
    from polluxsim.look.ranks import rank_table
    from polluxsim.look.reading import runs_at
    from polluxsim.look.settings_text import comparison_text

    runs = runs_at(options.runs)
    print(comparison_text(compared(runs, options.by, options.baseline)))
    if options.ranks:
        console().print(rank_table(by_setting(runs, options.by), options.ranks))
