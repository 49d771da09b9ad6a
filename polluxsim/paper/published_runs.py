"""Published values over exactly the workloads that ran: used as they stand in files, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidInputError
from polluxsim.paper.published import UNITS, Kind, Rule
from polluxsim.shipped import shipped
from polluxsim.tables import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from polluxsim.paper.published import Published
    from polluxsim.paper.runs import Runs

VALUES = "published_runs.csv"
"""Values of single published workloads, for those who have some of the workloads."""

METRICS = ("average JCT", "99th percentile JCT", "mean JCT imagenet", "last completion")


def over_the_same_workloads(runs: Runs) -> list[Published]:
    """Return the experiment's published values over the workloads that ran; those of others are not judged.

    On generated workloads they are returned as they are: there the rules say how near ours have to be.
    """
    if not runs.inputs.is_measured or runs.experiment.own_workload:
        return list(runs.experiment.published)
    return [_over(runs, row) for row in runs.experiment.published]


def _over(runs: Runs, row: Published) -> Published:
    arms = [row.arm, *([row.against] if row.against else [])]
    ran = [runs.workloads(arm) for arm in arms]
    if not row.workloads or not all(ran) or all(numbers(row.workloads) == set(workloads) for workloads in ran):
        return row
    known = [runs.experiment.published_runs.get(arm, "") for arm in arms]
    means = [_mean(run, row.metric, workloads) for run, workloads in zip(known, ran, strict=True)]
    if not row.by_simulator or None in means or len(set(map(frozenset, ran))) > 1:
        return replace(row, measured=Rule(Kind.NONE), embedded=Rule(Kind.NONE))
    first, *against = [mean for mean in means if mean is not None]
    value = first / against[0] - 1 if against else first
    return replace(row, value=value / UNITS[row.unit], step=0.0, workloads=",".join(ran[0]))


def numbers(text: str) -> set[str]:
    """Return the workloads that "6" or "1-8" stands for.

    >>> sorted(numbers("1-3"))
    ['1', '2', '3']
    """
    first, _, last = text.partition("-")
    return set(map(str, range(int(first), int(last or first) + 1)))


def _mean(run: str, metric: str, workloads: tuple[str, ...]) -> float | None:
    """Return the mean over workloads of a published run's metric [s], None where one of them is not known."""
    known = [value for workload in workloads if (value := _values().get((run, workload, metric))) is not None]
    return sum(known) / len(known) if len(known) == len(workloads) else None


@cache
def _values() -> Mapping[tuple[str, str, str], float]:
    rows = read_rows(shipped("experiments") / VALUES, ("run", "workload", *METRICS))
    return {
        (row.text("run"), str(row.values["workload"]), metric): row.number(metric, above=0)
        for row in rows
        for metric in METRICS
        if row.values[metric]
    }


def published_times(artifact: Path, run: str, workload: str) -> Mapping[str, float]:
    """Return the completion time of every job of a published run [s], none where the artifact does not have it."""
    path = artifact / run / "summary.json"
    if not run or not path.is_file():
        return {}
    try:
        times = json.loads(path.read_text(encoding="utf-8"))["jcts"].get(f"workload-{workload}", {})
        return {str(job): float(seconds) for job, seconds in times.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path}: not a summary of the artifact's, {error!r}") from None
