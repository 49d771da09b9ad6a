"""Drawings of the runs of an experiment, by name, and of its comparison with published numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
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
from polluxsim.statistics.groups import RunGroup
from polluxsim.studies.paper.measures import choose, fits, shown_profile
from polluxsim.studies.paper.published import BOUNDS, UNITS, PublishedFinding, RuleKind
from polluxsim.studies.paper.runs import Runs
from polluxsim.studies.paper.verdict_tables import by_quantity, unit_of

OURS = "ours, with its 95 % interval"
SIMULATOR = "artifact's simulator"
PAPER = "paper"
BOUND = "paper's bound"
POINTS = {
    OURS: ("o", PALETTE[0], 3.5),
    SIMULATOR: ("D", PALETTE[2], 6.0),
    PAPER: ("s", PALETTE[1], 4.0),
    BOUND: ("|", PALETTE[1], 8.0),
}
"""Marker, colour and size [pt] of each kind of value."""

# Height of a quantity, and of the title and axis of a panel [cm]
ROW_HEIGHT = 0.5
PANEL_HEIGHT = 1.5
WIDE = 30.0  # panels whose values differ by more than this factor have a logarithmic axis

LOAD = "workload.load"  # column of the number of jobs; workloads that come from a file do not have this setting

LINES = {LOAD: [POLICY], "engine.interference": ["policy.avoid_interference"]}
"""Settings that all runs of a line share, by the setting along the axis."""

SMALL_JOB = "yolov3"  # application of the small jobs of Figure 6
NUM_SMALL_JOBS = 2

COMPARISON = "comparison"  # name of the drawing that compares our values with those of the simulator and of the paper


class QuantityRow(NamedTuple):
    """The values of one quantity, in the unit of the panel."""

    name: str
    points: dict[str, float]  # by the kind of value, a key of `POINTS`
    interval: tuple[float, float] | None  # of our value


@styled
def dumbbell(findings: Sequence[PublishedFinding]) -> Drawing:
    """Draw every quantity of findings, a panel for each metric and for each change of one. Our values must be finite.

    Findings on every job of a run are left out.
    """
    # Findings on every job of a run have no single value.
    drawable = [finding for finding in findings if finding.rule.kind is not RuleKind.EVERY_JOB]
    panels: dict[str, list[list[PublishedFinding]]] = {}  # findings by title of the panel, and by quantity
    for group in by_quantity(drawable):
        published = group[0].published
        title = published.metric
        if published.against:
            title = f"change of {published.metric}"
        panels.setdefault(title, []).append(group)
    heights = [PANEL_HEIGHT + ROW_HEIGHT * len(groups) for groups in panels.values()]
    # The panels have one height for each row, so that rows of all panels are equally far apart.
    figure = new_figure(TWO_COLUMNS, sum(heights))
    axes_of_panels = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, groups) in zip(axes_of_panels, panels.items(), strict=True):
        unit = unit_of(list(chain.from_iterable(groups)))
        _draw_panel(axes, [_row(group, unit) for group in groups])
        heading = title
        if unit != "1":
            heading += f" [{unit}]"
        axes.set_title(heading, loc="left")
    kinds = set[str]()
    for finding in findings:
        kinds |= _points([finding], "1").keys()
    legend(figure, {_marker(name): name for name in POINTS if name in kinds})
    return figure


def _row(group: Sequence[PublishedFinding], unit: str) -> QuantityRow:
    """Return the values of the findings on one quantity."""
    published = group[0].published
    name = published.arm
    if published.against:
        name += f" against {published.against}"
    interval = None
    ours = group[0].ours
    if ours is not None and ours.estimate.low is not None and ours.estimate.high is not None:
        interval = (ours.estimate.low / UNITS[unit], ours.estimate.high / UNITS[unit])
    return QuantityRow(name, _points(group, unit), interval)


def _points(group: Sequence[PublishedFinding], unit: str) -> dict[str, float]:
    """Return our value and the published ones of one quantity by kind, in a unit."""
    points = {}
    ours = group[0].ours
    if ours is not None:
        points[OURS] = ours.estimate.value / UNITS[unit]
    # Of several findings of a kind, the first one counts.
    for finding in reversed(group):
        points[_kind(finding)] = finding.published.in_base_units / UNITS[unit]
    return points


def _kind(finding: PublishedFinding) -> str:
    """Return the kind of the published value of a finding, a key of `POINTS`."""
    if finding.rule.kind in BOUNDS:
        return BOUND
    if finding.published.by_simulator:
        return SIMULATOR
    return PAPER


def _draw_panel(axes: Axes, rows: Sequence[QuantityRow]) -> None:
    """Draw a panel with a row for each quantity, from the top."""
    values = list[float]()
    for row in rows:
        values += row.points.values()
    # A logarithm needs positive values.
    is_wide = min(values) > 0 and max(values) > WIDE * min(values)
    if is_wide:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    for y, row in enumerate(rows):
        low = min(row.points.values())
        high = max(row.points.values())
        axes.plot([low, high], [y, y], color=GREY, linewidth=0.8)
        if row.interval is not None:
            axes.plot(row.interval, [y, y], color=POINTS[OURS][1], linewidth=3.0, alpha=0.35)
        # Our value comes first, so it is drawn last, above the others.
        for name, value in reversed(row.points.items()):
            marker, colour, size = POINTS[name]
            axes.plot([value], [y], marker=marker, color=colour, markersize=size, linestyle="None")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)  # falling, so that the first row is at the top
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


def _marker(name: str) -> Line2D:
    """Return the marker of a kind of value, for the legend."""
    marker, colour, size = POINTS[name]
    return Line2D([], [], marker=marker, color=colour, markersize=size, linestyle="None")


def throughput_fits(runs: Runs) -> Figure:
    """Draw throughput against GPUs and batch size, of the profiles and of the models fitted to them."""
    are_cards = all(isinstance(profile, CardProfile) for profile in runs.profiles.values())
    points = "card" if are_cards else "measured"
    return profiles.throughput(list(fits(runs.profiles).values()), (points, "throughput model fitted to it"))


def usage_over_time(runs: Runs) -> Figure | None:
    """Draw GPUs in use and their efficiency in bins of 30 minutes, for the first workload with its first seed.

    Return None without runs.
    """
    if not runs.made:
        return None
    return usage.usage(runs.groups(workload=runs.made[0].workload, seed=runs.made[0].seed))


def jobs_under_contention(runs: Runs) -> Figure | None:
    """Draw the large job of the first run that has one, and the first two small jobs of this run that had GPUs.

    Return None if no run has one.
    """
    for finished in runs.made:
        run = finished.read()
        chosen = choose(run, runs.profiles)
        if chosen is None:
            continue
        jobs = [chosen.record.job]
        for record in run.result.job_records:
            # A job that never had GPUs has no life to draw.
            is_drawn = record.application == SMALL_JOB and record.gpu_seconds
            if is_drawn and len(jobs) <= NUM_SMALL_JOBS:
                jobs.append(record.job)
        group = RunGroup("Pollux", "Pollux", (run,))
        lives, contention = job_life.lives_of([group], jobs, [runs.profiles])
        return job_life.job_life(lives, contention)
    return None


def along_the_axis(runs: Runs) -> Figure | None:
    """Draw the average completion time against the experiment's axis."""
    if not runs.made:
        return None
    axis = runs.experiment.axis
    if axis == "load":
        axis = LOAD  # the number of jobs is a property of an arm, and no setting of its runs
    rows = []
    for run in runs.made:
        info = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        row = flat(info["config"])
        row[LOAD] = run.arm.load
        row["avg_jct"] = info["summary"]["avg_jct"]
        rows.append(row)
    return sweep(pd.DataFrame(rows), axis, by=LINES.get(axis, []))


