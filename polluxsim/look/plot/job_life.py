"""Figures of single jobs over time: contention, GPUs, batch size, efficiency (Figure 6 of the paper).

The width of every figure is in [cm].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.look.colours import DASHES, MARKERS, PALETTE, Look, looks
from polluxsim.look.job_progress import has_earlier_work, progress_of
from polluxsim.look.plot.style import (
    GREY,
    ONE_COLUMN,
    Drawing,
    hour_ticks,
    legend,
    mark_forks,
    new_figure,
    per_cent,
    plain,
    steps,
    styled,
)
from polluxsim.look.run_facts import cluster_of, start_delay
from polluxsim.models.profile import Profile
from polluxsim.records.results import JobRecord, Result
from polluxsim.records.storage import Run
from polluxsim.statistics.groups import RunGroup
from polluxsim.statistics.series import active_jobs, allocations_of, lifetime, shares_of

Array = NDArray[np.float64]
Profiles = Mapping[str, Profile]


class StepCurve(NamedTuple):
    """A quantity over time."""

    edges: Array  # shape (n + 1,) [s]
    values: Array  # between the edges, shape (n,); nan if unknown


class Life(NamedTuple):
    """The life of a job."""

    label: str
    policy: str  # decides the colour if runs are compared
    gpus: StepCurve
    batch_size: StepCurve  # in total [examples]
    efficiency: StepCurve | None = None  # statistical; None if it is unknown
    speed: StepCurve | None = None  # relative to the speed alone; None if the job shared no GPU


@styled
def job_life(
    lives: Sequence[Life], contention: Sequence[StepCurve], width: float = ONE_COLUMN, groups: Sequence[RunGroup] = ()
) -> Drawing:
    """Draw the active jobs of the cluster, and GPUs, batch size and efficiency of jobs, over time.

    The panels of efficiency and speed are left out if no life states them. `contention` contains the active jobs: one
    curve for all lives of one run, otherwise one curve for each life. A line marks the fork of each of the groups.
    """
    panels = _panels(lives, contention)
    figure = new_figure(width, 1.5 + 2.1 * len(panels))
    rows = figure.subplots(len(panels), sharex=True)
    is_one_run = len(contention) < len(lives)
    if is_one_run:
        # The colours tell jobs apart. They are not those of policies.
        line_looks = list(islice(cycle(map(Look, PALETTE, DASHES, MARKERS)), len(lives)))
    else:
        line_looks = looks([life.policy for life in lives])
    for axes, (title, curves) in zip(rows, panels, strict=True):
        panel_looks = line_looks
        if len(curves) < len(lives):
            # The active jobs of one run are one grey line.
            panel_looks = [Look(GREY, "-", "")]
        for look, curve in zip(panel_looks, curves, strict=True):
            if curve is not None:
                x, y = steps(curve.edges / HOUR, curve.values)
                axes.plot(x, y, color=look.color, linestyle=look.linestyle)
        axes.set_ylabel(title)
    if len(lives) > 1:
        # The panel of the GPUs has a line for every life. Other panels can lack lines.
        labels = [life.label for life in lives]
        legend(figure, dict(zip(rows[1].get_lines(), labels, strict=True)))
    else:
        rows[0].set_title(lives[0].label, loc="left")
    mark_forks(rows[1], groups)
    _scales(rows)
    figure.align_ylabels()
    return figure


def _panels(lives: Sequence[Life], contention: Sequence[StepCurve]) -> list[tuple[str, Sequence[StepCurve | None]]]:
    """Return the title and the curves of each panel, as `_scales` expects them: counts, batch size, then shares."""
    panels: list[tuple[str, Sequence[StepCurve | None]]] = [
        ("active jobs", contention),
        ("GPUs", [life.gpus for life in lives]),
        ("batch size\n[examples]", [life.batch_size for life in lives]),
    ]
    efficiencies = [life.efficiency for life in lives]
    if any(efficiencies):
        panels.append(("efficiency", efficiencies))
    speeds = [life.speed for life in lives]
    if any(speeds):
        panels.append(("speed beside\nothers", speeds))
    return panels


def _scales(rows: Sequence[Axes]) -> None:
    """Set the scales of the panels: counts, the batch size, shares, and the time below the last panel."""
    for axes in rows[:2]:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    rows[2].set_yscale("log", base=2)
    rows[2].yaxis.set_major_locator(LogLocator(base=2, numticks=5))
    rows[2].yaxis.set_major_formatter(plain)
    for axes in rows[3:]:
        axes.set_ylim(0, 1.05)
        axes.yaxis.set_major_formatter(per_cent)
    rows[-1].set_xlabel("time [h]")
    hour_ticks(rows[-1])


def lives_of(
    groups: Sequence[RunGroup], jobs: Sequence[str] | None = None, profiles: Sequence[Profiles | None] | None = None
) -> tuple[list[Life], list[StepCurve]]:
    """Return the lives of jobs in the first run of each group, and the active jobs of the runs meanwhile.

    By default it is the job with the most GPU time in each run. Without the profiles of a group, its efficiency is
    unknown. Raise InvalidInputError if a run has no such job, or a job never had a GPU.
    """
    lives: list[Life] = []
    contention = []
    for group, profiles_of_group in zip(groups, profiles or [None] * len(groups), strict=True):
        run = group.runs[0]
        names: Sequence[str | None] = jobs or [None]
        # First all records, so that a wrong name is an error before any work
        records = [_find(run, job) for job in names]
        for record in records:
            life = life_of(run, record, profiles_of_group)
            labels = []
            if len(groups) > 1:
                labels.append(group.label)
            if len(groups) == 1 or jobs is None or len(jobs) > 1:
                labels.append(life.label)
            lives.append(life._replace(label=", ".join(labels), policy=group.policy))
            contention.append(contention_between(run.result, *lifetime(run.result, record)))
    if len(groups) == 1 and len(lives) > 1:
        # Jobs of one run share its active jobs: one curve from the first submission to the last end of these jobs.
        start = min(float(life.gpus.edges[0]) for life in lives)
        end = max(float(life.gpus.edges[-1]) for life in lives)
        contention = [contention_between(groups[0].runs[0].result, start, end)]
    return lives, contention


def life_of(run: Run, record: JobRecord, profiles: Profiles | None = None) -> Life:
    """Return the life of a job of a run, with its efficiency if the profiles of the run are given.

    The efficiency of a job without a profile, or with work from before the start of the run, is unknown. Raise
    InvalidInputError if the job never had a GPU.
    """
    start, end = lifetime(run.result, record)
    changes = allocations_of(run.result, record)
    if not changes:
        raise InvalidInputError(f"{run.name}: job {record.job!r} never had a GPU")
    # Before the first change, the job has no GPUs, and so no batch size.
    edges = [start]
    gpus = [0.0]
    sizes = [np.nan]
    for row in changes:
        edges.append(row.time)
        gpus.append(sum(row.gpus))
        sizes.append(row.batch_size or np.nan)
    edges.append(end)
    profile = (profiles or {}).get(record.application)
    efficiency = None
    if profile is not None and not has_earlier_work(record):
        efficiency = _efficiency(run, record, profile)
    times = []
    speeds = []
    for stretch in shares_of(run.result, record.job):
        if stretch.start < end:
            times.append(stretch.start)
            speeds.append(stretch.speed)
    speed = None
    if times:
        times.append(end)
        speed = StepCurve(np.array(times), np.array(speeds))
    gpus_over_time = StepCurve(np.array(edges), np.array(gpus))
    sizes_over_time = StepCurve(np.array(edges), np.array(sizes))
    return Life(record.job, "", gpus_over_time, sizes_over_time, efficiency, speed)


def _efficiency(run: Run, record: JobRecord, profile: Profile) -> StepCurve:
    """Return the statistical efficiency of a job over time."""
    progress = progress_of(run.result, record, profile, start_delay(run), cluster_of(run).node_types)
    return StepCurve(progress.edges, progress.efficiency)


def contention_between(result: Result, start: float, end: float) -> StepCurve:
    """Return the jobs submitted and not complete, between two times [s]."""
    active = active_jobs(result)
    # The ends stay, also if no number changes there, so that the curve covers the whole period.
    inside = active.times[(active.times > start) & (active.times < end)]
    edges = np.unique(np.concatenate([[start], inside, [end]]))
    return StepCurve(edges, active.at(edges[:-1]))


def _find(run: Run, job: str | None) -> JobRecord:
    """Return the record of a job, by default of the job with the most GPU time."""
    run.must_have_jobs()
    records = {record.job: record for record in run.result.job_records}
    if job is None:
        return max(records.values(), key=lambda record: record.gpu_seconds)
    if job not in records:
        examples = f"{len(records)} jobs: {', '.join(list(records)[:3])}, …"
        raise InvalidInputError(f"{run.name}: there is no job {job!r}, give one of its {examples}")
    return records[job]
