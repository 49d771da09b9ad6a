"""What several readers share: states, reasons to leave out rows, suspicious times, and gangs of several rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.logs.formats.base import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.logs.formats.base import LogJob

ENDED = {
    "COMPLETED": JobStatus.COMPLETED,
    "CANCELLED": JobStatus.CANCELLED,
    "FAILED": JobStatus.FAILED,
    "TIMEOUT": JobStatus.TIMEOUT,
    "NODE_FAIL": JobStatus.NODE_FAIL,
}
"""The five states in which the Helios and Acme logs count a job as ended."""

END_BEFORE_START = "end before start"
START_BEFORE_SUBMISSION = "start before submission"
DURATION_DIFFERS = "duration is not end - start"
NO_GPU = "no GPU (CPU-only)"
NEVER_RAN = "never ran (no start)"
NO_END = "no end"
SEVERAL_TYPES = "GPUs of several types, which can be replayed on any one"


def oddities_of_times(submitted: float, start: float | None, end: float | None, duration: float) -> tuple[str, ...]:
    """Return the suspicious relations between the times of a job [s]. Unknown times are None.

    >>> oddities_of_times(submitted=10, start=5, end=8, duration=3)
    ('start before submission',)
    """
    found = []
    if start is not None and start < submitted:
        found.append(START_BEFORE_SUBMISSION)
    if start is not None and end is not None:
        if end < start:
            found.append(END_BEFORE_START)
        elif abs(end - start - duration) > 1:
            found.append(DURATION_DIFFERS)
    return tuple(found)


def as_gang(first: LogJob, part: LogJob, extras: Sequence[str]) -> LogJob:
    """Return a job with the GPUs of a further row of the same gang. `extras` names the extra columns of both.

    The duration of the gang is the longest duration of its parts. If the parts have different GPU types, the type of
    the gang is unknown.
    """
    durations = [job.duration for job in (first, part) if job.duration is not None]
    whole = first._replace(num_gpus=first.num_gpus + part.num_gpus, duration=max(durations, default=None))
    place = extras.index("gpu_type")
    if first.extras[place] == part.extras[place]:
        return whole
    oddities = dict.fromkeys((*first.oddities, SEVERAL_TYPES))
    return whole._replace(extras=(*first.extras[:place], None, *first.extras[place + 1 :]), oddities=tuple(oddities))
