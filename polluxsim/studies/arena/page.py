"""An arena as one HTML page: a heat map, charts of the scenarios, and charts of trade-offs between metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from polluxsim import __version__
from polluxsim.look.colours import looks, on_page
from polluxsim.statistics.number_texts import change_text
from polluxsim.studies.arena.leaderboard import RANKED, ArenaStanding, Leaderboard, ratios_to_best
from polluxsim.studies.arena.playing import RUNS, Played, Player, Suite
from polluxsim.studies.arena.words import (
    JCT,
    absences,
    change_in_words,
    interval_words,
    mean_in_words,
    name_of,
    policies_of,
    ranking_note,
    titled,
    titles_of,
    verdicts,
)

# Start and end of the axis of a chart, and height of the row of a policy [pixels]
LEFT = 165
RIGHT = 690
ROW = 22
# Changes beyond these shares are drawn at the edge [1]
LEAST = -0.3
MOST = 1.5

STEPS = (0.02, 0.05, 0.1, 0.25, 0.5)  # distances between ticks [1]; the first one with at most 7 steps is used

# Size of a Pareto chart, and its margin [pixels]
SIDE = 400
MARGIN = 56
FARTHEST = 4.0  # largest ratio at the end of an axis of a Pareto chart; larger ratios are drawn at the end
STEPS_OF_TRADES = 4  # distances between ticks on such an axis
# Size of the name of a point [pixels]
LINE_OF_TEXT = 14.0
WIDTH_OF_TEXT = 90.0

FULL_HEAT = 1.0  # an average JCT that is longer than the best by this share of it, or more, has the full heat [1]

REPORTS = "reports"  # folder of the reports in the folder of an arena


class Dot(NamedTuple):
    """A policy in a chart."""

    policy: str
    x: float  # change against the best [pixels]
    low: float | None  # ends of the interval of the change [pixels]
    high: float | None
    y: float  # [pixels]
    kind: str  # "real" or "chance"
    title: str  # text at the pointer


class Panel(NamedTuple):
    """Chart and table of a scenario."""

    name: str
    title: str
    metrics: Sequence[str]  # columns of the table
    standings: Sequence[ArenaStanding]
    dots: Sequence[Dot]  # one for each policy with an average JCT
    ticks: Sequence[tuple[float, str]]  # places along the axis [pixels] with their labels
    height: int  # of the chart [pixels]


def write_reports(played: Played, folder: Path) -> dict[Player, str]:
    """Write a report of each policy's runs on each scenario. Return their URLs relative to the arena's folder."""
    from polluxsim.look.report.page import write_report  # noqa: PLC0415  (few arenas have reports)

    runs: dict[Player, list[Path]] = {}
    for row in played.runs:
        runs.setdefault(Player(row["policy"], row["scenario"]), []).append(folder / RUNS / row["folder"])
    # Quoted, because a policy with settings has brackets in its name.
    addresses = {player: f"{REPORTS}/{quote(f'{player.scenario}-{player.policy}')}.html" for player in runs}
    (folder / REPORTS).mkdir(exist_ok=True)
    for player, folders in runs.items():
        write_report(folders, folder / REPORTS / f"{player.scenario}-{player.policy}.html")
    return addresses


class HeatCell(NamedTuple):
    """A policy on a scenario in the heat map."""

    text: str
    heat: float  # share of the full heat [%]
    title: str  # text at the pointer
    link: str


def heat_map(board: Leaderboard, reports: Mapping[Player, str] = MappingProxyType({})) -> dict[str, list[HeatCell]]:
    """Return a row of cells for each policy, the best over all scenarios first; a cell for each scenario.

    `reports` contains the URL of the report of a policy's runs on a scenario. A cell without a report has a link to the
    scenario's table.
    """
    order = list(board.overall)
    # A policy outside the ranking is in the map too, because it may be good on some scenarios.
    order += [policy for policy in policies_of(board) if policy not in board.overall]
    rows: dict[str, list[HeatCell]] = {policy: [] for policy in order}
    for scenario, standings in board.standings.items():
        standing_of = {standing.policy: standing for standing in standings}
        for policy, row in rows.items():
            link = reports.get(Player(policy, scenario), f"#{scenario}")
            row.append(_heat(standing_of.get(policy), f"{policy} on {scenario}", link))
    return rows


def _heat(one: ArenaStanding | None, name: str, link: str) -> HeatCell:
    """Return the cell of a policy on a scenario, with their names and the link of the cell."""
    if one is None or RANKED not in one.means:
        return HeatCell("–", 0.0, f"{name}: did not play", link)
    mean = one.means[RANKED]
    title = f"{name}: {JCT} {mean.estimate.value:.3g} h"
    if mean.estimate.low is not None:
        title += f" [{mean.estimate.low:.3g}, {mean.estimate.high:.3g}]"
    words = change_in_words(one, RANKED)
    if words:
        title += f", {words}"
    if one.left:
        return HeatCell("not all jobs", 0.0, f"{title}; {one.not_served}", link)
    if RANKED in one.tied_at:
        return HeatCell("tied", 0.0, title, link)
    if RANKED in one.best_at:
        return HeatCell("best", 0.0, title, link)
    change = one.changes.get(RANKED)
    if change is None:
        return HeatCell("–", 0.0, title, link)
    share = change.estimate.value
    text = change_text(share)
    if not change.is_real:
        text = f"≈ {text}"
    # By chance, the change may be below 0, because it is over pairs of seeds and the best mean is over all seeds.
    heat = min(max(share, 0.0) / FULL_HEAT, 1.0)
    return HeatCell(text, round(100 * heat, 1), title, link)


class Point(NamedTuple):
    """A policy in a Pareto chart."""

    policy: str
    x: float  # [pixels]
    y: float  # [pixels]
    text_y: float  # height of its name [pixels]
    color: str
    is_best: bool  # whether no policy is better at both metrics


class Trade(NamedTuple):
    """A Pareto chart."""

    title: str  # of the metric of the y axis
    points: Sequence[Point]
    x_ticks: Sequence[tuple[float, str]]  # places along the axis [pixels] with their labels
    y_ticks: Sequence[tuple[float, str]]


def trades(board: Leaderboard) -> list[Trade]:
    """Return charts of the average JCT against other metrics: geometric means over the scenarios of the ranking."""
    charts = []
    for metric in ("p99_fairness", "gpu_hours"):
        ratios = {}
        for policy, ratio in _ratios(board, metric).items():
            ratios[policy] = (board.overall[policy], ratio)
        if len(ratios) > 1:  # a single policy is the best, and trades nothing
            charts.append(_trade(board.metrics[metric].title, ratios))
    return charts


def _ratios(board: Leaderboard, metric: str) -> dict[str, float]:
    """Return the geometric mean of a metric over its best value, by policy that has it on every compared scenario."""
    values: dict[str, list[float]] = {policy: [] for policy in board.overall}
    for scenario in board.compared:
        for standing in board.standings[scenario]:
            if standing.policy in values and metric in standing.means:
                values[standing.policy].append(standing.means[metric].estimate.value)
    complete = {}
    for policy, values_of_policy in values.items():
        # A value of 0 has no ratio.
        if len(values_of_policy) == len(board.compared) and all(values_of_policy):
            complete[policy] = values_of_policy
    return ratios_to_best(complete)


def _trade(title: str, ratios: Mapping[str, tuple[float, float]]) -> Trade:
    """Return the Pareto chart of two ratios to the best by policy, x and y. Both axes begin at the ratio 1."""
    x_end = _end_of_axis([x for x, _ in ratios.values()])
    y_end = _end_of_axis([y for _, y in ratios.values()])
    colours = dict(zip(ratios, looks(list(ratios)), strict=True))
    points: list[Point] = []
    # From the bottom up, because the name of a point moves above the names that are there already.
    for policy, (x, y) in sorted(ratios.items(), key=lambda item: item[1][1]):
        x_pixels = _along(x, x_end)
        y_pixels = SIDE - _along(y, y_end)  # pixels count from the top
        name_height = _free_height(points, x_pixels, y_pixels)
        is_best = not any(_is_dominated((x, y), other) for other in ratios.values())
        points.append(Point(policy, x_pixels, y_pixels, name_height, on_page(colours[policy].color), is_best))
    x_ticks = []
    y_ticks = []
    for step in range(STEPS_OF_TRADES + 1):
        share = step / STEPS_OF_TRADES
        x = 1 + share * (x_end - 1)
        x_ticks.append((_along(x, x_end), f"×{x:.2f}"))
        y = 1 + share * (y_end - 1)
        y_ticks.append((SIDE - _along(y, y_end), f"×{y:.2f}"))
    return Trade(title, points, x_ticks, y_ticks)


def _end_of_axis(ratios: Sequence[float]) -> float:
    """Return the end of an axis from 1 that contains ratios, as far as they are not too large."""
    end = 1.1  # an axis of no length would divide by 0
    for ratio in ratios:
        end = max(end, min(ratio, FARTHEST))
    return end


def _along(value: float, end: float) -> float:
    """Return the place of a ratio along an axis from 1 to `end` [pixels]; larger ratios are at the end."""
    share = (min(value, end) - 1) / (end - 1)
    return round(MARGIN + share * (SIDE - 2 * MARGIN), 1)


def _free_height(points: Sequence[Point], x: float, y: float) -> float:
    """Return the height of the name of a point at x and y [pixels]: above the names of other points."""
    height = y + 4  # the name is beside the point, with its middle at the height of the point
    taken_heights = [point.text_y for point in points if abs(point.x - x) < WIDTH_OF_TEXT]
    # From the bottom up: a name that moves above another one may then cover the next one.
    for taken in sorted(taken_heights, reverse=True):
        if abs(taken - height) < LINE_OF_TEXT:
            height = taken - LINE_OF_TEXT
    return round(height, 1)


def _is_dominated(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether the other point is at most as large in both coordinates, and smaller in one."""
    return other != one and all(theirs <= mine for mine, theirs in zip(one, other, strict=True))


