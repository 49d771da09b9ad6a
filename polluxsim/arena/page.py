"""The page of an arena: one HTML file that needs nothing else, and runs nothing."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, StrictUndefined

from polluxsim import __version__
from polluxsim.arena.leaderboard import RANKED
from polluxsim.arena.words import absences, change_in_words, interval_words, mean_in_words, name_of, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polluxsim.arena.leaderboard import Leaderboard, Standing
    from polluxsim.arena.scenarios import Suite

LEFT, RIGHT, ROW = 165, 690, 22
"""Where the axis begins and ends, and the height of a policy."""

LEAST, MOST = -0.3, 1.5
"""Changes beyond these shares are drawn at the edge."""

STEPS = (0.02, 0.05, 0.1, 0.25, 0.5)


class Dot(NamedTuple):
    """A policy in a chart, in its pixels."""

    policy: str
    x: float
    low: float | None
    high: float | None
    y: float
    kind: str
    told: str


class Panel(NamedTuple):
    """What the page shows of a scenario."""

    name: str
    title: str
    metrics: Sequence[str]
    standings: Sequence[Standing]
    dots: Sequence[Dot]
    ticks: Sequence[tuple[float, str]]
    height: int


def page(board: Leaderboard, suite: Suite) -> str:
    """Return the text of an HTML file that needs no other, no network and no script."""
    titles = {scenario.name: scenario.title for scenario in suite.scenarios}
    panels = [_panel(name, titles[name], found, list(board.metrics)) for name, found in board.standings.items()]
    source = files("polluxsim.arena").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True).from_string(source)
    count = len({one.policy for found in board.standings.values() for one in found})
    return template.render(
        title=f"{count} policies on {len(panels)} scenarios",
        what=f"The {suite.name} suite: every policy on every scenario, drawn with the same {len(suite.seeds)} seeds.",
        board=board,
        sentences=[*verdicts(board), *interval_words(board)],
        absences=list(absences(board)),
        panels=panels,
        name_of=name_of,
        mean_in_words=mean_in_words,
        change_in_words=change_in_words,
        version=__version__,
    )


def _panel(name: str, title: str, standings: Sequence[Standing], compared: Sequence[str]) -> Panel:
    known = [one for one in standings if RANKED in one.means]
    ends = [one.changes[RANKED].estimate for one in known if RANKED in one.changes]
    reach = min(max([0.1, *(estimate.high or estimate.value for estimate in ends)]), MOST)
    back = max(min([-0.02, *(estimate.low or estimate.value for estimate in ends)]), LEAST)

    def place(share: float) -> float:
        return round(LEFT + (min(max(share, back), reach) - back) / (reach - back) * (RIGHT - LEFT), 1)

    dots = [_dot(one, ROW * row + 16, place) for row, one in enumerate(known)]
    step = next(step for step in STEPS if (reach - back) / step <= 7)
    ticks = [(place(number * step), f"+{100 * number * step:.0f} %") for number in range(int(reach / step) + 1)]
    metrics = [metric for metric in compared if any(metric in one.means for one in standings)]
    return Panel(name, title, metrics, standings, dots, ticks, ROW * len(known) + 34)


def _dot(one: Standing, y: float, place: Callable[[float], float]) -> Dot:
    told = f"{mean_in_words(one.means[RANKED].estimate, RANKED)} h {change_in_words(one, RANKED)}"
    if (change := one.changes.get(RANKED)) is None:
        return Dot(one.policy, place(0.0), None, None, y, "chance", told)
    value, low, high = change.estimate
    kind = "real" if change.is_real else "chance"
    left, right = (None if end is None else place(end) for end in (low, high))
    return Dot(one.policy, place(value), left, right, y, kind, told)
