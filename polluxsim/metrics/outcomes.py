"""What happened to the jobs of a run, and the jobs that an answer leaves out, by reason and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from polluxsim.records.results import JobRecord, Result, Status

NEVER_SUBMITTED = "never submitted"
NEVER_STARTED = "never started"


def outcome(job: JobRecord, end_time: float) -> str:
    """Return what happened to a job by the end of the run [s]: its status, or more precisely why it was cut off.

    A job that was cut off was never submitted, or never started, or it was cut off after its first start.
    """
    if job.status is not Status.CUT_OFF:
        return str(job.status)
    if job.submit_time > end_time:
        return NEVER_SUBMITTED
    if job.start_time is None:
        return NEVER_STARTED
    return str(Status.CUT_OFF)


def incomplete(result: Result) -> Counter[str]:
    """Return the number of jobs that did not complete, by outcome."""
    outcomes = Counter[str]()
    for job in result.job_records:
        if job.is_counted:
            outcomes[outcome(job, result.end_time)] += 1
    del outcomes[str(Status.COMPLETED)]  # no error without completed jobs, because it is a counter
    return outcomes


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return numbers of jobs by reason, the most frequent reason first.

    >>> counts_in_words({"cancelled": 1, "cut off": 12})
    '12 cut off, 1 cancelled'
    """
    # By reason among equal numbers, so that equal counts have equal texts.
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    phrases = []
    for reason, count in ordered:
        if count:
            phrases.append(f"{count:,} {reason}")
    return ", ".join(phrases)


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> number_of(1, "job"), number_of(1254, "job")
    ('1 job', '1,254 jobs')
    """
    ending = "" if count == 1 else "s"
    return f"{count:,} {noun}{ending}"


def how_often(count: float) -> str:
    """Return a number of times in words.

    >>> how_often(0), how_often(1), how_often(102)
    ('never', 'once', '102 times')
    """
    if count == 0:
        return "never"
    if count == 1:
        return "once"
    if count % 1:  # a mean over runs
        return f"{count:,.4g} times"
    return f"{count:,.0f} times"
