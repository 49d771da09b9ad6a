"""Leaderboard of an arena: means with intervals, changes against the best policy over pairs, rankings that flip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import exp, isclose, log
from typing import Any, NamedTuple

import pandas as pd

from polluxsim.metrics.declared import MORE, NEITHER, Metric
from polluxsim.metrics.outcomes import counts_in_words, number_of
from polluxsim.statistics.estimates import ROUNDING, Measured, Sample, Samples
from polluxsim.statistics.metric_lines import METRICS, metric_of
from polluxsim.statistics.number_texts import change_text
from polluxsim.studies.arena.playing import Played, Player

RANKED = "avg_jct"  # the metric that decides the ranking
COMPARED = (RANKED, "p99_jct", "makespan", "p99_fairness", "gpu_hours", "restarts", "deadlines_met", "decision_time")
"""Metrics that are compared, besides those of the user."""

SHARE = replace(METRICS["deadlines_met"], unit="percent")
"""Declaration of `deadlines_met` in an arena, which has shares of the jobs in per cent."""

DECISION = Metric("decision time", "ms", formula="wall-clock time of the policy for each decision")
"""Declaration of `decision_time`."""

CLOCKS = ("decision_time",)  # metrics of wall-clock time. Files whose bytes must be reproducible do not contain them

NOT_SERVED = {"cut_off": "cut off", "rejected": "rejected", "failed": "failed"}
"""Metrics of the jobs that a policy did not serve, and what happened to them. The means of the policy leave these jobs
out, or count them with their age: it is listed after policies that served all jobs."""


class ArenaStanding(NamedTuple):
    """A policy on a scenario."""

    policy: str
    means: Mapping[str, Measured]  # over seeds, by metric, in the unit of its declaration
    changes: Mapping[str, Measured]  # against the best policy of a metric, as a share of its value, over pairs of seeds
    left: int  # number of jobs not served, over all seeds
    best_at: frozenset[str]  # metrics in which no policy has a better mean
    tied_at: frozenset[str] = frozenset()  # those of them in which another policy has an equal mean
    unserved: Mapping[str, int] = {}  # the jobs of `left`, by what happened to them

    @property
    def not_served(self) -> str:
        """Return the number of jobs not served and the reasons in words; "" if all jobs were served."""
        if not self.left:
            return ""
        return f"{number_of(self.left, 'job')} not served: {counts_in_words(self.unserved)}"


class Flip(NamedTuple):
    """A pair of policies of which each is better, by the intervals, on some scenario."""

    first: str
    second: str
    first_wins: tuple[str, float]  # scenario, and change of the mean JCT against the other policy (below 0)
    second_wins: tuple[str, float]


class Leaderboard(NamedTuple):
    """Standings, overall ranking and flips of an arena."""

    metrics: Mapping[str, Metric]  # declarations of the metrics that are compared
    standings: Mapping[str, Sequence[ArenaStanding]]  # by scenario, the best first
    # By policy: the geometric mean of its mean JCT over the best mean JCT, the smallest first. All of these means are
    # over the same scenarios, which are in `compared`.
    overall: Mapping[str, float]
    compared: Sequence[str]
    flips: Sequence[Flip]  # of the ranking, the clearest first
    absent: Mapping[Player, str]  # why policies could not play


def leaderboard(played: Played) -> Leaderboard:
    """Return the standings, the ranking and the flips of the policies that played."""
    metrics = {name: metric_of(name) for name in COMPARED}
    metrics |= {"deadlines_met": SHARE, "decision_time": DECISION, **played.metrics}
    scenarios = dict.fromkeys(row["scenario"] for row in played.runs)
    samples = {name: _samples(played, name, metrics) for name in scenarios}
    standings = {name: _standings(played, name, samples[name], metrics) for name in scenarios}
    overall, compared = _overall(standings)
    return Leaderboard(metrics, standings, overall, compared, _flips(samples, standings), played.absent)


def _samples(played: Played, scenario: str, metrics: Mapping[str, Metric]) -> Samples:
    """Return the metrics of the runs of a scenario. Runs with equal seeds are pairs."""
    samples = []
    for row in played.runs:
        if row["scenario"] != scenario:
            continue
        for metric, declared in metrics.items():
            # A run may lack a metric, like the times of jobs if none completed.
            if row.get(metric) is None:
                continue
            if metric == "deadlines_met" and not row["deadlines"]:
                continue  # no deadline could be met
            value = float(row[metric]) / declared.factor
            samples.append(Sample(metric, row["policy"], value, str(row["seed"]), row["seed"]))
    return Samples(samples)


def _standings(played: Played, scenario: str, samples: Samples, metrics: Mapping[str, Metric]) -> list[ArenaStanding]:
    """Return the policies on a scenario, the best first."""
    unserved: dict[str, Counter[str]] = {}
    for row in played.runs:
        if row["scenario"] == scenario:
            counts = {words: row.get(name) or 0 for name, words in NOT_SERVED.items()}
            unserved.setdefault(row["policy"], Counter()).update(counts)
    num_unserved = {policy: counts.total() for policy, counts in unserved.items()}
    means = {policy: _means(samples, policy, metrics) for policy in unserved}
    best = {name: _best(means, name, metric, num_unserved) for name, metric in metrics.items()}
    best_at = {policy: _best_at(means, best, policy) for policy in means}
    num_best = Counter[str]()  # policies with the best value, by metric
    for names in best_at.values():
        num_best.update(names)
    standings = []
    for policy, means_of_policy in means.items():
        standings.append(
            ArenaStanding(
                policy,
                means_of_policy,
                changes=dict(_changes(samples, policy, best)),
                left=num_unserved[policy],
                best_at=best_at[policy],
                tied_at=frozenset(name for name in best_at[policy] if num_best[name] > 1),
                unserved=unserved[policy],
            )
        )
    # A policy that left jobs over follows all others: its mean does not count these jobs, and would look too good.
    return sorted(standings, key=lambda one: (one.left > 0, _value(one.means, RANKED)))


def _best_at(
    means: Mapping[str, Mapping[str, Measured]], best: Mapping[str, str | None], policy: str
) -> frozenset[str]:
    """Return the metrics of which a policy has the best mean, or an equal one. `best` has the best policies."""
    names = set()
    for name, best_policy in best.items():
        if best_policy and _are_equal(means[policy], means[best_policy], name):
            names.add(name)
    return frozenset(names)


def _means(samples: Samples, policy: str, metrics: Mapping[str, Metric]) -> dict[str, Measured]:
    """Return the known means of a policy, by metric."""
    means = {}
    for name, metric in metrics.items():
        low, high = metric.limits
        if metric is SHARE:  # its limits are those of a number of jobs
            low = 0.0
            high = 100.0
        mean = samples.mean(name, policy, low, high)
        if mean is not None:
            means[name] = mean
    return means


def _are_equal(means: Mapping[str, Measured], others: Mapping[str, Measured], metric: str) -> bool:
    """Return whether two policies have equal means of a metric, besides rounding."""
    return isclose(_value(means, metric), _value(others, metric), rel_tol=ROUNDING)


def is_as_good(one: ArenaStanding, other: ArenaStanding) -> bool:
    """Return whether two policies share a place in the ranking of a scenario: their mean JCTs are equal."""
    return (one.left > 0) == (other.left > 0) and _are_equal(one.means, other.means, RANKED)


def _best(
    means: Mapping[str, Mapping[str, Measured]], name: str, metric: Metric, num_unserved: Mapping[str, int]
) -> str | None:
    """Return the policy with the best mean of a metric, among the policies that served every job if there are any.

    Return None for a metric without a better direction. Deadlines that are met count for all policies.
    """
    if metric.better == NEITHER:
        return None
    candidates = [policy for policy in means if name in means[policy]]
    if metric is not SHARE:
        # Policies that left jobs over have lower times, because these jobs do not count.
        with_all_jobs = [policy for policy in candidates if not num_unserved[policy]]
        candidates = with_all_jobs or candidates
    sign = -1 if metric.better == MORE else 1
    return min(candidates, key=lambda policy: sign * _value(means[policy], name), default=None)


def _changes(samples: Samples, policy: str, best: Mapping[str, str | None]) -> Iterator[tuple[str, Measured]]:
    """Yield the known changes of a policy against the best policy of each metric, without wall-clock times."""
    for metric, other in best.items():
        if other is None or other == policy or metric in CLOCKS:
            continue
        change = samples.change(metric, policy, other)
        if change is not None and change.is_known:
            yield metric, change


def _value(means: Mapping[str, Measured], metric: str) -> float:
    """Return the mean of a metric; ∞ if it is unknown."""
    if metric not in means:
        return float("inf")
    return means[metric].estimate.value


def _overall(standings: Mapping[str, Sequence[ArenaStanding]]) -> tuple[dict[str, float], list[str]]:
    """Return the geometric means by policy, and the scenarios that these means cover.

    These are the scenarios in which every policy of the ranking served every job. While no scenario is left, remove the
    policy that served every job in the fewest scenarios.
    """
    served: dict[str, dict[str, float]] = {}  # mean JCTs of policies that served every job, by scenario
    counts = Counter[str]()  # of scenarios in which a policy served every job
    for name, standings_here in standings.items():
        served[name] = {}
        for standing in standings_here:
            if not standing.left and RANKED in standing.means:
                served[name][standing.policy] = _value(standing.means, RANKED)
        counts.update(served[name].keys())

    def served_by_all(policies: Sequence[str]) -> list[str]:
        return [name for name, jcts in served.items() if jcts.keys() >= set(policies)]

    ranked = [policy for policy, _ in counts.most_common()]
    compared = served_by_all(ranked)
    while ranked and not compared:
        ranked.pop()  # the last one served every job in the fewest scenarios
        compared = served_by_all(ranked)
    values = {}
    for policy in ranked:
        values[policy] = [served[name][policy] for name in compared]
    ratios = ratios_to_best(values)
    best_first = sorted(ratios.items(), key=lambda item: item[1])
    return dict(best_first), compared


def ratios_to_best(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the geometric mean of each policy's values over the best values. A policy has a value per scenario.

    >>> ratios_to_best({"fifo": [4.0, 4.0], "srtf": [4.0, 1.0]})
    {'fifo': 2.0, 'srtf': 1.0}
    """
    best = list(map(min, zip(*values.values(), strict=True)))  # by scenario
    ratios = {}
    for policy, values_of_policy in values.items():
        # Geometric means of ratios rank the policies in the same way whatever the ratios are relative to.
        logs = [log(value / smallest) for value, smallest in zip(values_of_policy, best, strict=True)]
        ratios[policy] = exp(sum(logs) / len(best))
    return ratios


