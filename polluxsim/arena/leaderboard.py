"""Who is best at what: means with intervals, changes against the best by pairs, and rankings that flip."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from polluxsim.look.metric_names import factor_of
from polluxsim.look.samples import Sample, Samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.arena.playing import Played, Player
    from polluxsim.look.samples import Measured

RANKED = "avg_jct"
METRICS = (RANKED, "p99_jct", "makespan", "p99_fairness", "gpu_hours", "restarts", "deadlines_met", "decision_time")
"""What is compared; the first decides the ranking."""

CLOCKS = ("decision_time",)
"""Those that are of the clock, and so in no file that is to be the same twice."""

LARGEST = {"deadlines_met": 100.0}
"""Largest possible values of metrics [%]."""

LEAVES_JOBS = ("cut_off", "rejected")
"""Jobs that a policy did not serve; its means are over the others, so it is listed after all that served everybody."""


class Standing(NamedTuple):
    """A policy on a scenario."""

    policy: str
    means: Mapping[str, Measured]  # by metric, over seeds, in the unit it is shown in
    # Against the best of that metric, by pairs of seeds, as a share of it; without the best.
    changes: Mapping[str, Measured]
    left: int  # jobs that it did not serve, over all seeds
    best_at: frozenset[str]  # metrics of which nobody has a better mean


class Flip(NamedTuple):
    """A pair of policies of which each is really better somewhere: shares that the better one has less there."""

    first: str
    second: str
    first_wins: tuple[str, float]
    second_wins: tuple[str, float]


class Leaderboard(NamedTuple):
    """All of an arena."""

    standings: Mapping[str, Sequence[Standing]]  # by scenario, the best first
    # By policy: the geometric mean of how many times the best's mean JCT it has, and the scenarios that it is of, the
    # least first; of those that served every job in one scenario or more. Who is in fewer is judged by these.
    overall: Mapping[str, tuple[float, int]]
    flips: Sequence[Flip]  # of the ranking, the clearest first
    absent: Mapping[Player, str]  # why policies could not play


def leaderboard(played: Played) -> Leaderboard:
    """Return who is best at what."""
    samples = {name: _samples(played, name) for name in dict.fromkeys(row["scenario"] for row in played.runs)}
    standings = {name: _standings(played, name, found) for name, found in samples.items()}
    return Leaderboard(standings, _overall(standings), _flips(samples, standings), played.absent)


def _samples(played: Played, scenario: str) -> Samples:
    return Samples(
        Sample(metric, row["policy"], float(row[metric]) / factor_of(metric), str(row["seed"]), row["seed"])
        for row in played.runs
        for metric in METRICS
        if row["scenario"] == scenario
        and row.get(metric) is not None
        and (metric != "deadlines_met" or row["deadlines"])
    )


def _standings(played: Played, scenario: str, samples: Samples) -> list[Standing]:
    left = Counter[str]()
    for row in played.runs:
        if row["scenario"] == scenario:
            left[row["policy"]] += sum(row.get(name) or 0 for name in LEAVES_JOBS)
    means = {
        policy: {
            metric: mean
            for metric in METRICS
            if (mean := samples.mean(metric, policy, most=LARGEST.get(metric, inf))) is not None
        }
        for policy in left
    }
    best = {metric: _best(means, metric, left) for metric in METRICS}
    found = []
    for policy, known in means.items():
        best_at = {
            metric for metric, other in best.items() if other and _value(known, metric) == _value(means[other], metric)
        }
        found.append(Standing(policy, known, dict(_changes(samples, policy, best)), left[policy], frozenset(best_at)))
    return sorted(found, key=lambda one: (one.left > 0, _value(one.means, RANKED)))


def _best(means: Mapping[str, Mapping[str, Measured]], metric: str, left: Mapping[str, int]) -> str | None:
    """Return who has the least of a metric, or met most deadlines; of those that served everybody, if there are any."""
    sign = -1 if metric == "deadlines_met" else 1
    known = [policy for policy in means if metric in means[policy]]
    fair = [policy for policy in known if not left[policy] or metric == "deadlines_met"] or known
    return min(fair, key=lambda policy: sign * _value(means[policy], metric), default=None)


def _changes(samples: Samples, policy: str, best: Mapping[str, str | None]) -> Iterator[tuple[str, Measured]]:
    for metric, other in best.items():
        if other is None or other == policy or metric in CLOCKS:
            continue
        change = samples.change(metric, policy, other)
        if change is not None and change.is_known:
            yield metric, change


def _value(means: Mapping[str, Measured], metric: str) -> float:
    return means[metric].estimate.value if metric in means else float("inf")


def _overall(standings: Mapping[str, Sequence[Standing]]) -> dict[str, tuple[float, int]]:
    logs: dict[str, list[float]] = {}
    for found in standings.values():
        served = [one for one in found if not one.left and RANKED in one.means]
        for one in served:
            logs.setdefault(one.policy, []).append(log(_value(one.means, RANKED) / _value(served[0].means, RANKED)))
    ratios = {policy: (exp(sum(found) / len(found)), len(found)) for policy, found in logs.items()}
    return dict(sorted(ratios.items(), key=lambda item: item[1]))


def _flips(samples: Mapping[str, Samples], standings: Mapping[str, Sequence[Standing]]) -> list[Flip]:
    served = {name: [one.policy for one in found if not one.left] for name, found in standings.items()}
    wins: dict[tuple[str, str], tuple[str, float]] = {}
    for name, policies in served.items():
        for winner, loser in combinations(policies, 2):
            change = samples[name].change(RANKED, winner, loser)
            if change is None or not change.is_real:
                continue
            if change.estimate.value < wins.get((winner, loser), ("", 0.0))[1]:
                wins[winner, loser] = name, change.estimate.value
    found = [
        Flip(first, second, wins[first, second], wins[second, first])
        for first, second in wins
        if first < second and (second, first) in wins
    ]
    return sorted(found, key=lambda flip: max(flip.first_wins[1], flip.second_wins[1]))


def as_frame(board: Leaderboard) -> pd.DataFrame:
    """Return a row for each scenario, policy and metric: mean and change against the best, with 95 % intervals.

    Nothing of the clock is in it. Policies that could not play have a row that says why.
    """
    rows = [
        {"scenario": name, "rank": rank, "policy": one.policy, "metric": metric, "not_served": one.left}
        | dict(zip(("mean", "low", "high"), mean.estimate, strict=True))
        | {"seeds": mean.num_units, "is_best": metric in one.best_at}
        | _change(one.changes.get(metric))
        for name, found in board.standings.items()
        for rank, one in enumerate(found, start=1)
        for metric, mean in one.means.items()
        if metric not in CLOCKS
    ]
    rows += [{"scenario": one.scenario, "policy": one.policy, "absent": why} for one, why in board.absent.items()]
    frame = pd.DataFrame(rows)
    return frame if "absent" in frame else frame.assign(absent=None)


def _change(change: Measured | None) -> dict[str, object]:
    parts = ("change", "change_low", "change_high", "is_real")
    if change is None:
        return dict.fromkeys(parts)
    return dict(zip(parts, (*change.estimate, change.is_real), strict=True))
