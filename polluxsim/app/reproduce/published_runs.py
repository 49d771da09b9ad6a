"""Published values over exactly the workloads that ran, computed from the published completion time of every job."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from polluxsim.analysis.published import UNITS
from polluxsim.app.reproduce.completion_times import metrics
from polluxsim.app.reproduce.inputs import workload_set
from polluxsim.files import read_rows
from polluxsim.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.analysis.published import Published
    from polluxsim.app.reproduce.experiment import Arm
    from polluxsim.app.reproduce.runs import Runs

COLUMNS = ("policy", "workload_set", "workload", "job", "jct_s")
MEANS = "published_runs.csv"
"""Mean completion times of single published workloads, for those who have the workloads but not the published runs."""


def over_the_same_workloads(runs: Runs) -> list[Published]:
    """Return the experiment's published values, those of the published runs over the workloads that ran.

    A published value that is known over other workloads only has to be met as loosely as on generated ones.
    """
    if not runs.inputs.is_measured or runs.experiment.own_workload:
        return list(runs.experiment.published)
    ours = {arm.name: (arm, _workloads(runs, arm)) for arm in runs.arms}
    known = {name: _published_metrics(runs, *pair) for name, pair in ours.items()}
    values = []
    for row in runs.experiment.published:
        found = _value(row, known) if row.by_simulator else None
        if found is not None:
            values.append(replace(row, value=found / UNITS[row.unit], source="simulator, same workloads"))
        elif row.workloads and row.arm in ours and _numbers(row.workloads) != ours[row.arm][1]:
            values.append(replace(row, tolerance=row.embedded))
        else:
            values.append(row)
    return values


def _value(row: Published, known: dict[str, dict[str, float]]) -> float | None:
    value = known.get(row.arm, {}).get(row.metric)
    if value is None or not row.against:
        return value
    baseline = known.get(row.against, {}).get(row.metric)
    return None if baseline is None else value / baseline - 1


def _workloads(runs: Runs, arm: Arm) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.workload for run in runs.of(arm.name)))


def _numbers(text: str) -> tuple[str, ...]:
    """Return the workloads that "6" or "1-8" stands for."""
    first, _, last = text.partition("-")
    return tuple(map(str, range(int(first), int(last or first) + 1)))


def _published_metrics(runs: Runs, arm: Arm, workloads: tuple[str, ...]) -> dict[str, float]:
    """Return means over workloads of every metric that the published runs of an arm tell, none if they are unknown."""
    if not arm.is_plain or runs.inputs.workloads is None:
        return {}
    path = runs.inputs.workloads / "published" / "jct.csv"
    files = runs.inputs.files(arm)
    if path.is_file():
        jobs = [_jobs(path, arm, number, files[number]) for number in workloads]
        if all(table is not None for table in jobs):
            found = pd.DataFrame([metrics(table) for table in jobs if table is not None])
            return {str(name): float(value) for name, value in found.mean().items()}
    return _shipped_mean(arm, workloads)


def _jobs(path: Path, arm: Arm, number: str, workload: Path) -> pd.DataFrame | None:
    """Return a published run as a table of jobs, None if it has not been published."""
    found = _read_completion_times(path)
    key = (arm.policy, workload_set(arm), number)
    if key not in found:
        return None
    rows = read_rows(workload, ("name", "time", "application"))
    jobs = pd.DataFrame([(row.text("name"), row.number("time"), row.text("application")) for row in rows])
    jobs.columns = pd.Index(["job", "submit_time", "application"])
    jct = jobs["job"].map(found[key]).astype(float)
    return jobs.assign(jct=jct, completion_time=jobs["submit_time"] + jct)


@cache
def _read_completion_times(path: Path) -> dict[tuple[str, str, str], dict[str, float]]:
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in read_rows(path, COLUMNS):
        key = (row.text("policy"), row.text("workload_set"), str(row.values["workload"]))
        found.setdefault(key, {})[row.text("job")] = row.number("jct_s", above=0)
    return found


def _shipped_mean(arm: Arm, workloads: tuple[str, ...]) -> dict[str, float]:
    rows = read_rows(shipped("experiments") / MEANS, ("policy", "workload_set", "workload", "jct_s"))
    means = {
        str(row.values["workload"]): row.number("jct_s")
        for row in rows
        if row.values["policy"] == arm.policy and row.values["workload_set"] == workload_set(arm)
    }
    return {"average JCT": float(np.mean([means[name] for name in workloads]))} if set(workloads) <= set(means) else {}
