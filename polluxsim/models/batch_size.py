"""Split a total batch size into atomic batches and accumulation steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor

from polluxsim.hardware.placements import BatchChoice, DividedBatch
from polluxsim.models.profile import Application

ROUNDING_SLACK = 1e-8  # excess of a quotient over a whole number that counts as an error of rounding


def split_batch_size(
    application: Application, batch_size: int, num_replicas: int, *, accumulate_alone: bool | None = None
) -> BatchChoice:
    """Split a total batch size [examples] over replicas, with as few accumulation steps as the GPU's memory allows.

    Parts are rounded up to whole examples per GPU, then capped so that the total stays within the largest batch size.
    With `accumulate_alone`, a single GPU takes at least two passes, so that the noise scale can be measured. By default
    it does so if the batch is larger than the initial batch size. The smallest atomic batch size is not a limit here.

    Source: artifact of Pollux (OSDI '21).
    """
    if accumulate_alone is None:
        accumulate_alone = batch_size > application.init_batch_size
    most, most_atomic = application.max_batch_size, application.max_atomic_batch_size
    return _split(batch_size, num_replicas, most, most_atomic, int(num_replicas == 1 and accumulate_alone))


@lru_cache(1 << 12)  # thousands of jobs need equal splits
def _split(batch_size: int, num_replicas: int, most: int, most_atomic: int, least_steps: int) -> BatchChoice:
    local = ceil(batch_size / num_replicas - ROUNDING_SLACK)
    steps = max(ceil(local / most_atomic - ROUNDING_SLACK) - 1, least_steps)
    atomic = ceil(local / (steps + 1) - ROUNDING_SLACK)
    return capped(BatchChoice(atomic, steps), num_replicas, most)


def capped(choice: BatchChoice, num_replicas: int, most: int) -> BatchChoice:
    """Return the choice with fewer examples or steps, so that the total is at most `most` [examples].

    Each GPU keeps one example or more in each pass, so the total is larger if there are more GPUs than `most`.
    """
    steps = min(choice.accumulation_steps, max(most // num_replicas, 1) - 1)
    fitting = max(most // (num_replicas * (steps + 1)), 1)
    return BatchChoice(min(choice.atomic_batch_size, fitting), steps)


def split_by_weight(
    limits: Sequence[Application], batch_size: int, gpus: Sequence[int], weights: Sequence[float]
) -> DividedBatch:
    """Split a total batch size [examples] over GPUs of several types by weights, as far as their memories allow.

    `limits`, `gpus` and `weights` have the application, the number of GPUs, and the relative part of one GPU (> 0) for
    each type. The result has the fewest accumulation steps that memory allows. All GPUs of a type have equal parts in
    each step, so the total differs from the batch size: in each step by fewer examples than there are GPUs, unless the
    minimum of a GPU requires more. The rounding does not raise it above the largest batch size.
    """
    most = [each.max_atomic_batch_size for each in limits]
    steps = ceil(batch_size / _total(gpus, most) - ROUNDING_SLACK) - 1
    least = [each.min_atomic_batch_size for each in limits]
    wanted = max(batch_size / (steps + 1), _total(gpus, least))
    exact = _within(wanted, gpus, weights, list(zip(least, most, strict=True)))
    sizes = [floor(size + ROUNDING_SLACK) for size in exact]
    total, largest = _total(gpus, sizes), limits[0].max_batch_size // (steps + 1)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index] - exact[index]):
        if total < wanted - ROUNDING_SLACK and sizes[index] < most[index] and total + gpus[index] <= largest:
            sizes[index] += 1
            total += gpus[index]
    return DividedBatch(tuple(zip(gpus, sizes, strict=True)), steps)


def _total(gpus: Sequence[int], sizes: Sequence[float]) -> float:
    """Return the examples of all GPUs, from the number of GPUs of each type and the examples on one of them."""
    return sum(count * size for count, size in zip(gpus, sizes, strict=True))


def _within(
    total: float, gpus: Sequence[int], weights: Sequence[float], limits: Sequence[tuple[int, int]]
) -> list[float]:
    """Return the examples per GPU of each type, in proportion to weights within the limits, with a given total."""

    def sizes(scale: float) -> list[float]:
        return [min(max(scale * weight, least), most) for weight, (least, most) in zip(weights, limits, strict=True)]

    # The total is linear in the scale between the scales at which a type reaches a limit.
    bends = sorted({limit / weight for weight, pair in zip(weights, limits, strict=True) for limit in pair})
    totals = [_total(gpus, sizes(bend)) for bend in bends]
    above = next((index for index, there in enumerate(totals) if there >= total), len(totals) - 1)
    if above == 0 or totals[above] == totals[above - 1]:
        return sizes(bends[above])
    part = (total - totals[above - 1]) / (totals[above] - totals[above - 1])
    return sizes(bends[above - 1] + part * (bends[above] - bends[above - 1]))
