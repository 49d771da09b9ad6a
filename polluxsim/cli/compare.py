"""`polluxsim compare`: settings against a baseline, over pairs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.table import BASELINE_HELP, TENANTS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Compare each setting with the baseline, which is the setting of the first run, over pairs of runs with the "
        "same workload and seed: changes with 95 % intervals, also by application, and the jobs that lose most."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run, or of a sweep")
    parser.add_argument("--by", metavar="SETTING",
                        help="the setting to compare, like policy.p: pairs differ only in it")  # fmt: skip
    parser.add_argument("--baseline", metavar="NAME", help=BASELINE_HELP)
    parser.add_argument("--ranks", choices=TENANTS, help="and each user's or queue's rank by mean wait, side by side")
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
