"""Show an arena as sentences in Markdown, and as one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from math import exp, log
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from polluxsim import __version__
from polluxsim.common.shipped import shipped_classes
from polluxsim.look.colours import looks, on_page
from polluxsim.look.settings_tables import QUANTITY, interval_notes, measured_change
from polluxsim.look.tables import markdown
from polluxsim.look.why.phrases import listed
from polluxsim.records.folders import POLICY_NAMES
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, Estimate
from polluxsim.statistics.metric_lines import METRICS, change_text
from polluxsim.studies.arena.leaderboard import CLOCKS, RANKED, SHARE, Flip, Leaderboard, Standing, is_as_good
from polluxsim.studies.arena.playing import RUNS, Played, Player, Suite

JCT = METRICS[RANKED].title  # name of the metric that decides the ranking
MOST_FLIPS = 8  # of them, told
MOST_NAMES = 6  # largest number of names in the sentence about policies that may be as good as the best


def name_of(board: Leaderboard, name: str) -> str:
    """Return a metric's title, unit and direction, for a heading."""
    metric = board.metrics[name]
    return f"{f'{metric.title} [%]' if metric is SHARE else metric.heading}{metric.arrow}"


def verdicts(board: Leaderboard) -> Iterator[str]:
    """Yield sentences on the best policies of each scenario, and on rankings that flip.

    Below six seeds they say only which policies are tied, because their average JCTs are equal.
    """
    leaders: dict[tuple[str, ...], list[str]] = {}
    for scenario, found in board.standings.items():
        best = tuple(one.policy for one in found if is_as_good(one, found[0]))
        if len(best) > 1 or _is_judged(found):
            leaders.setdefault(best, []).append(scenario)
    for best, scenarios in sorted(leaders.items(), key=lambda item: -len(item[1])):
        what = f"has the least {JCT} on {listed(scenarios)}"
        if len(best) > 1:
            what = f"are tied for the least {JCT} on {listed(scenarios)}"
        yield f"{listed(_named(best))} {what}{_not_alone(board, scenarios)}."
    for flip in board.flips[:MOST_FLIPS]:
        yield _flip(flip)
    if len(board.flips) > MOST_FLIPS:
        yield f"{len(board.flips) - MOST_FLIPS} more pairs of policies change places between scenarios."
    if all(map(_is_judged, board.standings.values())):
        if not board.flips:
            least = f"{LEAST_FOR_VERDICT} seeds or more"
            yield f"No two policies change places between scenarios, by 95 % intervals of {least}."
    else:
        most = max((_num_seeds(found) for found in board.standings.values()), default=0)
        yield f"No verdict on differences: it needs {LEAST_FOR_VERDICT} seeds of each scenario, and there are {most}."


def _is_judged(standings: Sequence[Standing]) -> bool:
    return _num_seeds(standings) >= LEAST_FOR_VERDICT


def _num_seeds(standings: Sequence[Standing]) -> int:
    return max((one.means[RANKED].num_units for one in standings if RANKED in one.means), default=0)


def _named(policies: Sequence[str]) -> list[str]:
    more = [f"{len(policies) - MOST_NAMES} more"] if len(policies) > MOST_NAMES else []
    return [*policies[:MOST_NAMES], *more]


def ranking_note(board: Leaderboard) -> str:
    """Return what the ranking over all scenarios covers, and which policies it leaves out."""
    policies = dict.fromkeys(one.policy for found in board.standings.values() for one in found)
    if not board.overall:
        return "No ranking: no policy served every job on any scenario."
    left_out = [policy for policy in policies if policy not in board.overall]
    without = f", without {listed(left_out)}, which did not serve every job on these scenarios" if left_out else ""
    scenarios = listed(board.compared)
    return f"Geometric means over the scenarios on which every policy served every job ({scenarios}){without}."


