"""What the logs of Slurm and its kin call the end of a job, and rows that tell start and end."""

from __future__ import annotations

from polluxsim.logs.formats.base import JobStatus

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


def oddities_of_times(submitted: float, start: float | None, end: float | None, duration: float) -> tuple[str, ...]:
    """Return what is suspicious about one job's times [s]; a time the log does not have is None.

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