def page(
    board: Leaderboard,
    suite: Suite,
    reports: Mapping[Player, str] = MappingProxyType({}),
    more: Sequence[str] = (),
) -> str:
    """Return an arena as one HTML file that needs no network and no script.

    `reports` is as for `heat_map`, and `more` are further sentences.
    """
    policy_titles = titles_of(board)
    board = titled(board)
    # The board has titles of policies from here on, so the reports need them too.
    reports = {Player(policy_titles[policy], scenario): address for (policy, scenario), address in reports.items()}
    scenario_titles = {scenario.name: scenario.title for scenario in suite.scenarios}
    panels = []
    for scenario, standings in board.standings.items():
        panels.append(_panel(scenario, scenario_titles[scenario], standings, list(board.metrics)))
    source = files("polluxsim.studies.arena").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True).from_string(source)
    players = policies_of(board)
    colours = {}
    for policy, look in zip(players, looks(players), strict=True):
        colours[policy] = on_page(look.color)
    cell_words = "A cell leads to the scenario's table."
    if reports:
        cell_words = "A cell leads to the report of its runs."
    return template.render(
        title=f"{len(players)} policies on {len(panels)} scenarios",
        what=f"The {suite.name} suite: every policy on every scenario, drawn with the same {_seeds_in_words(suite)}.",
        board=board,
        sentences=[*verdicts(board), *interval_words(board), *more],
        ranking_note=ranking_note(board),
        absences=list(absences(board)),
        panels=panels,
        scenarios=list(board.standings),
        heat=heat_map(board, reports),
        colours=colours,
        trades=trades(board),
        cell_words=cell_words,
        side=SIDE,
        margin=MARGIN,
        name_of=name_of,
        jct=JCT,
        ranked=f"{JCT[0].upper()}{JCT[1:]}",
        mean_in_words=mean_in_words,
        change_in_words=change_in_words,
        version=__version__,
    )


