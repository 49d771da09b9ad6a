"""What a job logs as it trains, for policies that learn how jobs converge and scale from nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.policies.view import Report

if TYPE_CHECKING:
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.time_rules import TimeRule


def report_of(active: ActiveJob, now: float, rule: TimeRule) -> Report | None:
    """Return what a job has logged by now [s]; None where nobody knows its losses."""
    truth, segment, pace = active.truth, active.segment, active.pace
    if not truth.losses:
        return None
    epoch = segment.epoch
    start = truth.epoch_ends[epoch - 1] if epoch else 0.0
    part = (segment.progress_at(now, rule) - start) / (truth.epoch_ends[epoch] - start)
    if epoch:
        steps = truth.steps_in(epoch - 1, active.job.batch_size)
    else:  # no epoch is known yet but by the size of the data
        steps = truth.epoch_ends[0] * truth.init_batch_size / active.job.batch_size
    step_time = None
    if pace is not None and active.is_training(now):
        step_time = pace.step.optimiser_step(pace.choice.accumulation_steps) / (1 - active.interference)
    return Report(epoch + min(max(part, 0.0), 1.0), tuple(truth.losses[:epoch]), steps, step_time, truth.last_drop)