def absences(board: Leaderboard) -> Iterator[str]:
    """Yield why policies could not play."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for player, why in board.absent.items():
        reasons.setdefault((player.policy, why), []).append(player.scenario)
    for (policy, why), scenarios in reasons.items():
        where = "on any scenario" if 1 < len(scenarios) == len(board.standings) else listed(scenarios)
        yield f"{policy} did not play {where}: {why}."


def interval_words(board: Leaderboard) -> Iterator[str]:
    """Yield what the changes and their intervals are."""
    changes = [change for found in board.standings.values() for one in found for change in one.changes.values()]
    if changes:
        yield f"Changes are against the best policy of each metric (baseline): {QUANTITY}."
    yield from interval_notes(changes, "pairs", "log ratios")


def _not_alone(board: Leaderboard, scenarios: Sequence[str]) -> str:
    """Return the policies that no interval tells apart from the best one, by scenario."""
    shared = []
    for scenario in scenarios:
        first, *others = board.standings[scenario]
        near = [one for one in others if not (one.left or _is_told_apart(one) or is_as_good(one, first))]
        if near:
            shared.append(f"on {scenario} from {listed(_named([one.policy for one in near]))}")
    return f"; not told apart {listed(shared)}" if shared else ""


def _is_told_apart(one: Standing) -> bool:
    change = one.changes.get(RANKED)
    return change is None or not change.is_judged or change.is_real


def _flip(flip: Flip) -> str:
    (where, much), (elsewhere, more) = flip.first_wins, flip.second_wins
    wins = f"{flip.first} beats {flip.second} on {where} ({change_text(much)} {JCT})"
    return f"The ranking flips: {wins}, and loses to it on {elsewhere} ({flip.second} {change_text(more)})."


def mean_in_words(estimate: Estimate, metric: str) -> str:
    """Return a mean as the tables show it."""
    value = estimate.value * (1000 if metric in CLOCKS else 1)
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def change_in_words(one: Standing, metric: str) -> str:
    """Return a change against the best, with its interval.

    The best policy has "best", or "tied" if another policy has an equal value. The sign "≈" marks a difference that may
    be chance.
    """
    if metric in CLOCKS or metric not in one.means:
        return ""
    if metric in one.best_at:
        return "tied" if metric in one.tied_at else "best"
    if (change := one.changes.get(metric)) is None:
        return ""
    return f"{'' if change.is_real else '≈ '}{measured_change(change)}"


def as_markdown(board: Leaderboard, titles: Mapping[str, str]) -> str:
    """Return an arena as Markdown: overall, in words, and a table for each scenario; nothing of the clock."""
    board = titled(board)
    ratios = [[policy, f"{ratio:.2f}"] for policy, ratio in board.overall.items()]
    parts = [ranking_note(board), "", markdown([["policy", f"times the best's {JCT}"], *ratios]), ""]
    parts += [f"- {sentence}" for sentence in (*verdicts(board), *absences(board), *interval_words(board))]
    for scenario, found in board.standings.items():
        compared = [metric for metric in board.metrics if metric not in CLOCKS]
        shown = [metric for metric in compared if any(metric in one.means for one in found)]
        head = ["", *(name_of(board, metric) for metric in shown)]
        rows = [[_called(one), *(_cell(one, metric) for metric in shown)] for one in found]
        parts += ["", f"### {scenario}: {titles[scenario]}", "", markdown([head, *rows])]
    return "\n".join(parts) + "\n"


def _called(one: Standing) -> str:
    return f"{one.policy} ({one.left} jobs not served)" if one.left else one.policy


def _cell(one: Standing, metric: str) -> str:
    if metric not in one.means:
        return "–"
    said = (mean_in_words(one.means[metric].estimate, metric), change_in_words(one, metric))
    return ", ".join(filter(None, said))


LEFT, RIGHT, ROW = 165, 690, 22  # where the axis begins and ends, and the height of a policy
LEAST, MOST = -0.3, 1.5  # changes beyond these shares are drawn at the edge

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


def write_reports(played: Played, folder: Path) -> dict[Player, str]:
    """Write a report of each policy's runs on each scenario. Return their addresses from the folder of the arena."""
    from polluxsim.look.report.page import write_report  # noqa: PLC0415  (few arenas have reports)

    runs: dict[Player, list[Path]] = {}
    for row in played.runs:
        runs.setdefault(Player(row["policy"], row["scenario"]), []).append(folder / RUNS / row["folder"])
    addresses = {player: f"{REPORTS}/{quote(f'{player.scenario}-{player.policy}')}.html" for player in runs}
    (folder / REPORTS).mkdir(exist_ok=True)
    for player, folders in runs.items():
        write_report(folders, folder / REPORTS / f"{player.scenario}-{player.policy}.html")
    return addresses


REPORTS = "reports"  # folder of the reports in the folder of an arena


class HeatCell(NamedTuple):
    """A policy on a scenario in the heat map: text, share of the full heat [%], words on hover, and link."""

    text: str
    heat: float
    told: str
    link: str


FULL_HEAT = 1.0  # an average JCT that is longer than the best by this share of it, or more, has the full heat


