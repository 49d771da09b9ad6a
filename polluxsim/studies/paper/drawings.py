"""Drawings of the runs of an experiment, by name, and of its comparison with published numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from polluxsim.applications.card_profile import CardProfile
from polluxsim.look.colours import PALETTE
from polluxsim.look.plot import distributions, job_life, profiles, usage
from polluxsim.look.plot.style import GREY, TWO_COLUMNS, Drawing, legend, new_figure, styled
from polluxsim.look.plot.sweep import sweep
from polluxsim.records.folders import POLICY
from polluxsim.records.storage import flat
from polluxsim.statistics.groups import Group
from polluxsim.studies.paper.measures import choose, fits, shown_profile
from polluxsim.studies.paper.published import BOUNDS, UNITS, Finding, Kind
from polluxsim.studies.paper.runs import Runs
from polluxsim.studies.paper.verdict_tables import by_quantity, unit_of

OURS, SIMULATOR, PAPER, BOUND = "ours, with its 95 % interval", "artifact's simulator", "paper", "paper's bound"
POINTS = {
    OURS: ("o", PALETTE[0], 3.5),
    SIMULATOR: ("D", PALETTE[2], 6.0),
    PAPER: ("s", PALETTE[1], 4.0),
    BOUND: ("|", PALETTE[1], 8.0),
}
"""Marker, colour and size [pt] of each kind of value."""

LINE_HEIGHT, PANEL_HEIGHT = 0.5, 1.5  # height of a quantity, and of the title and axis of a panel [cm]
WIDE = 30.0  # panels whose values differ by more than this factor have a logarithmic axis

LOAD = "workload.load"  # column of the number of jobs; workloads that come from a file do not have this setting

LINES = {LOAD: [POLICY], "engine.interference": ["policy.avoid_interference"]}
"""Settings that all runs of a line share, by the setting along the axis."""

SMALL_JOB = "yolov3"  # application of the small jobs of Figure 6

COMPARISON = "comparison"  # name of the drawing that compares our values with those of the simulator and of the paper


class Line(NamedTuple):
    """The values of one quantity, in the unit of the panel."""

    name: str
    points: dict[str, float]  # by the kind of value, a key of `POINTS`
    interval: tuple[float, float] | None  # of our value


@styled
def dumbbell(findings: Sequence[Finding]) -> Drawing:
    """Draw every quantity of findings, a panel for each metric. Our values must be finite."""
    panels: dict[tuple[str, bool], list[list[Finding]]] = {}
    for group in by_quantity(finding for finding in findings if finding.rule.kind is not Kind.EVERY_JOB):
        panels.setdefault((group[0].published.metric, bool(group[0].published.against)), []).append(group)
    sizes = [PANEL_HEIGHT + LINE_HEIGHT * len(groups) for groups in panels.values()]
    figure = new_figure(TWO_COLUMNS, sum(sizes))
    axes = figure.subplots(len(panels), squeeze=False, height_ratios=sizes)[:, 0]
    for panel, ((metric, is_change), groups) in zip(axes, panels.items(), strict=True):
        unit = unit_of([finding for group in groups for finding in group])
        lines = [_line(group, unit) for group in groups]
        _draw(panel, lines)
        title = f"change of {metric}" if is_change else metric
        panel.set_title(title if unit == "1" else f"{title} [{unit}]", loc="left")
    drawn = {name for group in findings for name in _points([group], "1")}
    legend(figure, {_handle(name): name for name in POINTS if name in drawn})
    return figure


def _line(group: Sequence[Finding], unit: str) -> Line:
    """Return the values of the findings on one quantity."""
    row, ours = group[0].published, group[0].ours
    name = row.arm + (f" against {row.against}" if row.against else "")
    low, high = (None, None) if ours is None else ours.estimate[1:]
    interval = None if low is None or high is None else (low / UNITS[unit], high / UNITS[unit])
    return Line(name, _points(group, unit), interval)


def _points(group: Sequence[Finding], unit: str) -> dict[str, float]:
    """Return our value and the published ones of one quantity by kind, in a unit."""
    points = {OURS: group[0].ours.estimate.value} if group[0].ours is not None else {}
    for finding in reversed(group):
        points[_kind(finding)] = finding.published.in_base_units
    return {name: value / UNITS[unit] for name, value in points.items()}


def _kind(finding: Finding) -> str:
    if finding.rule.kind in BOUNDS:
        return BOUND
    return SIMULATOR if finding.published.by_simulator else PAPER


def _draw(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw a panel with a row for each line."""
    values = [value for line in lines for value in line.points.values()]
    if min(values) > 0 and max(values) > WIDE * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    for y, line in enumerate(lines):
        axes.plot([min(line.points.values()), max(line.points.values())], [y, y], color=GREY, linewidth=0.8)
        if line.interval is not None:
            axes.plot(line.interval, [y, y], color=POINTS[OURS][1], linewidth=3.0, alpha=0.35)
        for name, value in reversed(line.points.items()):
            marker, colour, size = POINTS[name]
            axes.plot([value], [y], marker=marker, color=colour, markersize=size, linestyle="None")
    axes.set_yticks(range(len(lines)), [line.name for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


def _handle(name: str) -> Line2D:
    marker, colour, size = POINTS[name]
    return Line2D([], [], marker=marker, color=colour, markersize=size, linestyle="None")


def throughput_fits(runs: Runs) -> Figure:
    """Draw throughput against GPUs and batch size, of the profiles and of the models fitted to them."""
    points = "card" if all(isinstance(profile, CardProfile) for profile in runs.profiles.values()) else "measured"
    return profiles.throughput(list(fits(runs.profiles).values()), (points, "throughput model fitted to it"))


def usage_over_time(runs: Runs) -> Figure | None:
    """Draw GPUs in use and their efficiency in bins of 30 minutes, for the first workload."""
    if not runs.made:
        return None
    return usage.usage(runs.groups(workload=runs.made[0].workload, seed=runs.made[0].seed))


def jobs_under_contention(runs: Runs) -> Figure | None:
    """Draw the large job of the first run that has one, and the next two smaller jobs."""
    for made in runs.made:
        run = made.read()
        if (chosen := choose(run, runs.profiles)) is not None:
            records = run.result.job_records
            later = [record.job for record in records if record.application == SMALL_JOB and record.gpu_seconds]
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
    "best_batch_sizes": lambda runs: profiles.best_batch_sizes(shown_profile(runs)),
    "fairness_cdf": lambda runs: distributions.fairness_cdf(runs.groups()) if runs.made else None,
    "jct_cdf": lambda runs: distributions.jct_cdf(runs.groups()) if runs.made else None,
    "jobs_under_contention": jobs_under_contention,
    "nodes_over_time": lambda runs: usage.nodes_over_time(
        {run.arm.name: run.read().result for run in runs.first_seeds}
    ),
    "throughput_fits": throughput_fits,
    "training_curves": lambda runs: profiles.training_curves(shown_profile(runs)),
    "usage_over_time": usage_over_time,
}


def draw(runs: Runs, findings: Sequence[Finding]) -> dict[str, Figure]:
    """Return the figures of an experiment by the names of their files.

    The first drawing has the name of the experiment.
    """
    shown = [finding for finding in findings if finding.ours is not None and isfinite(finding.ours.estimate.value)]
    figures = {}
    for index, name in enumerate(runs.experiment.draw):
        figure = DRAWINGS[name](runs) if name != COMPARISON else dumbbell(shown) if shown else None
        if figure is not None:
            figures[f"{runs.experiment.name}-{name}" if index else runs.experiment.name] = figure
    return figures
