"""Sentences and Markdown about an arena: verdicts, notes, cells of tables, and the titles of policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from polluxsim.common.shipped import shipped_classes
from polluxsim.look.settings_tables import QUANTITY, interval_notes, measured_change
from polluxsim.look.tables import markdown
from polluxsim.look.why.phrases import listed
from polluxsim.records.folders import POLICY_NAMES
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, Estimate
from polluxsim.statistics.metric_lines import METRICS, change_text
from polluxsim.studies.arena.leaderboard import CLOCKS, RANKED, SHARE, Flip, Leaderboard, Standing, is_as_good
from polluxsim.studies.arena.playing import Player

JCT = METRICS[RANKED].title  # name of the metric that decides the ranking
MOST_FLIPS = 8  # largest number of sentences about pairs of policies that change places
MOST_NAMES = 6  # largest number of names in the sentence about policies that may be as good as the best

ACRONYMS = {"drf", "edf", "jsa", "las", "qssf", "sjf"}  # entries of policies whose classes have longer names


def name_of(board: Leaderboard, name: str) -> str:
    """Return a metric's title, unit and direction, for a heading."""
    metric = board.metrics[name]
    return f"{f'{metric.title} [%]' if metric is SHARE else metric.heading}{metric.arrow}"


def verdicts(board: Leaderboard) -> Iterator[str]:
    """Yield sentences on the best policies of each scenario, and on rankings that flip.

    With fewer than six seeds, they only name policies that are tied, because their average JCTs are equal.
    """
    leaders: dict[tuple[str, ...], list[str]] = {}
    for scenario, found in board.standings.items():
        best = tuple(one.policy for one in found if is_as_good(one, found[0]))
        if len(best) > 1 or _is_judged(found):
            leaders.setdefault(best, []).append(scenario)
    for best, scenarios in sorted(leaders.items(), key=lambda item: -len(item[1])):
        verb = "has" if len(best) == 1 else "are tied for"
        rivals = _not_told_apart(board, scenarios)
        yield f"{listed(_named(best))} {verb} the least {JCT} on {listed(scenarios)}{rivals}."
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
    """Return the first names, and the number of the others."""
    more = [f"{len(policies) - MOST_NAMES} more"] if len(policies) > MOST_NAMES else []
    return [*policies[:MOST_NAMES], *more]


def ranking_note(board: Leaderboard) -> str:
    """Return a sentence on the scenarios that the overall ranking covers, and on the policies that it leaves out."""
    policies = dict.fromkeys(one.policy for found in board.standings.values() for one in found)
    if not board.overall:
        return "No ranking: no policy served every job on any scenario."
    left_out = [policy for policy in policies if policy not in board.overall]
    without = f", without {listed(left_out)}, which did not serve every job on these scenarios" if left_out else ""
    scenarios = listed(board.compared)
    return f"Geometric means over the scenarios on which every policy served every job ({scenarios}){without}."


def absences(board: Leaderboard) -> Iterator[str]:
    """Yield a sentence for each reason why a policy could not play."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for player, why in board.absent.items():
        reasons.setdefault((player.policy, why), []).append(player.scenario)
    for (policy, why), scenarios in reasons.items():
        where = "on any scenario" if 1 < len(scenarios) == len(board.standings) else listed(scenarios)
        yield f"{policy} did not play {where}: {why}."


def interval_words(board: Leaderboard) -> Iterator[str]:
    """Yield sentences on the meaning of the changes and of their intervals."""
    changes = [change for found in board.standings.values() for one in found for change in one.changes.values()]
    if changes:
        yield f"Changes are against the best policy of each metric (baseline): {QUANTITY}."
    yield from interval_notes(changes, "pairs", "log ratios")


def _not_told_apart(board: Leaderboard, scenarios: Sequence[str]) -> str:
    """Return the end of a sentence with the policies whose difference from the best may be chance, by scenario."""
    phrases = []
    for scenario in scenarios:
        first, *others = board.standings[scenario]
        served = [one for one in others if not one.left and not is_as_good(one, first)]
        changes = {one.policy: one.changes[RANKED] for one in served if RANKED in one.changes}
        if near := [policy for policy, change in changes.items() if change.is_judged and not change.is_real]:
            phrases.append(f"on {scenario} from {listed(_named(near))}")
    return f"; not told apart {listed(phrases)}" if phrases else ""


def _flip(flip: Flip) -> str:
    """Return a sentence on two policies that change places."""
    (where, much), (elsewhere, more) = flip.first_wins, flip.second_wins
    wins = f"{flip.first} beats {flip.second} on {where} ({change_text(much)} {JCT})"
    return f"The ranking flips: {wins}, and loses to it on {elsewhere} ({flip.second} {change_text(more)})."


def mean_in_words(estimate: Estimate, metric: str) -> str:
    """Return a mean in the unit of its declaration, with three digits or as a whole number; wall-clock times in ms."""
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
    """Return an arena as Markdown: the ranking, sentences, and a table for each scenario, without wall-clock times.

    `titles` are the titles of the scenarios by name.
    """
    board = titled(board)
    ratios = [[policy, f"{ratio:.2f}"] for policy, ratio in board.overall.items()]
    parts = [ranking_note(board), "", markdown([["policy", f"times the best's {JCT}"], *ratios]), ""]
    parts += [f"- {sentence}" for sentence in (*verdicts(board), *absences(board), *interval_words(board))]
    for scenario, found in board.standings.items():
        compared = [metric for metric in board.metrics if metric not in CLOCKS]
        shown = [metric for metric in compared if any(metric in one.means for one in found)]
        head = ["", *(name_of(board, metric) for metric in shown)]
        names = [f"{one.policy} ({one.not_served})" if one.left else one.policy for one in found]
        cells = ([_cell(one, metric) for metric in shown] for one in found)
        rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
        parts += ["", f"### {scenario}: {titles[scenario]}", "", markdown([head, *rows])]
    return "\n".join(parts) + "\n"


def _cell(one: Standing, metric: str) -> str:
    """Return the mean of a metric and its change against the best."""
    if metric not in one.means:
        return "–"
    parts = (mean_in_words(one.means[metric].estimate, metric), change_in_words(one, metric))
    return ", ".join(filter(None, parts))


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
