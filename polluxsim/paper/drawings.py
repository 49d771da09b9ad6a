"""What experiments draw, by name: a figure of finished runs, or of their comparison with what was published."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING

import pandas as pd

from polluxsim.applications.card_profile import CardProfile
from polluxsim.folders import POLICY
from polluxsim.look.groups import Group
from polluxsim.look.plot import batch_sizes, cdf, job_life, nodes, throughput, usage
from polluxsim.look.plot.sweep import sweep
from polluxsim.paper.dumbbell import dumbbell
from polluxsim.paper.phases import SMALL, choose
from polluxsim.paper.profile_measures import SHOWN, fits
from polluxsim.storage import flat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.figure import Figure

    from polluxsim.paper.runs import Runs
    from polluxsim.paper.verdicts import Finding

LOAD = "workload.load"
"""Stands for the number of jobs, which workloads in files do not tell in their settings."""

LINES = {LOAD: [POLICY], "engine.interference": ["policy.avoid_interference"]}
"""Settings that the runs of a line have in common, by the setting along the axis."""


def throughput_fits(runs: Runs) -> Figure:
    """Draw throughput by GPUs and by batch size, as the profile has it and as fitted."""
    points = "card" if all(isinstance(profile, CardProfile) for profile in runs.profiles.values()) else "measured"
    return throughput.throughput(list(fits(runs.profiles).values()), (points, "throughput model fitted to it"))


def usage_over_time(runs: Runs) -> Figure | None:
    """Draw GPUs in use and their efficiency in bins of 30 minutes, for the first workload."""
    if not runs.made:
        return None
    return usage.usage(runs.groups(workload=runs.made[0].workload, seed=runs.made[0].seed))


def jobs_under_contention(runs: Runs) -> Figure | None:
    """Draw the large job and the two smaller ones submitted next, of the first run that has a large one."""
    for made in runs.made:
        run = made.read()
        if (chosen := choose(run, runs.profiles)) is not None:
            records = run.result.job_records
            later = [record.job for record in records if record.application == SMALL and record.gpu_seconds]
            group = Group("Pollux", "Pollux", (run,))
            return job_life.job_life(*job_life.lives_of([group], [chosen.record.job, *later[:2]], [runs.profiles]))
    return None


def along_the_axis(runs: Runs) -> Figure | None:
    """Draw the average completion time against the experiment's axis."""
    if not runs.made:
        return None
    axis = LOAD if runs.experiment.axis == "load" else runs.experiment.axis
    rows = []
    for run in runs.made:
        info = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        rows.append({**flat(info["config"]), LOAD: run.arm.load, "avg_jct": info["summary"]["avg_jct"]})
    return sweep(pd.DataFrame(rows), axis, by=LINES.get(axis, []))


DRAWINGS: Mapping[str, Callable[[Runs], Figure | None]] = {
    "along_the_axis": along_the_axis,
    "best_batch_sizes": lambda runs: batch_sizes.best_batch_sizes(runs.profiles[SHOWN]),
    "fairness_cdf": lambda runs: cdf.fairness_cdf(runs.groups()) if runs.made else None,
    "jct_cdf": lambda runs: cdf.jct_cdf(runs.groups()) if runs.made else None,
    "jobs_under_contention": jobs_under_contention,
    "nodes_over_time": lambda runs: nodes.nodes_over_time(
        {run.arm.name: run.read().result for run in runs.first_seeds}
    ),
    "throughput_fits": throughput_fits,
    "training_curves": lambda runs: batch_sizes.training_curves(runs.profiles[SHOWN]),
    "usage_over_time": usage_over_time,
}

COMPARISON = "comparison"
"""The drawing of findings: ours, the simulator's and the paper's side by side."""


def draw(runs: Runs, findings: Sequence[Finding]) -> dict[str, Figure]:
    """Return the figures of an experiment by the names of their files; the first is called as the experiment."""
    shown = [finding for finding in findings if finding.ours is not None and isfinite(finding.ours.estimate.value)]
    figures = {}
    for place, name in enumerate(runs.experiment.draw):
        figure = DRAWINGS[name](runs) if name != COMPARISON else dumbbell(shown) if shown else None
        if figure is not None:
            figures[f"{runs.experiment.name}-{name}" if place else runs.experiment.name] = figure
    return figures
