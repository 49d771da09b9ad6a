"""`polluxsim compare`: one setting against others, by pairs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    parser.set_defaults(action=_compare)


def _compare(options: Namespace) -> int:
    from polluxsim.look.comparing import as_text, compared
    from polluxsim.look.reading import runs_at

    print(as_text(compared(runs_at(options.runs), options.by)))
    return 0