def _flips(samples: Mapping[str, Samples], standings: Mapping[str, Sequence[ArenaStanding]]) -> list[Flip]:
    """Return the pairs of policies that change places between scenarios, the clearest first."""
    wins: dict[tuple[str, str], tuple[str, float]] = {}  # the clearest scenario and its change, by winner and loser
    for name, standings_here in standings.items():
        policies = [standing.policy for standing in standings_here if not standing.left]
        # The standings begin with the best, so the first policy of a pair is the winner.
        for winner, loser in combinations(policies, 2):
            change = samples[name].change(RANKED, winner, loser)
            if change is None or not change.is_real:
                continue
            if change_text(change.estimate.value).startswith("±"):  # below the printed digits
                continue
            clearest = wins.get((winner, loser), ("", 0.0))[1]
            if change.estimate.value < clearest:
                wins[winner, loser] = (name, change.estimate.value)
    flips = []
    for (first, second), first_wins in wins.items():
        second_wins = wins.get((second, first))
        # Each pair once
        if first < second and second_wins is not None:
            flips.append(Flip(first, second, first_wins, second_wins))
    # A flip is as clear as the smaller one of its two changes, which is the one closer to 0.
    return sorted(flips, key=lambda flip: max(flip.first_wins[1], flip.second_wins[1]))


