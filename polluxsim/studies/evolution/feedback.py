"""Texts for the author of a program: the result, the faults, the worlds and costly rounds.

No text has a true duration, a seed or the name of a job, because a program could use them instead of a good order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from polluxsim.studies.evolution.scoring import Ran, Score
from polluxsim.studies.evolution.worlds import GPUS_PER_NODE

MOST_CHARACTERS = 2000  # longest text, where SkyDiscover cuts
CUT = " …"  # end of a text that was cut

JOB_NAME = re.compile(r"\bjob-[0-9a-f]+\b")  # a name of a job, in the worlds of a task and of `check`

MANY_RESTARTS = 2.0  # restarts of a job from which preemptions are worth a change
WIDE = 1.5  # ratio of waits from which jobs with few or many GPUs are worth a change


def artifacts_of(score: Score) -> dict[str, str]:
    """Return the texts about a score by name."""
    texts = {
        "feedback": _feedback(score),
        "faults": "\n".join(score.faults) or "none",
        "worlds": _table(score.runs) if score.runs else "no world was run to its end",
    }
    if score.rounds:
        texts["rounds"] = score.rounds
    return {name: shortened(text) for name, text in texts.items()}


def shortened(text: str) -> str:
    """Return a text without names of jobs, of at most `MOST_CHARACTERS`.

    >>> shortened("no GPUs for job-0c3f12aa")
    'no GPUs for a job'
    """
    # Messages quote names, and "a job" needs no quotes.
    text = JOB_NAME.sub("a job", text).replace("'a job'", "a job")
    if len(text) > MOST_CHARACTERS:
        return text[: MOST_CHARACTERS - len(CUT)] + CUT
    return text


def _feedback(score: Score) -> str:
    """Return the result, the stage and the first change to try; for a faulty program, the first fault to correct."""
    stage = f"Stage: {score.stage}."
    if score.faults:
        return f"Result: score 0 ({score.status}). {stage} First change to try: correct this. {score.faults[0]}"
    metrics = score.metrics
    interval = f"{100 * metrics['gain_low']:+.1f} to {100 * metrics['gain_high']:+.1f} %"
    result = (
        f"Result: score {score.value:.4f}. The mean JCT is {metrics['jct_over_bound']:.3f} times what no schedule can "
        f"beat, in the worst world {metrics['worst_jct_over_bound']:.3f} times. The gain over the initial program is "
        f"{100 * metrics['gain']:+.1f} % (95 % interval over worlds {interval})."
    )
    return f"{result} {stage} First change to try: {_change(score.runs)}"


def _change(runs: Sequence[Ran]) -> str:
    """Return the change that the runs suggest first: fewer preemptions, a fairer share of waiting, or another order."""
    # Restarts come first, because each costs GPU time whatever the order of the jobs.
    restarts = float(np.mean([record.num_restarts for one in runs for record in one.result.job_records]))
    if restarts > MANY_RESTARTS:
        return (
            f"a job restarts {restarts:.1f} times on average, and does not train during a restart. Preempt less: let a "
            "running job keep its GPUs unless another job is clearly ahead."
        )
    narrow, wide = _waits_by_gpus(runs)
    if wide > WIDE * narrow:
        return (
            f"jobs that request many GPUs wait {wide:.0f} s on average, and jobs that request few GPUs {narrow:.0f} s. "
            "Give more weight to jobs with many GPUs, or keep GPUs together for them."
        )
    if narrow > WIDE * wide:
        return (
            f"jobs that request few GPUs wait {narrow:.0f} s on average, and jobs that request many GPUs {wide:.0f} s. "
            "Start jobs with few GPUs earlier: they cost others little."
        )
    return (
        "order jobs by how much GPU time they have had, and by their GPUs. Jobs that have had little are likely to end "
        "soon."
    )


def _waits_by_gpus(runs: Sequence[Ran]) -> tuple[float, float]:
    """Return the mean time without GPUs of complete jobs with few GPUs, and of those with many [s]; 0 without any.

    A job has many GPUs if it requests more than the median of the complete jobs of its world.
    """
    waits_of_few: list[float] = []
    waits_of_many: list[float] = []
    for one in runs:
        complete = [record for record in one.result.job_records if record.jct is not None]
        if not complete:
            continue
        # The median is taken in each world, because clusters differ in size.
        median = float(np.median([record.num_replicas for record in complete]))
        for record in complete:
            assert record.jct is not None
            waits = waits_of_many if record.num_replicas > median else waits_of_few
            waits.append(record.jct - record.run_time)
    return _mean(waits_of_few), _mean(waits_of_many)


def _mean(values: Sequence[float]) -> float:
    """Return the mean of values; 0 without any."""
    return float(np.mean(values)) if values else 0.0


def _table(runs: Sequence[Ran]) -> str:
    """Return a table of the worlds of a stage."""
    lines = ["world  GPUs  jobs  mean JCT [s]  over bound  over initial  restarts of a job"]
    for number, one in enumerate(runs, start=1):
        world = one.world
        records = one.result.job_records
        restarts = sum(record.num_restarts for record in records) / max(len(records), 1)
        lines.append(
            f"{number:5}  {world.nodes * GPUS_PER_NODE:4}  {len(records):4}  {one.mean_jct:12.0f}  "
            f"{one.mean_jct / world.bound:10.3f}  {one.mean_jct / world.initial:12.3f}  {restarts:17.1f}"
        )
    return "\n".join(lines)