def _seeds_in_words(suite: Suite) -> str:
    """Return the number of seeds, for a sentence with "the same" before it."""
    if len(suite.seeds) == 1:
        return "seed"
    return f"{len(suite.seeds)} seeds"


def _panel(name: str, title: str, standings: Sequence[ArenaStanding], compared: Sequence[str]) -> Panel:
    """Return the chart and the table of a scenario."""
    ranked = [standing for standing in standings if RANKED in standing.means]
    start, end = _ends_of_changes(ranked)

    def place(share: float) -> float:
        """Return the place of a change along the axis [pixels]; changes beyond the axis are at its ends."""
        inside = min(max(share, start), end)
        return round(LEFT + (inside - start) / (end - start) * (RIGHT - LEFT), 1)

    dots = [_dot(standing, ROW * row + 16, place) for row, standing in enumerate(ranked)]
    step = next(step for step in STEPS if (end - start) / step <= 7)
    ticks = [(place(0.0), "0 %")]
    for number in range(1, int(end / step) + 1):
        ticks.append((place(number * step), f"+{100 * number * step:.0f} %"))
    metrics = []
    for metric in compared:
        if any(metric in standing.means for standing in standings):
            metrics.append(metric)
    return Panel(name, title, metrics, standings, dots, ticks, ROW * len(ranked) + 34)


def _ends_of_changes(standings: Sequence[ArenaStanding]) -> tuple[float, float]:
    """Return the ends of an axis that contains the changes of policies and their intervals, as shares [1].

    The axis contains 0 with some room, so that equal policies have an axis too, and does not go beyond `LEAST` and
    `MOST`.
    """
    end = 0.1
    start = -0.02
    for standing in standings:
        if RANKED in standing.changes:
            value, low, high = standing.changes[RANKED].estimate
            if low is None or high is None:  # too few pairs of seeds
                low = high = value
            start = min(start, low)
            end = max(end, high)
    return max(start, LEAST), min(end, MOST)


def _dot(one: ArenaStanding, y: float, place: Callable[[float], float]) -> Dot:
    """Return the dot of a policy in the row y; `place` returns the place of a change along the axis [pixels]."""
    title = f"{mean_in_words(one.means[RANKED].estimate, RANKED)} h {change_in_words(one, RANKED)}"
    change = one.changes.get(RANKED)
    if change is None:
        return Dot(one.policy, place(0.0), None, None, y, "chance", title)
    value, low, high = change.estimate
    kind = "real" if change.is_real else "chance"
    x_low = None if low is None else place(low)
    x_high = None if high is None else place(high)
    return Dot(one.policy, place(value), x_low, x_high, y, kind, title)