def heat_map(board: Leaderboard, reports: Mapping[Player, str] = MappingProxyType({})) -> dict[str, list[HeatCell]]:
    """Return a row of cells for each policy, the best over all scenarios first; a cell for each scenario.

    `reports` contains the address of the report of a policy's runs on a scenario. Other cells lead to the scenario's
    table.
    """
    policies = dict.fromkeys(one.policy for found in board.standings.values() for one in found)
    order = [*board.overall, *(policy for policy in policies if policy not in board.overall)]
    rows: dict[str, list[HeatCell]] = {policy: [] for policy in order}
    for scenario, found in board.standings.items():
        known = {one.policy: one for one in found}
        for policy, row in rows.items():
            link = reports.get(Player(policy, scenario), f"#{scenario}")
            row.append(_heat(known.get(policy), f"{policy} on {scenario}", link))
    return rows


def _heat(one: Standing | None, name: str, link: str) -> HeatCell:
    if one is None or RANKED not in one.means:
        return HeatCell("–", 0.0, f"{name}: did not play", link)
    mean = one.means[RANKED]
    interval = "" if mean.estimate.low is None else f" [{mean.estimate.low:.3g}, {mean.estimate.high:.3g}]"
    words = change_in_words(one, RANKED)
    told = f"{name}: {JCT} {mean.estimate.value:.3g} h{interval}{f', {words}' if words else ''}"
    if one.left:
        return HeatCell("not all jobs", 0.0, f"{told}; {one.left} jobs not served", link)
    if RANKED in one.best_at:
        return HeatCell("tied" if RANKED in one.tied_at else "best", 0.0, told, link)
    if (change := one.changes.get(RANKED)) is None:
        return HeatCell("–", 0.0, told, link)
    share = change.estimate.value
    text = f"{'' if change.is_real else '≈ '}{change_text(share)}"
    return HeatCell(text, round(100 * min(max(share, 0.0) / FULL_HEAT, 1.0), 1), told, link)


class Point(NamedTuple):
    """A policy in a Pareto chart: its name, its place and the height of the name [pixels], its colour.

    `is_best` is true if no policy is better at both metrics.
    """

    policy: str
    x: float
    y: float
    text_y: float
    color: str
    is_best: bool


class Trade(NamedTuple):
    """A Pareto chart: the title of the metric up its y axis, its points, and the ticks along both axes."""

    title: str
    points: Sequence[Point]
    along: Sequence[tuple[float, str]]
    up: Sequence[tuple[float, str]]


SIDE, MARGIN = 400, 56  # size of a Pareto chart, and its margin [pixels]


def trades(board: Leaderboard) -> list[Trade]:
    """Return charts of the average JCT against other metrics: geometric means over the scenarios of the ranking."""
    found = []
    for metric in ("p99_fairness", "gpu_hours"):
        ratios = {policy: (board.overall[policy], ratio) for policy, ratio in _ratios(board, metric).items()}
        if len(ratios) > 1:
            found.append(_trade(board.metrics[metric].title, ratios))
    return found


def _ratios(board: Leaderboard, metric: str) -> dict[str, float]:
    """Return the geometric mean of a metric over its best value, by policy that has it on every compared scenario."""
    values = {
        policy: [
            one.means[metric].estimate.value
            for name in board.compared
            for one in board.standings[name]
            if one.policy == policy and metric in one.means
        ]
        for policy in board.overall
    }
    whole = {policy: found for policy, found in values.items() if len(found) == len(board.compared) and all(found)}
    if not whole:
        return {}
    best = [min(column) for column in zip(*whole.values(), strict=True)]
    return {
        policy: exp(sum(log(value / least) for value, least in zip(found, best, strict=True)) / len(best))
        for policy, found in whole.items()
    }


def _trade(title: str, ratios: Mapping[str, tuple[float, float]]) -> Trade:
    across, up = (max(1.1, *(min(pair[axis], FARTHEST) for pair in ratios.values())) for axis in (0, 1))
    colours = dict(zip(ratios, looks(list(ratios)), strict=True))
    points: list[Point] = []
    for policy, (x, y) in sorted(ratios.items(), key=lambda item: item[1][1]):
        left, top = _along(x, across), SIDE - _along(y, up)
        is_best = not any(_is_dominated((x, y), other) for other in ratios.values())
        points.append(
            Point(policy, left, top, _free_height(points, left, top), on_page(colours[policy].color), is_best)
        )
    shares = [part / STEPS_OF_TRADES for part in range(STEPS_OF_TRADES + 1)]
    along, upwards = ([1 + share * (most - 1) for share in shares] for most in (across, up))
    return Trade(
        title,
        points,
        [(_along(value, across), f"×{value:.2f}") for value in along],
        [(SIDE - _along(value, up), f"×{value:.2f}") for value in upwards],
    )