def fairness_cdf(runs: Runs) -> Figure | None:
    """Draw the distribution of the finish-time fairness."""
    if not runs.made:
        return None
    return distributions.fairness_cdf(runs.groups())


def jct_cdf(runs: Runs) -> Figure | None:
    """Draw the distribution of the completion times."""
    if not runs.made:
        return None
    return distributions.jct_cdf(runs.groups())


def nodes_over_time(runs: Runs) -> Figure:
    """Draw the nodes that are up and the efficiency of their GPUs, for the first seed of each arm's last workload."""
    return usage.nodes_over_time({run.arm.name: run.read().result for run in runs.first_seeds})


def best_batch_sizes(runs: Runs) -> Figure:
    """Draw the throughput and the best batch size by GPUs."""
    return profiles.best_batch_sizes(shown_profile(runs))


def training_curves(runs: Runs) -> Figure:
    """Draw the statistical efficiency over the training."""
    return profiles.training_curves(shown_profile(runs))


DRAWINGS: Mapping[str, Callable[[Runs], Figure | None]] = {
    "along_the_axis": along_the_axis,
    "best_batch_sizes": best_batch_sizes,
    "fairness_cdf": fairness_cdf,
    "jct_cdf": jct_cdf,
    "jobs_under_contention": jobs_under_contention,
    "nodes_over_time": nodes_over_time,
    "throughput_fits": throughput_fits,
    "training_curves": training_curves,
    "usage_over_time": usage_over_time,
}
"""Drawings of the runs of an experiment, by name. They return None if the experiment has no runs to draw."""


def draw(runs: Runs, findings: Sequence[PublishedFinding]) -> dict[str, Figure]:
    """Return the figures of an experiment by the names of their files.

    The first drawing has the name of the experiment. Drawings without data are left out.
    """
    figures = {}
    for index, name in enumerate(runs.experiment.draw):
        if name == COMPARISON:
            figure = _compared(findings)
        else:
            figure = DRAWINGS[name](runs)
        if figure is None:
            continue
        file_name = runs.experiment.name
        if index > 0:
            file_name += f"-{name}"
        figures[file_name] = figure
    return figures


def _compared(findings: Sequence[PublishedFinding]) -> Figure | None:
    """Draw the findings with a finite value of ours; None without any."""
    # Values are infinite where jobs were cut off, and an axis cannot show them.
    finite = []
    for finding in findings:
        if finding.ours is not None and isfinite(finding.ours.estimate.value):
            finite.append(finding)
    if not finite:
        return None
    return dumbbell(finite)
