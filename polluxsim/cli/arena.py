"""`polluxsim arena`: policies against each other on named scenarios, with a leaderboard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

SUITES = ("quick", "full")
NOT_ALL_PLAYED = 2
"""Exit status where a policy failed."""


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Compare policies on named scenarios, and rank them by average JCT. Each scenario is drawn with several seeds. "
        "The page of results has confidence intervals and names the scenarios that change the ranking. A second call "
        "makes only the runs that are missing."
    )
    parser.epilog = "Example: polluxsim arena --policies pollux tiresias mine.py:MyPolicy --seeds 6"
    parser.add_argument("names", nargs="*", metavar="hydra...=VALUE",
                        help="settings of Hydra, like hydra/launcher=ray")  # fmt: skip
    parser.add_argument("--policies", nargs="+", default=[], metavar="POLICY",
                        help=f"classes like mine.py:MyPolicy, or {option_help.POLICIES} (default: thirteen "
                        "policies)")  # fmt: skip
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0],
                        help="list of scenarios (default: %(default)s)")  # fmt: skip
    parser.add_argument("--scenarios", nargs="+", default=[], metavar="NAME",
                        help="scenarios of the suite to run (default: all)")  # fmt: skip
    parser.add_argument("--seeds", type=int, metavar="N",
                        help="number of seeds of each scenario (default: 6; 10 for the full suite)")  # fmt: skip
    parser.add_argument("--metric", action="append", default=[], metavar="NAME=MODULE.ATTRIBUTE",
                        help=f"a metric of your own; {option_help.REPEATED}")  # fmt: skip
    parser.add_argument("--workers", type=int, metavar="N", help=option_help.WORKERS)
    parser.add_argument("-o", "--output", type=Path, default=Path("arena"), metavar="DIR", help=option_help.OUT)
    parser.set_defaults(action=_arena)


def _arena(options: Namespace) -> int:
    """Make an arena's runs and its pages; the exit status is 2 if a policy failed, and the page names it."""
    from rich.markdown import Markdown

    from polluxsim.arena.leaderboard import as_frame, leaderboard
    from polluxsim.arena.page import page
    from polluxsim.arena.playing import RUNS, Place, play
    from polluxsim.arena.scenarios import default_policies, read_suite
    from polluxsim.arena.words import as_markdown
    from polluxsim.files import appearing_whole
    from polluxsim.look.console import console
    from polluxsim.look.remarks import print_without_effect
    from polluxsim.run.overrides import split_list

    suite = read_suite(options.suite, tuple(dict.fromkeys(options.scenarios)), options.seeds)
    if other := [word for word in options.names if not word.startswith("hydra")]:
        raise InvalidConfigError(f"{other[0]!r} is not for an arena, allowed are settings of hydra's launcher")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # metrics in a module of the current folder
    place = Place(options.output, options.workers, tuple(options.names), tuple(options.metric))
    policies = [name for text in options.policies for name in split_list(text)] or default_policies()
    played = play(policies, suite, place)
    board = leaderboard(played)
    text = as_markdown(board, {scenario.name: scenario.title for scenario in suite.scenarios})
    for name, content in {"arena.html": page(board, suite), "arena.md": text}.items():
        with appearing_whole(options.output / name) as path:
            path.write_text(content, encoding="utf-8")
    with appearing_whole(options.output / "arena.parquet") as path:
        as_frame(board).to_parquet(path, index=False)
    screen = console()
    screen.print(Markdown(text) if screen.is_terminal else text, markup=False)
    if played.runs:
        print_without_effect(options.output / RUNS)
    print(f"wrote {options.output / 'arena.html'}, arena.md and arena.parquet")
    for player in played.failed:
        print(f"polluxsim: {player.policy} failed on {player.scenario}: {played.absent[player]}", file=sys.stderr)
    return NOT_ALL_PLAYED if played.failed else 0
