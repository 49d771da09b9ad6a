"""What the figures show, as arrays: distributions of completion times, and the cluster over time in bins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.metrics.summary import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from polluxsim.records import Result

    Array = NDArray[np.float64]

MOST_POINTS = 1000
MOST_BINS = 240
BIN_WIDTHS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800]
"""Widths of bins that people read easily [s]."""


class Spread(NamedTuple):
    """Completion times of one application's jobs: mean, 10th and 90th percentile [h], and how many there are."""

    application: str
    jobs: int
    mean: float
    low: float
    high: float


class Timeline(NamedTuple):
    """The cluster in bins of time; a value is the mean over its bin.

    Attributes
    ----------
    time
        Middle of each bin [h].
    gpus
        GPUs held.
    efficiency
        Statistical efficiency, weighted by GPUs; NaN where none is held.
    waiting
        Jobs that were submitted, are not complete, and hold no GPU.
    """

    time: Array
    gpus: Array
    efficiency: Array
    waiting: Array


def completion_times(result: Result) -> Array:
    """Return every submitted job's completion time, or its age where it was cut off [s]."""
    return np.array(
        [
            job.jct if job.jct is not None else result.end_time - job.submit_time
            for job in result.job_records
            if job.submit_time <= result.end_time
        ],
        dtype=float,
    )


def cumulative(values: Array) -> tuple[Array, Array]:
    """Return the points of an empirical distribution: sorted values and the share of jobs up to each.

    Of many jobs, evenly spread ranks are kept, the first and the last among them.
    """
    ordered = np.sort(values)
    ranks = np.arange(1, len(ordered) + 1)
    if len(ordered) > MOST_POINTS:
        kept = np.unique(np.linspace(0, len(ordered) - 1, MOST_POINTS).round().astype(int))
        ordered, ranks = ordered[kept], ranks[kept]
    return ordered, ranks / max(len(values), 1)


def spreads(result: Result) -> list[Spread]:
    """Return how completion times spread within each application, by name."""
    jobs = [job for job in result.job_records if job.submit_time <= result.end_time]
    times = completion_times(result) / SECONDS_PER_HOUR
    names = np.array([job.application for job in jobs], dtype=object)
    found = []
    for name in sorted(set(names)):
        own = times[names == name]
        low, high = np.percentile(own, [10, 90])
        found.append(Spread(str(name), len(own), float(own.mean()), float(low), float(high)))
    return found


def bin_width(span: float) -> float:
    """Return a width that cuts a span into at most `MOST_BINS` bins [s]."""
    return float(next((width for width in BIN_WIDTHS if span / width <= MOST_BINS), span / MOST_BINS))


def timeline(result: Result, gpus: tuple[ArrayLike, ArrayLike], width: float) -> Timeline:
    """Return the cluster over time.

    Parameters
    ----------
    result
        The run.
    gpus
        Times at which the number of GPUs held changes [s], in order, and the number from then on.
    width
        Width of a bin [s].
    """
    edges = np.arange(0.0, max(result.end_time, width) + width, width)
    if edges[-2] >= result.end_time > 0:
        edges = edges[:-1]
    edges[-1] = max(result.end_time, edges[-2] + 1e-9)
    length = np.diff(edges)
    held = _integral(*gpus, edges)
    rounds = result.round_records
    times = [record.time for record in rounds]
    weights = np.array([record.gpus_in_use for record in rounds], dtype=float)
    weighted = weights * np.array([record.efficiency for record in rounds], dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        efficiency = _integral(times, weighted, edges) / _integral(times, weights, edges)
    return Timeline(
        time=(edges[:-1] + edges[1:]) / 2 / SECONDS_PER_HOUR,
        gpus=held / length,
        efficiency=efficiency,
        waiting=np.maximum(_integral(*_waiting(result), edges), 0.0) / length,
    )


def steps(times: ArrayLike, changes: ArrayLike) -> tuple[Array, Array]:
    """Return when a count changes, in order, and what it is from then on."""
    times, changes = np.asarray(times, dtype=float), np.asarray(changes, dtype=float)
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(changes[order])


def _waiting(result: Result) -> tuple[Array, Array]:
    """Return the number of jobs that wait, as steps."""
    events: list[tuple[float, int]] = []
    for job in result.job_records:
        if job.submit_time <= result.end_time:
            events.append((job.submit_time, 1))
            if job.completion_time is not None:
                events.append((job.completion_time, -1))
    running: set[str] = set()
    for record in result.allocation_records:
        holds = bool(record.nodes)
        if holds != (record.job in running):
            events.append((record.time, -1 if holds else 1))
            (running.add if holds else running.discard)(record.job)
    return steps([time for time, _ in events], [change for _, change in events])


def _integral(times: ArrayLike, values: ArrayLike, edges: Array) -> Array:
    """Return the integral of a step function over every bin; it is 0 before its first step and holds after its last."""
    times, values = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if not len(times):
        return np.zeros(len(edges) - 1)
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    before = np.searchsorted(times, edges, side="right") - 1
    inside = np.maximum(before, 0)
    total = np.where(before < 0, 0.0, area[inside] + values[inside] * (edges - times[inside]))
    return np.diff(total)
