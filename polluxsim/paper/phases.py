"""How a large job and smaller ones adapt to contention (Figure 6): before the crowd (A), in it (B) and after (C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.look.plot.job_life import contention_between, life_of
from polluxsim.look.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from polluxsim.look.plot.job_life import Curve, Life
    from polluxsim.models.profile import Profile
    from polluxsim.paper.runs import Runs
    from polluxsim.records import JobRecord
    from polluxsim.storage import Run

    Array = NDArray[np.float64]

HIGH, LOW = 0.5, 0.25
"""Shares of the most active jobs in a job's life: from the one on it is crowded, up to the other it is not."""

LARGE, SMALL = "imagenet", "yolov3"
METRICS = {
    "GPUs": "gpus",
    "batch size": "batch_size",
    "batch size per GPU": "batch_size_per_gpu",
    "efficiency": "efficiency",
}


class Phase(NamedTuple):
    """What a job had on average over a phase, weighted by time."""

    length: float  # of the time with GPUs in it [s]
    gpus: float
    batch_size: float  # total [examples]
    batch_size_per_gpu: float  # [examples]
    efficiency: float  # statistical


class Chosen(NamedTuple):
    """The large job of a run that had most of its time before the crowd, and its phases."""

    record: JobRecord
    phases: Mapping[str, Phase]


def adaptation(runs: Runs) -> Iterator[Sample]:
    """Yield what the large job of every run had in each phase; nothing where no job lived through all three."""
    for run in runs.made:
        if (chosen := choose(run.read(), runs.profiles)) is None:
            continue
        for name, phase in chosen.phases.items():
            for metric, field in METRICS.items():
                yield Sample(metric, name, getattr(phase, field), run.workload, run.seed)


def choose(run: Run, profiles: Mapping[str, Profile]) -> Chosen | None:
    """Return the large job that had most time before the crowd, of those that lived through all three phases."""
    found = []
    for record in run.result.job_records:
        if record.application == LARGE and record.completion_time is not None:
            contention = contention_between(run.result, record.submit_time, record.completion_time)
            of_job = phases(life_of(run, record, profiles), contention)
            if len(of_job) == 3:
                found.append(Chosen(record, of_job))
    return max(found, key=lambda chosen: chosen.phases["A"].length, default=None)


def phases(life: Life, contention: Curve) -> Mapping[str, Phase]:
    """Return the phases in which a job held GPUs.

    B is when at least half as many jobs are active as at most in its life; A is before it and C after it, each only
    while at most a quarter as many are active.
    """
    if life.efficiency is None:
        raise ValueError(f"{life.label}: a life without efficiency, needed is one with it")
    curves = (life.gpus, life.batch_size, life.efficiency)
    edges = np.unique(np.concatenate([curve.edges for curve in (*curves, contention)]))
    starts, lengths = edges[:-1], np.diff(edges)
    gpus, sizes, efficiency = (_at(curve, starts) for curve in curves)
    active = _at(contention, starts)
    crowded = active >= HIGH * active.max()
    first, last = starts[crowded].min(), starts[crowded].max()
    quiet = active <= LOW * active.max()
    masks = {"A": quiet & (starts < first), "B": crowded, "C": quiet & (starts > last)}
    found = {}
    for name, mask in masks.items():
        weights = np.where(mask & (gpus > 0), lengths, 0.0)
        if weights.sum() > 0:
            columns = (gpus, sizes, sizes / np.maximum(gpus, 1), efficiency)
            found[name] = Phase(float(weights.sum()), *(_mean(column, weights) for column in columns))
    return found


def _at(curve: Curve, times: Array) -> Array:
    """Return a curve's value from each time on; nan outside of it."""
    place = np.searchsorted(curve.edges, times, side="right") - 1
    inside = (place >= 0) & (place < len(curve.values))
    values: Array = np.where(inside, curve.values[np.clip(place, 0, len(curve.values) - 1)], np.nan)
    return values


def _mean(values: Array, weights: Array) -> float:
    known = weights > 0
    return float(np.average(values[known], weights=weights[known]))
