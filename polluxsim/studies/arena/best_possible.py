"""The best possible values of metrics on the scenarios of an arena, and the gaps of the policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from polluxsim.look.best_possible import gap_in_words
from polluxsim.records.bounds import RunBound
from polluxsim.records.storage import read_run
from polluxsim.run.bounds import BoundRequest, bounds_of_runs, store
from polluxsim.statistics.metric_lines import METRICS, metric_of
from polluxsim.statistics.number_texts import number_text
from polluxsim.studies.arena.playing import RUNS, Played, Player
from polluxsim.studies.arena.words import policy_title

BOUNDED = ("avg_jct", "p99_jct", "makespan")  # metrics of an arena with a bound


class GapToBound(NamedTuple):
    """A metric of a policy on a scenario and its bound, as means over the seeds in the unit of tables."""

    here: float  # the metric
    best: float  # the bound

    @property
    def gap(self) -> float:
        """Return the distance of the policy from the bound, as a share of the bound."""
        return self.here / self.best - 1


Bounds = Mapping[tuple[Player, str], GapToBound]
"""Best possible values by policy, scenario and metric."""


def best_possible(played: Played, folder: Path) -> Bounds:
    """Compute and store the bounds of all runs of an arena in a folder, and return their means over seeds.

    A metric without a bound in some run of a policy on a scenario is left out there, as is a bound of 0.
    """
    runs = [read_run(folder / RUNS / row["folder"]) for row in played.runs]
    bounds = bounds_of_runs(runs, BoundRequest(BOUNDED))
    by_player: dict[Player, list[RunBound]] = {}
    for row, run, bound in zip(played.runs, runs, bounds, strict=True):
        store(run, bound)
        by_player.setdefault(Player(row["policy"], row["scenario"]), []).append(bound)
    best: dict[tuple[Player, str], GapToBound] = {}
    for player, of_player in by_player.items():
        for metric in BOUNDED:
            # A mean over some of the seeds could not be compared with the mean of the metric.
            if all(metric in bound.metrics and metric in bound.values for bound in of_player):
                factor = metric_of(metric).factor
                here = fmean(bound.values[metric] for bound in of_player) / factor
                least = fmean(bound.metrics[metric].value for bound in of_player) / factor
                # A gap is relative to the bound, so a bound of 0 has none.
                if least > 0:
                    best[player, metric] = GapToBound(here, least)
    return best


def with_bounds(frame: pd.DataFrame, bounds: Bounds) -> pd.DataFrame:
    """Return the table of an arena with the columns `best_possible` and `gap`, empty for metrics without a bound."""
    values = []
    gaps = []
    for row in frame.to_dict("records"):
        bound = bounds.get((Player(row["policy"], row["scenario"]), str(row.get("metric"))))
        values.append(None if bound is None else bound.best)
        gaps.append(None if bound is None else bound.gap)
    return frame.assign(best_possible=pd.array(values, "Float64"), gap=pd.array(gaps, "Float64"))


def sentences_on_bounds(bounds: Bounds) -> Iterator[str]:
    """Yield a sentence for each scenario with a bound: the best possible average JCT, and the gaps of the policies."""
    jct = METRICS["avg_jct"]
    by_scenario: dict[str, dict[str, GapToBound]] = {}
    for (player, metric), bound in bounds.items():
        if metric == "avg_jct":
            by_scenario.setdefault(player.scenario, {})[policy_title(player.policy)] = bound
    for scenario, of_policies in by_scenario.items():
        ordered = sorted(of_policies.items(), key=lambda item: item[1].gap)
        # Policies have different bounds if they left different jobs unserved.
        least = {number_text(bound.best) for bound in of_policies.values()}
        gaps = ", ".join(f"{policy} {gap_in_words(bound.gap)}" for policy, bound in ordered)
        values = " or ".join(sorted(least))
        yield f"On {scenario}, no schedule has a shorter {jct.title} than {values} {jct.unit}. Above it are: {gaps}."
