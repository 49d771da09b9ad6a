"""Check the batch sizes that a policy chooses."""

from __future__ import annotations

from collections.abc import Mapping

from polluxsim.common.errors import InvalidAllocationError, InvalidBatchSizeError, short
from polluxsim.engine.job import ActiveJob, ChosenBatch
from polluxsim.engine.progress import spread
from polluxsim.engine.state import State
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.models.batch_size import BatchLimits, BatchSize
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.view import Decision


def batches_of(decision: Decision, new: Mapping[JobId, Placement], state: State) -> dict[JobId, ChosenBatch]:
    """Return the batch sizes that a decision names. `new` has the placements that change.

    Raise InvalidAllocationError if a job is not active, and InvalidBatchSizeError if it gets no GPUs, or cannot have
    the batch size on them.
    """
    chosen: dict[JobId, ChosenBatch] = {}
    for job_id, size in decision.batch_sizes.items():
        job = state.jobs.active.get(job_id) if isinstance(job_id, str) else None
        if job is None:
            raise InvalidAllocationError(f"chose a batch size of job {short(job_id)}, which is not active")
        if not isinstance(size, BatchSize):
            must_be = "a BatchSize, like polluxsim.BatchSize(total=64)"
            raise InvalidBatchSizeError(f"chose the batch size {short(size)} of job {job_id!r}, must be {must_be}")
        # An empty placement in `new` takes the job's GPUs, so it must not count as missing.
        placement = new.get(job_id, job.placement)
        if not placement:
            raise InvalidBatchSizeError(f"chose {size!r} of job {job_id!r}, which gets no GPUs: leave the job out")
        chosen[job_id] = _chosen(job, size, placement, state)
    return chosen


def _chosen(job: ActiveJob, size: BatchSize, placement: Placement, state: State) -> ChosenBatch:
    """Return the batch size of a job on a placement. Raise InvalidBatchSizeError outside the limits of the job."""
    types = state.nodes.node_types.names_of(placement)
    _, shape, gpus = spread(placement)
    description = f"chose {size!r} of job {job.job_id!r} on {gpus} GPU{'s' * (gpus != 1)}"
    if job.job.is_rigid:
        raise InvalidBatchSizeError(f"{description}: the job has no profile, so its batch size cannot be chosen")
    fixed = job.truth.application.fixed_batch_size
    if fixed is not None:
        application = job.truth.application.name
        raise InvalidBatchSizeError(f"{description}: {application} cannot change its batch size, {fixed} examples")
    if len(types) > 1:
        raise InvalidBatchSizeError(
            f"{description} of {' and '.join(types)}: they must be of one type, or its agent chooses"
        )
    try:
        truth = job.truth.for_gpu_type(types[0])
        choice = size.split(BatchLimits.of(truth.application), gpus)
        # Only for its error: it raises ProfileRangeError outside the measured range.
        truth.speed_at(shape, choice)
    except (InvalidBatchSizeError, ProfileRangeError) as error:
        raise InvalidBatchSizeError(f"{description}: {error}") from error
    return ChosenBatch(choice, size.this_epoch_only)
