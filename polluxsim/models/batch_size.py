"""How a job with a given total batch size splits it into atomic batches and accumulation steps."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from polluxsim.types import BatchChoice

if TYPE_CHECKING:
    from polluxsim.models.profile import Application

# A quotient this little above a whole number is that number: it came from rounding in a division.
ROUNDING_SLACK = 1e-8


def split_batch_size(
    application: Application, batch_size: int, num_replicas: int, *, accumulate_alone: bool | None = None
) -> BatchChoice:
    """Split a batch over replicas: as few accumulation steps as the GPU's memory allows.

    Parameters
    ----------
    application
        Limits of the atomic batch size.
    batch_size
        Total batch size [examples].
    num_replicas
        GPUs, at least 1.
    accumulate_alone
        Whether a single GPU takes at least two passes, so that the noise scale can be measured; by default when
        the batch is larger than the initial one.

    Returns
    -------
    BatchChoice
        Rounded up to whole examples per GPU, then capped so that the total stays within the largest batch size.

    Source: artifact of Pollux (OSDI '21).
    """
    local = ceil(batch_size / num_replicas - ROUNDING_SLACK)
    steps = ceil(local / application.max_atomic_batch_size - ROUNDING_SLACK) - 1
    if accumulate_alone is None:
        accumulate_alone = batch_size > application.init_batch_size
    if num_replicas == 1 and accumulate_alone:
        steps = max(steps, 1)
    atomic = ceil(local / (steps + 1) - ROUNDING_SLACK)
    return capped(application, BatchChoice(atomic, steps), num_replicas)


def capped(application: Application, choice: BatchChoice, num_replicas: int) -> BatchChoice:
    """Return the choice with its atomic batch size lowered until the total fits the largest batch size."""
    passes = num_replicas * (choice.accumulation_steps + 1)
    most = application.max_batch_size // passes
    return choice if choice.atomic_batch_size <= most else BatchChoice(most, choice.accumulation_steps)