def frame_of_leaderboard(board: Leaderboard) -> pd.DataFrame:
    """Return a row for each scenario, policy and metric: mean and change against the best, with 95 % intervals.

    It contains no times of the machine's clock. A policy without results has a row with the reason.
    """
    rows: list[dict[str, Any]] = []
    for scenario, standings in board.standings.items():
        for standing in standings:
            for metric, mean in standing.means.items():
                if metric in CLOCKS:
                    continue
                row = {
                    "scenario": scenario,
                    "rank": _rank(standing, standings),
                    "policy": standing.policy,
                    "metric": metric,
                    "not_served": standing.left,
                    "mean": mean.estimate.value,
                    "low": mean.estimate.low,
                    "high": mean.estimate.high,
                    "seeds": mean.num_units,
                    "is_best": metric in standing.best_at,
                }
                rows.append(row | _change(standing.changes.get(metric)))
    for player, why in board.absent.items():
        rows.append({"scenario": player.scenario, "policy": player.policy, "absent": why})
    frame = pd.DataFrame(rows)
    if "absent" not in frame:
        frame = frame.assign(absent=None)  # all tables have the same columns, so that they can be joined
    return frame


def _rank(one: ArenaStanding, standings: Sequence[ArenaStanding]) -> int:
    """Return the place of a policy among the policies of a scenario, from 1.

    Policies with equal mean JCTs share the first one of their places.
    """
    first_equal = next(index for index, other in enumerate(standings) if is_as_good(one, other))
    return 1 + first_equal


def _change(change: Measured | None) -> dict[str, object]:
    """Return the columns of a change against the best policy; empty without one."""
    parts = ("change", "change_low", "change_high", "is_real")
    if change is None:
        return dict.fromkeys(parts)
    return dict(zip(parts, (*change.estimate, change.is_real), strict=True))
