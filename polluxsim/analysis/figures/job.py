"""The life of single jobs: how contended the cluster was, and what they had of it (Figure 6 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from polluxsim.analysis.figures.lines import legend
from polluxsim.analysis.figures.style import (
    GREY,
    ONE_COLUMN,
    SECONDS_PER_HOUR,
    hour_ticks,
    looks,
    new_figure,
    steps,
    styled,
)
from polluxsim.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from polluxsim.analysis.figures.groups import Group
    from polluxsim.records import JobRecord, Result

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A quantity that keeps its value from one time to the next.

    Parameters
    ----------
    edges
        Shape (n + 1,) [s].
    values
        Shape (n,); nan where there is none.
    """

    edges: Array
    values: Array


@dataclass(frozen=True)
class Life:
    """One job's life.

    Parameters
    ----------
    label
        What to call it.
    active_jobs
        Jobs submitted and not complete while it lived.
    gpus
        GPUs it held.
    batch_size
        It trained at [examples].
    efficiency
        Statistical efficiency, None where it is not known.
    policy
        Decides the colour.
    """

    label: str
    active_jobs: Curve
    gpus: Curve
    batch_size: Curve
    efficiency: Curve | None = None
    policy: str = ""


@styled
def job_life(lives: Sequence[Life], width: float = ONE_COLUMN) -> Figure:
    """Draw active jobs of the cluster, and GPUs, batch size and efficiency of jobs, over time.

    Parameters
    ----------
    lives
        A line each. The panel of the efficiency is left out where no life tells it.
    width
        [cm].
    """
    panels = [("active jobs", [life.active_jobs for life in lives]), ("GPUs", [life.gpus for life in lives])]
    panels += [("batch size\n[examples]", [life.batch_size for life in lives])]
    efficiencies = [life.efficiency for life in lives]
    if any(efficiencies):
        panels += [("efficiency", efficiencies)]  # type: ignore[list-item]
    figure = new_figure(width, 1.5 + 2.3 * len(panels))
    rows = figure.subplots(len(panels), sharex=True)
    chosen = looks([life.policy or life.label for life in lives])
    for axes, (title, curves) in zip(rows, panels, strict=True):
        lines = []
        for look, curve in zip(chosen, curves, strict=True):
            if curve is not None:
                x, y = steps(curve.edges / SECONDS_PER_HOUR, curve.values)
                lines += axes.plot(x, y, color=look.color, linestyle=look.linestyle)
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
    for axes in rows[:2]:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    rows[2].set_yscale("log", base=2)
    rows[2].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if len(panels) > 3:
        rows[3].set_ylim(0, 1.05)
    rows[-1].set_xlabel("time [h]")
    hour_ticks(rows[-1])
    figure.align_ylabels()
    if len(lives) > 1:
        legend(figure, dict(zip(rows[1].get_lines(), [life.label for life in lives], strict=True)))
    else:
        rows[0].set_title(lives[0].label, color=GREY, loc="left")
    return figure


def lives_of(groups: Sequence[Group], jobs: Sequence[str] | None = None) -> list[Life]:
    """Return the lives of some jobs in every group's first run, named by what sets them apart.

    Parameters
    ----------
    groups
        The runs.
    jobs
        Names; by default the job with the most GPU-time of each run.

    Raises
    ------
    InvalidInputError
        If a run does not have a job, or it never had a GPU.
    """
    lives = []
    for group in groups:
        (run, *_) = group.runs
        for job in jobs if jobs is not None else [None]:
            life = life_of(run.name, run.result, job)
            several_jobs = len(groups) == 1 or jobs is None or len(jobs) > 1
            parts = [group.label] * (len(groups) > 1) + [life.label] * several_jobs
            lives.append(replace(life, label=", ".join(parts), policy=group.policy if len(groups) > 1 else life.label))
    return lives


def life_of(name: str, result: Result, job: str | None = None) -> Life:
    """Return a job's life.

    Parameters
    ----------
    name
        What to call the run in an error.
    result
        The run.
    job
        Its name; by default the one with the most GPU-time.

    Raises
    ------
    InvalidInputError
        If there is no such job, or it never had a GPU.
    """
    record = _find(name, result, job)
    until = result.end_time if record.completion_time is None else record.completion_time
    changes = [row for row in result.allocation_records if row.job == record.job and row.time < until]
    if not changes:
        raise InvalidInputError(f"{name}: job {record.job!r} never had a GPU")
    edges = np.array([record.submit_time, *(row.time for row in changes), until])
    gpus = np.array([0.0, *(sum(row.gpus) for row in changes)])
    sizes = np.array([np.nan, *(row.batch_size or np.nan for row in changes)])
    return Life(record.job, active_jobs(result, record.submit_time, until), Curve(edges, gpus), Curve(edges, sizes))


def active_jobs(result: Result, start: float, end: float) -> Curve:
    """Return the jobs submitted and not complete, between two times [s]."""
    arrivals = np.sort([job.submit_time for job in result.job_records])
    ends = np.sort([job.completion_time for job in result.job_records if job.completion_time is not None])
    moments = np.concatenate([arrivals, ends])
    edges = np.unique([start, *moments[(moments > start) & (moments < end)], end])
    count = np.searchsorted(arrivals, edges[:-1], side="right") - np.searchsorted(ends, edges[:-1], side="right")
    return Curve(edges, count.astype(float))


def _find(name: str, result: Result, job: str | None) -> JobRecord:
    records = {record.job: record for record in result.job_records}
    if not records:
        raise InvalidInputError(f"{name}: a run without jobs has nothing to show")
    if job is None:
        return max(result.job_records, key=lambda record: record.gpu_seconds)
    if job not in records:
        some = ", ".join(list(records)[:3])
        raise InvalidInputError(f"{name}: there is no job {job!r}, allowed are its {len(records)} jobs: {some}, …")
    return records[job]
