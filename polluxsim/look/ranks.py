"""Users or queues of runs in order of how long their jobs waited for GPUs, side by side."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape
from rich.table import Table

from polluxsim.durations import HOUR
from polluxsim.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.records import JobRecord, Result

NOBODY = "nobody named"
MOST_ROWS = 40


class Rank(NamedTuple):
    """How a user or queue fared in a run.

    Attributes
    ----------
    place
        1 for who waited longest on average.
    jobs
        That were submitted.
    wait
        Mean time from submission to the first GPU; of a job that never had one, to its end [s].
    jct
        Mean completion time of those that completed [s]; None if none did.
    gpu_seconds
        GPU time held.
    """

    place: int
    jobs: int
    wait: float
    jct: float | None
    gpu_seconds: float


def ranks(results: Iterable[Result], by: str) -> dict[str, Rank]:
    """Return how users or queues fared, those that waited longest first; jobs of several runs count together.

    Parameters
    ----------
    results
        Runs of one setting.
    by
        `user` or `queue`.

    Raises
    ------
    InvalidInputError
        If no job says whose it is.
    """
    jobs: Mapping[str, list[JobRecord]] = defaultdict(list)
    waits: Mapping[str, list[float]] = defaultdict(list)
    for result in results:
        for job in result.job_records:
            if job.submit_time < result.end_time:
                name = getattr(job, by) or NOBODY
                jobs[name].append(job)
                waits[name].append(_wait(job, result.end_time))
    if not jobs.keys() - {NOBODY}:
        raise InvalidInputError(f"no job of these runs has a {by}, needed is one at least")
    means = {name: sum(found) / len(found) for name, found in waits.items()}
    order = sorted(means, key=lambda name: (-means[name], name))
    return {name: _rank(place, jobs[name], means[name]) for place, name in enumerate(order, start=1)}


def _wait(job: JobRecord, end_time: float) -> float:
    if job.queueing_delay is not None:
        return job.queueing_delay
    return (end_time if job.end_time is None else job.end_time) - job.submit_time


def _rank(place: int, jobs: Sequence[JobRecord], wait: float) -> Rank:
    jcts = [job.jct for job in jobs if job.jct is not None]
    jct = sum(jcts) / len(jcts) if jcts else None
    return Rank(place, len(jobs), wait, jct, sum(job.gpu_seconds for job in jobs))


def rank_table(settings: Mapping[str, Sequence[Result]], by: str) -> Table:
    """Return users or queues of some settings side by side, in the order of the first.

    Parameters
    ----------
    settings
        Runs by what they are called.
    by
        `user` or `queue`.
    """
    found = {name: ranks(results, by) for name, results in settings.items()}
    everybody = list(dict.fromkeys(name for ranked in found.values() for name in ranked))
    table = Table(title=f"By {by}, longest mean wait first", title_justify="left")
    for heading in (by, "jobs", *(f"{name}\n{what}" for name in map(escape, found) for what in COLUMNS)):
        table.add_column(heading, justify="left" if heading == by else "right", overflow="fold")
    for name in everybody[:MOST_ROWS]:
        of = [ranked.get(name) for ranked in found.values()]
        jobs = max(rank.jobs for rank in of if rank is not None)
        table.add_row(escape(name), str(jobs), *(cell for rank in of for cell in _cells(rank)))
    if len(everybody) > MOST_ROWS:
        table.caption = f"and {len(everybody) - MOST_ROWS} more"
    return table


COLUMNS = ("rank", "wait [h]", "JCT [h]", "GPU h")


def _cells(rank: Rank | None) -> tuple[str, ...]:
    if rank is None:
        return ("–",) * len(COLUMNS)
    jct = "–" if rank.jct is None else f"{rank.jct / HOUR:.2f}"
    return str(rank.place), f"{rank.wait / HOUR:.2f}", jct, f"{rank.gpu_seconds / HOUR:.1f}"
