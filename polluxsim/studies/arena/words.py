"""Sentences and Markdown about an arena: verdicts, notes, cells of tables, and the titles of policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from polluxsim.common.phrases import listed
from polluxsim.common.policy_names import POLICY_NAMES
from polluxsim.common.shipped import shipped_classes
from polluxsim.look.settings_tables import QUANTITY, interval_notes, measured_change
from polluxsim.look.tables import markdown
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, Estimate, Measured
from polluxsim.statistics.metric_lines import METRICS, change_text
from polluxsim.studies.arena.leaderboard import CLOCKS, RANKED, SHARE, ArenaStanding, Flip, Leaderboard, is_as_good
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
    for scenario, standings in board.standings.items():
        best = tuple(one.policy for one in standings if is_as_good(one, standings[0]))
        if len(best) > 1 or _is_judged(standings):
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
            seeds_needed = f"{LEAST_FOR_VERDICT} seeds or more"
            yield f"No two policies change places between scenarios, by 95 % intervals of {seeds_needed}."
    else:
        most_seeds = max((_num_seeds(standings) for standings in board.standings.values()), default=0)
        needed = f"it needs {LEAST_FOR_VERDICT} seeds of each scenario"
        yield f"No verdict on differences: {needed}, and there are {most_seeds}."


def _is_judged(standings: Sequence[ArenaStanding]) -> bool:
    return _num_seeds(standings) >= LEAST_FOR_VERDICT


def _num_seeds(standings: Sequence[ArenaStanding]) -> int:
    """Return the largest number of seeds behind a mean JCT."""
    return max((one.means[RANKED].num_units for one in standings if RANKED in one.means), default=0)


def _named(policies: Sequence[str]) -> list[str]:
    """Return the first names, and the number of the others."""
    names = list(policies[:MOST_NAMES])
    if len(policies) > MOST_NAMES:
        names.append(f"{len(policies) - MOST_NAMES} more")
    return names


def ranking_note(board: Leaderboard) -> str:
    """Return a sentence on the scenarios that the overall ranking covers, and on the policies that it leaves out."""
    if not board.overall:
        return "No ranking: no policy served every job on any scenario."
    left_out = [policy for policy in policies_of(board) if policy not in board.overall]
    without = f", without {listed(left_out)}, which did not serve every job on these scenarios" if left_out else ""
    scenarios = listed(board.compared)
    return f"Geometric means over the scenarios on which every policy served every job ({scenarios}){without}."


def policies_of(board: Leaderboard) -> list[str]:
    """Return the policies that played, in the order of the first scenarios on which they did."""
    policies: dict[str, None] = {}
    for standings in board.standings.values():
        policies |= dict.fromkeys(standing.policy for standing in standings)
    return list(policies)


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
    changes = list[Measured]()
    for standings in board.standings.values():
        for standing in standings:
            changes += standing.changes.values()
    if changes:
        yield f"Changes are against the best policy of each metric (baseline): {QUANTITY}."
    yield from interval_notes(changes, "pairs", "log ratios")


def _not_told_apart(board: Leaderboard, scenarios: Sequence[str]) -> str:
    """Return the end of a sentence with the policies whose difference from the best may be chance, by scenario."""
    phrases = []
    for scenario in scenarios:
        first, *others = board.standings[scenario]
        near = []
        for standing in others:
            if standing.left or is_as_good(standing, first):
                continue
            change = standing.changes.get(RANKED)
            if change is not None and change.is_judged and not change.is_real:
                near.append(standing.policy)
        if near:
            phrases.append(f"on {scenario} from {listed(_named(near))}")
    return f"; not told apart {listed(phrases)}" if phrases else ""


def _flip(flip: Flip) -> str:
    """Return a sentence on two policies that change places."""
    where, much = flip.first_wins
    elsewhere, more = flip.second_wins
    wins = f"{flip.first} beats {flip.second} on {where} ({change_text(much)} {JCT})"
    return f"The ranking flips: {wins}, and loses to it on {elsewhere} ({flip.second} {change_text(more)})."


def mean_in_words(estimate: Estimate, metric: str) -> str:
    """Return a mean in the unit of its declaration, with three digits or as a whole number; wall-clock times in ms."""
    value = estimate.value * (1000 if metric in CLOCKS else 1)
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def change_in_words(one: ArenaStanding, metric: str) -> str:
    """Return a change against the best, with its interval.

    The best policy has "best", or "tied" if another policy has an equal value. The sign "≈" marks a difference that may
    be chance.
    """
    if metric in CLOCKS or metric not in one.means:
        return ""
    if metric in one.best_at:
        return "tied" if metric in one.tied_at else "best"
    change = one.changes.get(metric)
    if change is None:
        return ""
    return f"{'' if change.is_real else '≈ '}{measured_change(change)}"


def as_markdown(board: Leaderboard, titles: Mapping[str, str], more: Sequence[str] = ()) -> str:
    """Return an arena as Markdown: the ranking, sentences, and a table for each scenario, without wall-clock times.

    `titles` are the titles of the scenarios by name, and `more` are further sentences.
    """
    board = titled(board)
    ratios = [[policy, f"{ratio:.2f}"] for policy, ratio in board.overall.items()]
    parts = [ranking_note(board), "", markdown([["policy", f"times the best's {JCT}"], *ratios]), ""]
    parts += [f"- {sentence}" for sentence in (*verdicts(board), *absences(board), *interval_words(board), *more)]
    for scenario, standings in board.standings.items():
        metrics = []
        for metric in board.metrics:
            if metric not in CLOCKS and any(metric in standing.means for standing in standings):
                metrics.append(metric)
        lines = [[""] + [name_of(board, metric) for metric in metrics]]
        for standing in standings:
            name = f"{standing.policy} ({standing.not_served})" if standing.left else standing.policy
            lines.append([name] + [_cell(standing, metric) for metric in metrics])
        parts += ["", f"### {scenario}: {titles[scenario]}", "", markdown(lines)]
    return "\n".join(parts) + "\n"


def _cell(one: ArenaStanding, metric: str) -> str:
    """Return the mean of a metric and its change against the best."""
    if metric not in one.means:
        return "–"
    mean = mean_in_words(one.means[metric].estimate, metric)
    change = change_in_words(one, metric)
    return f"{mean}, {change}" if change else mean


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
    policies = set(policies_of(board))
    policies.update(player.policy for player in board.absent)
    titles = {policy: policy_title(policy) for policy in policies}
    counts = Counter(titles.values())
    return {policy: title if counts[title] == 1 else policy for policy, title in titles.items()}


def titled(board: Leaderboard) -> Leaderboard:
    """Return a leaderboard with the titles of policies in place of the names of their entries."""
    titles = titles_of(board)
    standings = {}
    for scenario, standings_here in board.standings.items():
        standings[scenario] = [standing._replace(policy=titles[standing.policy]) for standing in standings_here]
    return board._replace(
        standings=standings,
        overall={titles[policy]: ratio for policy, ratio in board.overall.items()},
        flips=[flip._replace(first=titles[flip.first], second=titles[flip.second]) for flip in board.flips],
        absent={Player(titles[policy], scenario): why for (policy, scenario), why in board.absent.items()},
    )
