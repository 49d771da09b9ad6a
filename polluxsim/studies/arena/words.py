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
from polluxsim.statistics.metric_lines import METRICS
from polluxsim.statistics.number_texts import change_text
from polluxsim.studies.arena.leaderboard import CLOCKS, RANKED, SHARE, ArenaStanding, Flip, Leaderboard, is_as_good
from polluxsim.studies.arena.playing import Player

JCT = METRICS[RANKED].title  # name of the metric that decides the ranking
MOST_FLIPS = 8  # largest number of sentences about pairs of policies that change places
MOST_NAMES = 6  # largest number of names in the sentence about policies that may be as good as the best

ACRONYMS = {"drf", "edf", "jsa", "las", "qssf", "sjf"}  # entries of policies whose classes have longer names


def name_of(board: Leaderboard, name: str) -> str:
    """Return a metric's title, unit and direction, for a heading."""
    metric = board.metrics[name]
    heading = metric.heading
    if metric is SHARE:  # an arena has shares of the jobs where other tables have numbers of jobs
        heading = f"{metric.title} [%]"
    return f"{heading}{metric.arrow}"


def verdicts(board: Leaderboard) -> Iterator[str]:
    """Yield sentences on the best policies of each scenario, and on rankings that flip.

    With fewer than six seeds, they only name policies that are tied, because their average JCTs are equal, and say that
    differences are not judged.
    """
    # Scenarios with the same best policies have one sentence.
    leaders: dict[tuple[str, ...], list[str]] = {}
    for scenario, standings in board.standings.items():
        best = tuple(one.policy for one in standings if is_as_good(one, standings[0]))
        if len(best) > 1 or _is_judged(standings):
            leaders.setdefault(best, []).append(scenario)
    most_scenarios_first = sorted(leaders.items(), key=lambda item: -len(item[1]))
    for best, scenarios in most_scenarios_first:
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
    """Return whether a scenario has enough seeds for verdicts on differences."""
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
    scenarios = listed(board.compared)
    sentence = f"Geometric means over the scenarios on which every policy served every job ({scenarios})"
    left_out = [policy for policy in policies_of(board) if policy not in board.overall]
    if left_out:
        sentence += f", without {listed(left_out)}, which did not serve every job on these scenarios"
    return f"{sentence}."


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
        where = listed(scenarios)
        if 1 < len(scenarios) == len(board.standings):
            where = "on any scenario"
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
        standings = board.standings[scenario]
        best = standings[0]
        near = []
        for standing in standings[1:]:
            # A policy that left jobs over has no comparable mean, and an equal one is named as tied.
            if standing.left or is_as_good(standing, best):
                continue
            change = standing.changes.get(RANKED)
            if change is not None and change.is_judged and not change.is_real:
                near.append(standing.policy)
        if near:
            phrases.append(f"on {scenario} from {listed(_named(near))}")
    if not phrases:
        return ""
    return f"; not told apart {listed(phrases)}"


def _flip(flip: Flip) -> str:
    """Return a sentence on two policies that change places."""
    scenario, change = flip.first_wins
    other_scenario, other_change = flip.second_wins
    wins = f"{flip.first} beats {flip.second} on {scenario} ({change_text(change)} {JCT})"
    loses = f"loses to it on {other_scenario} ({flip.second} {change_text(other_change)})"
    return f"The ranking flips: {wins}, and {loses}."


def mean_in_words(estimate: Estimate, metric: str) -> str:
    """Return a mean in the unit of its declaration, with three digits or as a whole number; wall-clock times in ms."""
    value = estimate.value
    if metric in CLOCKS:
        value *= 1000  # [ms]
    if value >= 1000:
        return f"{value:,.0f}"  # three digits would be in the form 1.23e+03
    return f"{value:.3g}"


def change_in_words(one: ArenaStanding, metric: str) -> str:
    """Return a change against the best, with its interval; "" for a wall-clock time or an unknown change.

    The best policy has "best", or "tied" if another policy has an equal value. The sign "≈" marks a difference that may
    be chance.
    """
    if metric in CLOCKS or metric not in one.means:
        return ""
    if metric in one.tied_at:
        return "tied"
    if metric in one.best_at:
        return "best"
    change = one.changes.get(metric)
    if change is None:
        return ""
    if not change.is_real:
        return f"≈ {measured_change(change)}"
    return measured_change(change)


def as_markdown(board: Leaderboard, titles: Mapping[str, str], more: Sequence[str] = ()) -> str:
    """Return an arena as Markdown: the ranking, sentences, and a table for each scenario, without wall-clock times.

    `titles` are the titles of the scenarios by name, and `more` are further sentences.
    """
    board = titled(board)
    ranking = [["policy", f"times the best's {JCT}"]]
    for policy, ratio in board.overall.items():
        ranking.append([policy, f"{ratio:.2f}"])
    parts = [ranking_note(board), "", markdown(ranking), ""]
    for sentence in (*verdicts(board), *absences(board), *interval_words(board), *more):
        parts.append(f"- {sentence}")
    for scenario, standings in board.standings.items():
        table = markdown(_scenario_rows(board, standings))
        parts += ["", f"### {scenario}: {titles[scenario]}", "", table]
    return "\n".join(parts) + "\n"


def _scenario_rows(board: Leaderboard, standings: Sequence[ArenaStanding]) -> list[list[str]]:
    """Return the headings and the rows of the table of a scenario, without metrics that no policy has there."""
    metrics = []
    for metric in board.metrics:
        has_values = any(metric in standing.means for standing in standings)
        if metric not in CLOCKS and has_values:
            metrics.append(metric)
    rows = [[""] + [name_of(board, metric) for metric in metrics]]
    for standing in standings:
        name = standing.policy
        if standing.left:
            name = f"{name} ({standing.not_served})"
        rows.append([name] + [_cell(standing, metric) for metric in metrics])
    return rows


def _cell(one: ArenaStanding, metric: str) -> str:
    """Return the mean of a metric and its change against the best."""
    if metric not in one.means:
        return "–"
    mean = mean_in_words(one.means[metric].estimate, metric)
    change = change_in_words(one, metric)
    if not change:
        return mean
    return f"{mean}, {change}"


def policy_title(label: str) -> str:
    """Return the title of a policy of an arena, as reports and figures have it. Settings stay behind it.

    >>> [policy_title(label) for label in ("fifo", "easy(overestimate=2)", "pollux-remaining", "las")]
    ['FIFO', 'EASY(overestimate=2)', 'pollux-remaining', 'LAS']
    """
    name, bracket, settings = label.partition("(")
    if name in ACRONYMS:
        title = name.upper()
    else:
        # An entry has the name of its class in lower case, with hyphens between the words.
        titles = {}
        for path in shipped_classes()["policy"]:
            class_name = path.rpartition(".")[2]
            titles[class_name.lower()] = POLICY_NAMES.get(class_name, class_name)
        title = titles.get(name.replace("-", "").lower(), name)
    return f"{title}{bracket}{settings}"


def titles_of(board: Leaderboard) -> dict[str, str]:
    """Return the title of each policy of an arena. Policies whose titles would be equal keep their names."""
    policies = set(policies_of(board))
    policies.update(player.policy for player in board.absent)
    titles = {policy: policy_title(policy) for policy in policies}
    # Equal titles would hide which policy is which.
    counts = Counter(titles.values())
    for policy, title in titles.items():
        if counts[title] > 1:
            titles[policy] = policy
    return titles


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