FARTHEST, STEPS_OF_TRADES, LINE_OF_TEXT, WIDTH_OF_TEXT = 4.0, 4, 14.0, 90.0
"""Ratio at the end of an axis, ticks of an axis, and the room of a name [pixels]."""


def _along(value: float, most: float) -> float:
    return round(MARGIN + (min(value, most) - 1) / (most - 1) * (SIDE - 2 * MARGIN), 1)


def _free_height(points: Sequence[Point], x: float, y: float) -> float:
    """Return the height of a name beside a point: above all names that are already there."""
    height = y + 4
    near = sorted((point.text_y for point in points if abs(point.x - x) < WIDTH_OF_TEXT), reverse=True)
    for taken in near:
        if abs(taken - height) < LINE_OF_TEXT:
            height = taken - LINE_OF_TEXT
    return round(height, 1)


def _is_dominated(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return other != one and all(theirs <= mine for mine, theirs in zip(one, other, strict=True))


def policy_title(label: str) -> str:
    """Return the title of a policy of an arena, as reports and figures have it. Settings stay behind it.

    >>> [policy_title(label) for label in ("fifo", "easy(overestimate=2)", "pollux-remaining", "las")]
    ['FIFO', 'EASY(overestimate=2)', 'pollux-remaining', 'LAS']
    """
    name, bracket, settings = label.partition("(")
    classes = {path.rpartition(".")[2] for path in shipped_classes()["policy"]}
    titles = {kind.lower(): POLICY_NAMES.get(kind, kind) for kind in classes}
    title = name.upper() if name in ACRONYMS else titles.get(name.replace("-", "").lower(), name)
    return f"{title}{bracket}{settings}"


ACRONYMS = {"drf", "edf", "jsa", "las", "qssf", "sjf"}  # entries of policies whose classes have longer names


def titles_of(board: Leaderboard) -> dict[str, str]:
    """Return the title of each policy of an arena. Policies whose titles would be equal keep their names."""
    played = {one.policy for found in board.standings.values() for one in found}
    titles = {policy: policy_title(policy) for policy in {*played, *(player.policy for player in board.absent)}}
    counts = Counter(titles.values())
    return {policy: title if counts[title] == 1 else policy for policy, title in titles.items()}


def titled(board: Leaderboard) -> Leaderboard:
    """Return a leaderboard with the titles of policies in place of the names of their entries."""
    titles = titles_of(board)
    return board._replace(
        standings={
            scenario: [one._replace(policy=titles[one.policy]) for one in found]
            for scenario, found in board.standings.items()
        },
        overall={titles[policy]: ratio for policy, ratio in board.overall.items()},
        flips=[flip._replace(first=titles[flip.first], second=titles[flip.second]) for flip in board.flips],
        absent={Player(titles[policy], scenario): why for (policy, scenario), why in board.absent.items()},
    )


def page(board: Leaderboard, suite: Suite, reports: Mapping[Player, str] = MappingProxyType({})) -> str:
    """Return the text of an HTML file that needs no network and no script. `reports` is as for `heat_map`."""
    names = titles_of(board)
    board = titled(board)
    reports = {Player(names[policy], scenario): address for (policy, scenario), address in reports.items()}
    titles = {scenario.name: scenario.title for scenario in suite.scenarios}
    panels = [_panel(name, titles[name], found, list(board.metrics)) for name, found in board.standings.items()]
    source = files("polluxsim.studies.arena").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True).from_string(source)
    players = list(dict.fromkeys(one.policy for found in board.standings.values() for one in found))
    return template.render(
        title=f"{len(players)} policies on {len(panels)} scenarios",
        what=f"The {suite.name} suite: every policy on every scenario, drawn with the same {len(suite.seeds)} seeds.",
        board=board,
        sentences=[*verdicts(board), *interval_words(board)],
        ranking_note=ranking_note(board),
        absences=list(absences(board)),
        panels=panels,
        scenarios=list(board.standings),
        heat=heat_map(board, reports),
        colours={policy: on_page(look.color) for policy, look in zip(players, looks(players), strict=True)},
        trades=trades(board),
        cell_words="A cell leads to the report of its runs." if reports else "A cell leads to the scenario's table.",
        side=SIDE,
        margin=MARGIN,
        name_of=name_of,
        jct=JCT,
        ranked=f"{JCT[0].upper()}{JCT[1:]}",
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
    ticks = [
        (place(number * step), f"+{100 * number * step:.0f} %" if number else "0 %")
        for number in range(int(reach / step) + 1)
    ]
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
