"""Show an arena in sentences, as Markdown, and as one HTML page."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, StrictUndefined

from polluxsim import __version__
from polluxsim.look.settings_tables import QUANTITY, interval_notes, measured_change
from polluxsim.look.tables import markdown
from polluxsim.look.why.phrases import listed
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT
from polluxsim.statistics.metric_lines import change_text
from polluxsim.studies.arena.leaderboard import CLOCKS, RANKED, SHARE, is_as_good

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from polluxsim.statistics.estimates import Estimate
    from polluxsim.studies.arena.leaderboard import Flip, Leaderboard, Standing
    from polluxsim.studies.arena.playing import Suite

MOST_FLIPS = 8
"""Of them, told."""

MOST_NAMES = 6
"""Of policies that are not told apart from the best, named."""


def name_of(board: Leaderboard, name: str) -> str:
    """Return a metric's title, unit and direction, for a heading."""
    if name in CLOCKS:
        return "decision [ms]"
    metric = board.metrics[name]
    return f"{f'{metric.title} [%]' if metric is SHARE else metric.heading}{metric.arrow}"


def verdicts(board: Leaderboard) -> Iterator[str]:
    """Yield sentences on the best policies of each scenario, and on rankings that flip.

    Below six seeds they say only which policies are tied, because their mean JCTs are equal.
    """
    leaders: dict[tuple[str, ...], list[str]] = {}
    for scenario, found in board.standings.items():
        best = tuple(one.policy for one in found if is_as_good(one, found[0]))
        if len(best) > 1 or _is_judged(found):
            leaders.setdefault(best, []).append(scenario)
    for best, scenarios in sorted(leaders.items(), key=lambda item: -len(item[1])):
        what = f"has the least mean JCT on {listed(scenarios)}"
        if len(best) > 1:
            what = f"are tied for the least mean JCT on {listed(scenarios)}"
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
    """Return what the ranking over all scenarios covers, and the policies that it leaves out."""
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
    wins = f"{flip.first} beats {flip.second} on {where} ({change_text(much)} mean JCT)"
    return f"The ranking flips: {wins}, and loses to it on {elsewhere} ({flip.second} {change_text(more)})."


def mean_in_words(estimate: Estimate, metric: str) -> str:
    """Return a mean as the tables show it."""
    value = estimate.value * (1000 if metric in CLOCKS else 1)
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def change_in_words(one: Standing, metric: str) -> str:
    """Return a change against the best, with its interval.

    The best policy has "best", or "tied" if another policy has an equal value. "≈" stands before what may be chance.
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
    ratios = [[policy, f"{ratio:.2f}"] for policy, ratio in board.overall.items()]
    parts = [ranking_note(board), "", markdown([["policy", "times the best's mean JCT"], *ratios]), ""]
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
    source = files("polluxsim.studies.arena").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True).from_string(source)
    count = len({one.policy for found in board.standings.values() for one in found})
    return template.render(
        title=f"{count} policies on {len(panels)} scenarios",
        what=f"The {suite.name} suite: every policy on every scenario, drawn with the same {len(suite.seeds)} seeds.",
        board=board,
        sentences=[*verdicts(board), *interval_words(board)],
        ranking_note=ranking_note(board),
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
