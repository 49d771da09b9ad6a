"""A summary of the waits and changes of a job, before the list of its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from polluxsim.common.durations import clock
from polluxsim.common.phrases import listed, number_of
from polluxsim.look.why.sentences import sentence
from polluxsim.look.why.stages import Stage, stages
from polluxsim.look.why.story import UNKNOWN, before_first_round
from polluxsim.records.results import JobRecord, ReasonRecord
from polluxsim.records.storage import Run

CHANGES = (
    "moved",
    "grew",
    "shrank",
)  # events of stages in which a job changes its GPUs and holds some before and after


def overview(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord) -> str:
    """Return how often a job waited, changed its GPUs and restarted, and its longest wait with the last reason for it.

    The text is empty for a job that was not submitted before the end of the run.
    """
    job_stages = stages(run, job)
    if not job_stages:
        return ""
    waits = [stage for stage in job_stages if not stage.gpus]
    events = Counter(stage.event for stage in job_stages)
    changes = []
    for event in CHANGES:
        if events[event]:
            changes.append(f"{event} {number_of(events[event], 'time')}")
    phrases = [f"waited {number_of(len(waits), 'time')}", *changes, f"restarted {number_of(job.num_restarts, 'time')}"]
    text = f"It {listed(phrases)}."
    if not waits:
        return text
    longest = max(waits, key=lambda stage: stage.end - stage.start)
    text += f" Its longest wait was {clock(longest.end - longest.start)}, from {run.clock(longest.start)} on"
    reason = _last_reason(reasons, job, longest)
    if reason is None:
        between_rounds = before_first_round(run, longest)
        if between_rounds == UNKNOWN:
            return f"{text}; no reason for it is recorded."
        return f"{text}. {between_rounds}"
    return f"{text}. The last reason, at {run.clock(reason.time)}: {sentence(reason, run.result.reason_texts)}"


def _last_reason(reasons: Sequence[ReasonRecord], job: JobRecord, wait: Stage) -> ReasonRecord | None:
    """Return the last reason of the policy for a wait; None without any."""
    reasons_of_wait = [reason for reason in reasons if reason.job == job.job and wait.start <= reason.time < wait.end]
    if not reasons_of_wait:
        return None
    return reasons_of_wait[-1]
