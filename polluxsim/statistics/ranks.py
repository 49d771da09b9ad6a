"""Users or queues of runs in order of how long their jobs waited for GPUs, side by side."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape
from rich.table import Table

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.metrics.summary import waiting_time
from polluxsim.statistics.series import lifetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.records.results import JobRecord, Result

NOBODY = "nobody named"
MOST_ROWS = 40
COLUMNS = ("rank", "to first GPU [h]", "waiting [h]", "JCT [h]", "GPU h")


class Rank(NamedTuple):
    """How a user or queue fared: the place, 1 for who waited longest, and what its jobs that were submitted had.

    `wait` is the mean time from submission to the first GPU, of a job that never had one to its end [s]. `total_wait`
    is the mean time without a GPU [s], and `jct` the mean JCT of the jobs that completed [s], None if none did.
    `gpu_seconds` is the GPU time held.
    """

    place: int
    jobs: int
    wait: float
    total_wait: float
    jct: float | None
    gpu_seconds: float


def ranks(results: Iterable[Result], by: str) -> dict[str, Rank]:
    """Return how users or queues (`by`) fared, those that waited longest first; jobs of several runs count together.

    Raises
    ------
    InvalidInputError
        If no job says whose it is.
    """
    jobs: Mapping[str, list[JobRecord]] = defaultdict(list)
    waits: Mapping[str, list[float]] = defaultdict(list)
    total_waits: Mapping[str, float] = defaultdict(float)
    for result in results:
        for job in result.job_records:
            if job.submit_time < result.end_time:
                name = getattr(job, by) or NOBODY
                jobs[name].append(job)
                start, end = lifetime(result, job)
                waits[name].append(end - start if job.queueing_delay is None else job.queueing_delay)
                total_waits[name] += waiting_time(job, result.end_time)
    if not jobs.keys() - {NOBODY}:
        raise InvalidInputError(f"no job of these runs has a {by}, needed is one at least")
    means = {name: sum(found) / len(found) for name, found in waits.items()}
    order = sorted(means, key=lambda name: (-means[name], name))
    return {name: _rank(place, jobs[name], means[name], total_waits[name]) for place, name in enumerate(order, start=1)}


def _rank(place: int, jobs: Sequence[JobRecord], wait: float, total_wait: float) -> Rank:
    jcts = [job.jct for job in jobs if job.jct is not None]
    jct = sum(jcts) / len(jcts) if jcts else None
    return Rank(place, len(jobs), wait, total_wait / len(jobs), jct, sum(job.gpu_seconds for job in jobs))


def rank_table(settings: Mapping[str, Sequence[Result]], by: str) -> Table:
    """Return users or queues (`by`) of some settings side by side, in the order of the first."""
    found = {name: ranks(results, by) for name, results in settings.items()}
    everybody = list(dict.fromkeys(name for ranked in found.values() for name in ranked))
    table = Table(title=f"By {by}, longest mean time to the first GPU first", title_justify="left")
    for heading in (by, "jobs", *(f"{name}\n{what}" for name in map(escape, found) for what in COLUMNS)):
        table.add_column(heading, justify="left" if heading == by else "right", overflow="fold")
    for name in everybody[:MOST_ROWS]:
        of = [ranked.get(name) for ranked in found.values()]
        jobs = max(rank.jobs for rank in of if rank is not None)
        table.add_row(escape(name), str(jobs), *(cell for rank in of for cell in _cells(rank)))
    if len(everybody) > MOST_ROWS:
        table.caption = f"and {len(everybody) - MOST_ROWS} more"
    return table


def _cells(rank: Rank | None) -> tuple[str, ...]:
    if rank is None:
        return ("–",) * len(COLUMNS)
    jct = "–" if rank.jct is None else f"{rank.jct / HOUR:.2f}"
    waits = (f"{seconds / HOUR:.2f}" for seconds in (rank.wait, rank.total_wait))
    return str(rank.place), *waits, jct, f"{rank.gpu_seconds / HOUR:.1f}"
