"""When jobs will start and complete, from futures in which all that was not known at a time is drawn anew."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from polluxsim.errors import InvalidInputError
from polluxsim.run.moment import Moment
from polluxsim.run.redrawn import Here, futures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from polluxsim.run.redrawn import Times
    from polluxsim.storage import Run
    from polluxsim.types import JobId

FORKS = 29
"""By default; the 3rd and the 27th are then the ends of an 80 % interval exactly."""

QUANTILES = (0.1, 0.5, 0.9)


class Outlook(NamedTuple):
    """When one job may start and complete."""

    job: JobId
    waits: bool  # whether it holds no GPUs now
    # in each future [s], in no order; ∞ is not within three days, and a job that holds GPUs starts now
    starts: tuple[float, ...]
    completions: tuple[float, ...]


def outlooks(
    moment: Moment[Any],
    jobs: Collection[JobId] | None = None,
    forks: int = FORKS,
    told: Callable[[int], None] = lambda number: None,
    processes: int = 1,
) -> list[Outlook]:
    """Return when jobs (None: all) that wait or run may start and complete, in order of submission.

    So many `forks` are drawn, the same ones each time, by several processes at most where that takes long; `told` is
    called after each with how many there are. It is an `InvalidInputError` if a job neither waits nor runs then.
    """
    if forks < 1:
        raise InvalidInputError(f"{forks} futures are to be drawn, allowed is a whole number ≥ 1")
    here = Here(moment)
    found: list[Times] = []
    here.check(jobs or ())
    asked = [name for name in here.names if jobs is None or name in jobs]
    for future in futures(here, asked, forks, processes):
        found.append(future)
        told(len(found))
    columns = {name: tuple(zip(*(times[name] for times in found), strict=True)) for name in asked}
    return [Outlook(name, name in here.waiting, *columns[name]) for name in asked]


def quantile(times: Sequence[float], share: float) -> float:
    """Return the time that another future would be below with such a chance; ∞ may be among them.

    >>> quantile([3.0, 1.0, 2.0, 7.0], 0.5)
    2.5
    """
    ordered = sorted(times)
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = floor(place + 1e-9)
    rest = place - below
    return ordered[below] if rest < 1e-9 else (1 - rest) * ordered[below] + rest * ordered[below + 1]


def as_frame(found: Sequence[Outlook], time: float) -> pd.DataFrame:
    """Return a row for each job: whether it waits, and the 10 %, 50 % and 90 % quantiles of both its times [s]."""
    rows = [
        {
            "job": each.job,
            "waits": each.waits,
            **{f"start_p{share:.0%}".rstrip("%"): quantile(each.starts, share) for share in QUANTILES},
            **{f"completion_p{share:.0%}".rstrip("%"): quantile(each.completions, share) for share in QUANTILES},
        }
        for each in found
    ]
    frame = pd.DataFrame(rows, columns=None if rows else ["job", "waits"])
    frame.attrs["time"] = time
    return frame


class Check(NamedTuple):
    """How intervals held that were said of one kind of time."""

    what: str  # "starts" or "completions"
    known: int  # times that are the same in all futures, to the second
    uncertain: int
    held: int  # of the uncertain ones, those in their interval


def checked(found: Sequence[Outlook], run: Run, time: float) -> Iterator[Check]:
    """Yield how intervals of 80 % held in what came of a run after a time [s]."""
    ends = {job.job: job.completion_time for job in run.result.job_records}
    begins: dict[JobId, float] = {}
    for change in run.result.allocation_records:
        if change.time >= time and change.nodes:
            begins.setdefault(change.job, change.time)
    waiting = [(each.starts, begins.get(each.job)) for each in found if each.waits]
    for what, pairs in (("starts", waiting), ("completions", [(each.completions, ends[each.job]) for each in found])):
        known = uncertain = held = 0
        for times, came in pairs:
            low, _, high = (quantile(times, share) for share in QUANTILES)
            if came is None:
                continue
            if max(times) - min(times) < 1:
                known += 1
            else:
                uncertain += 1
                held += low <= came <= high
        yield Check(what, known, uncertain, held)


def calibration(
    run: Run, moments: int, forks: int = FORKS, told: Callable[[int], None] = lambda number: None, processes: int = 1
) -> list[Check]:
    """Return how intervals hold that are said at moments of a run, from a quarter of its arrivals on to three.

    `told` is called with how many moments are done.
    """
    found: list[Check] = []
    first, last = (pick(job.submit_time for job in run.result.job_records) for pick in (min, max))
    for number in range(moments):
        moment = Moment(run, first + (last - first) * (0.25 + 0.5 * number / moments))
        found += checked(outlooks(moment, None, forks, processes=processes), run, moment.time)
        told(number + 1)
    whats = dict.fromkeys(check.what for check in found)
    return [
        Check(what, *map(sum, zip(*(each[1:] for each in found if each.what == what), strict=True))) for what in whats
    ]
