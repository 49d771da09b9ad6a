"""Policies that choose the batch sizes of some jobs, for `polluxsim check`."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from zlib import crc32

from polluxsim import BatchSize, Traits
from polluxsim.hardware.placements import num_replicas
from polluxsim.policies.contract.view import Change, decision_of
from polluxsim.policies.tools.gangs import schedule_gangs


def chosen(job, gpus, gpu_type, number):
    """Return one of many valid batch sizes of a job, or None, by a number."""
    limits = job.batch_limits.get(gpu_type)
    if limits is None or number % 5 == 0:
        return None
    only = number % 3 == 0
    most = limits.largest // gpus  # examples per GPU in all passes
    least = max(-(-limits.smallest // gpus), limits.least_per_gpu)
    if least > most:
        return None
    if number % 2:
        total = limits.smallest + number % (limits.largest - limits.smallest + 1)
        return BatchSize(total=max(total, limits.least_per_gpu * gpus), this_epoch_only=only)
    steps = number // 7 % 3
    per_gpu = min(-(-max(least, number % (most + 1)) // (steps + 1)), limits.most_per_gpu)
    if not limits.smallest <= per_gpu * (steps + 1) * gpus <= limits.largest:
        return None
    return BatchSize(per_gpu=per_gpu, accumulation_steps=steps, this_epoch_only=only)


class ChoosesBatchSizes:
    """Gangs in order of submission. Their batch sizes depend on the job and on its GPU time."""

    lasts = False

    def allocate(self, view, rng):
        decision = decision_of(schedule_gangs(view, view.jobs))
        sizes = {}
        for job in view.jobs:
            placement = decision.allocation.get(job.job_id, job.placement if decision.others_keep else ())
            if placement:
                seed = crc32(str(job.job_id).encode()) + (0 if self.lasts else round(job.attained_service / 60))
                size = chosen(job, num_replicas(placement), view.type_of(placement), seed)
                if size is not None:
                    sizes[job.job_id] = size
        until = inf if self.lasts else -inf
        events = Change.JOBS_OR_NODES | Change.EPOCH  # an epoch may end a choice
        return replace(decision, batch_sizes=sizes, valid_until=until, outdated_by=events)


class ChoosesBatchSizesOfAdaptiveJobs(ChoosesBatchSizes):
    """The same, where the agents would choose otherwise."""

    traits = Traits(adaptive=True)


class ChoosesForLong(ChoosesBatchSizes):
    """Its decisions hold until a job arrives, ends or begins an epoch."""

    lasts = True


class ChoosesForLongOfAdaptiveJobs(ChoosesForLong):
    """The same, where the agents would choose otherwise."""

    traits = Traits(adaptive=True)


class ChoosesBatchSizesPerType(ChoosesBatchSizes):
    """A copy for each GPU type, which chooses the batch sizes of its jobs."""

    traits = Traits(per_type=True)
