"""`polluxsim compare`: one setting against others, by pairs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.table import TENANTS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Compare the setting of the first run with each other one, by pairs of runs alike in workload and seed: "
        "changes, with 95 % intervals where there are six pairs, also by application, and the jobs that lose most."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run, or of a sweep")
    parser.add_argument("--by", metavar="SETTING",
                        help="what counts, like policy or policy.p: pairs are alike in all other settings")  # fmt: skip
    parser.add_argument("--ranks", choices=TENANTS, help="and each user's or queue's rank by mean wait, side by side")
    parser.set_defaults(action=_compare)


def _compare(options: Namespace) -> None:
    from polluxsim.look.comparing import as_text, by_setting, compared
    from polluxsim.look.console import console
    from polluxsim.look.ranks import rank_table
    from polluxsim.look.reading import runs_at

    runs = runs_at(options.runs)
    print(as_text(compared(runs, options.by)))
    if options.ranks:
        console().print(rank_table(by_setting(runs, options.by), options.ranks))
