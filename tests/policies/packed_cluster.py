"""An independent simulation of FIFO and EASY on nodes, without code of the package.

A job of at most the GPUs of the largest node stays on one node. A larger job gets whole nodes, and one node for its
rest. Each part takes the node with the fewest free GPUs that are enough, and the lowest number among equal nodes.
Under FIFO no job overtakes another one. Under EASY the first job that does not fit has nodes reserved for the first
time at which it fits if all jobs run to their limits; a later job may start if it ends by then, or if it leaves the
reserved GPUs free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Job(NamedTuple):
    """A job; its number in the list is its order of submission."""

    partition: str
    submit: int  # [s]
    gpus: int
    duration: int  # [s]
    limit: int  # [s], at least the duration


def parts_of(gpus: int, sizes: list[int]) -> list[int]:
    parts = []
    for size in sorted(sizes, reverse=True):
        if gpus:
            parts.append(min(size, gpus))
            gpus -= parts[-1]
    return parts


def fit(parts: list[int], free: list[int]) -> dict[int, int] | None:
    """Return the GPUs of a job by node, or None if it does not fit."""
    chosen: dict[int, int] = {}
    for part in parts:
        enough = [(gpus, node) for node, gpus in enumerate(free) if gpus >= part and node not in chosen]
        if not enough:
            return None
        chosen[min(enough)[1]] = part
    return chosen


def add(free: list[int], chosen: dict[int, int], sign: int) -> None:
    for node, gpus in chosen.items():
        free[node] += sign * gpus


def start_times(jobs: list[Job], sizes: list[int], *, backfill: bool, allows: Callable = lambda *_: True) -> list[int]:
    """Return the start of each job [s]. `allows` gets the number of a job and those of the running jobs."""
    free = list(sizes)
    parts = [parts_of(job.gpus, sizes) for job in jobs]
    starts: dict[int, int] = {}
    running: dict[int, dict[int, int]] = {}  # GPUs by node of each running job
    time = 0
    while len(starts) < len(jobs):
        for number in [number for number in running if starts[number] + jobs[number].duration <= time]:
            add(free, running.pop(number), 1)
        head = None  # start and free GPUs of the reservation
        for number, job in enumerate(jobs):
            if number in starts or job.submit > time or not allows(number, [*running]):
                continue
            chosen = fit(parts[number], free)
            if head is not None:
                reserved_start, spare = head
                if time + job.limit > reserved_start:
                    chosen = fit(parts[number], [min(pair) for pair in zip(free, spare, strict=True)])
                    if chosen is not None:
                        add(spare, chosen, -1)
            elif chosen is None:
                if not backfill:
                    break
                head = reservation(time, parts[number], free, {n: starts[n] + jobs[n].limit for n in running}, running)
                continue
            if chosen is not None:
                starts[number] = time
                running[number] = chosen
                add(free, chosen, -1)
        # Between arrivals and ends, no further job may start: a later start only ends later.
        ends = [starts[number] + jobs[number].duration for number in running]
        time = min([moment for moment in (*ends, *(job.submit for job in jobs)) if moment > time], default=time)
    return [starts[number] for number in range(len(jobs))]


def reservation(
    now: int, parts: list[int], free: list[int], ends: dict[int, int], running: dict[int, dict[int, int]]
) -> tuple[int, list[int]]:
    """Return when a job can start at the latest [s], and the GPUs of each node that it then leaves free."""
    future = list(free)
    for time in sorted(set(ends.values())):
        for number in [number for number, end in ends.items() if end == time]:
            add(future, running[number], 1)
        chosen = fit(parts, future)
        if chosen is not None:
            add(future, chosen, -1)
            return max(time, now + 1), future
    raise ValueError("the job is larger than the cluster")
