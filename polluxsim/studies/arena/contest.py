"""Compare policies on the scenarios of a suite, from one request to one result and its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.files import atomic_write
from polluxsim.run.configurations import import_from_here
from polluxsim.studies.arena.best_possible import Bounds, best_possible, sentences_on_bounds, with_bounds
from polluxsim.studies.arena.leaderboard import Leaderboard, frame_of_leaderboard, leaderboard
from polluxsim.studies.arena.page import page, write_reports
from polluxsim.studies.arena.playing import ArenaPlace, Played, Player, default_policies, play, read_suite
from polluxsim.studies.arena.words import as_markdown


@dataclass(frozen=True)
class ArenaRequest:
    """A comparison of policies on named scenarios.

    Raises
    ------
    InvalidConfigError
        If a setting is not one of Hydra's, or a metric is not NAME=MODULE.ATTRIBUTE.
    """

    policies: Sequence[str] = ()  # names, with settings in parentheses, or classes like mine.py:MyPolicy; (): thirteen
    suite: str = "quick"  # or full
    scenarios: Sequence[str] = ()  # scenarios of the suite to run; (): all
    seeds: int | None = None  # number of seeds of each scenario; None: the number of the suite
    metrics: Sequence[str] = ()  # your own metrics as NAME=MODULE.ATTRIBUTE
    folder: Path = Path("arena")  # for the runs and the page; finished runs in it are reused
    workers: int | None = None  # number of processes; None: one for each core
    launcher: Sequence[str] = ()  # settings of Hydra, like hydra/launcher=ray
    bounds: bool = False  # whether to compare with the best possible schedules
    reports: bool = False  # whether to write a report of each policy's runs on each scenario

    def __post_init__(self) -> None:
        other = [word for word in self.launcher if not word.startswith("hydra")]
        if other:
            raise InvalidConfigError(f"{other[0]!r} cannot be set for an arena; set only hydra/launcher and hydra.*")
        wrong = [word for word in self.metrics if not re.fullmatch(r"\w+=(\w+\.)+\w+", word)]
        if wrong:
            raise InvalidConfigError(
                f"a metric is {wrong[0]!r}, must be NAME=MODULE.ATTRIBUTE, like mine=my_metrics.mine"
            )


class Arena(NamedTuple):
    """The result of a comparison of policies. `arena.html`, `arena.md` and `arena.parquet` in the folder show it."""

    board: Leaderboard
    played: Played
    text: str  # the content of arena.md
    bounds: Bounds | None = None  # best possible values; None if they are not asked for

    def frame(self) -> pd.DataFrame:
        """Return the results as a table, with a row for each scenario, policy and metric."""
        frame = frame_of_leaderboard(self.board)
        return frame if self.bounds is None else with_bounds(frame, self.bounds)


def arena(request: ArenaRequest) -> Arena:
    """Make the runs of a comparison that are not finished, and write its pages.

    Raises
    ------
    InvalidConfigError
        If a policy or a scenario does not exist, or two policies have the same name.
    SweepError
        If another process uses the folder, or runs failed for another reason than their policy.
    """
    # The suite is read first, so that a wrong name is refused before anything is written.
    suite = read_suite(request.suite, tuple(request.scenarios), request.seeds)
    import_from_here()  # metrics in a module of the current folder
    folder = Path(request.folder)
    place = ArenaPlace(folder, request.workers, tuple(request.launcher), tuple(request.metrics))
    policies = list(request.policies) or default_policies()
    played = play(policies, suite, place)
    board = leaderboard(played)
    bounds = None
    sentences: tuple[str, ...] = ()
    if request.bounds:
        bounds = best_possible(played, folder)
        sentences = tuple(sentences_on_bounds(bounds))
    titles = {scenario.name: scenario.title for scenario in suite.scenarios}
    arena = Arena(board, played, as_markdown(board, titles, sentences), bounds)
    reports: dict[Player, str] = {}
    if request.reports:
        reports = write_reports(played, folder)  # before the page, which has links to them
    pages = {"arena.html": page(board, suite, reports, sentences), "arena.md": arena.text}
    # Each file appears as a whole, because a browser may show the page while the next arena writes it.
    for name, content in pages.items():
        with atomic_write(folder / name) as path:
            path.write_text(content, encoding="utf-8")
    # An open file, because pyarrow takes only names in UTF-8.
    with atomic_write(folder / "arena.parquet") as path, path.open("wb") as file:
        arena.frame().to_parquet(file, index=False)
    return arena
