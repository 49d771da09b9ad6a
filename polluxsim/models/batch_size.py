"""Batch sizes that a policy chooses, and the split of a batch into atomic batches and accumulation steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor
from numbers import Integral
from typing import NamedTuple

from polluxsim.common.errors import InvalidBatchSizeError, short
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
    largest = application.max_batch_size
    largest_atomic = application.max_atomic_batch_size
    least_steps = 1 if num_replicas == 1 and accumulate_alone else 0
    return _split(batch_size, num_replicas, largest, largest_atomic, least_steps)


@lru_cache(1 << 12)  # thousands of jobs need equal splits
def _split(batch_size: int, num_replicas: int, most: int, most_atomic: int, least_steps: int) -> BatchChoice:
    """Split a batch over replicas, within `most` examples and `most_atomic` examples per GPU and pass."""
    local = ceil(batch_size / num_replicas - ROUNDING_SLACK)
    steps = max(ceil(local / most_atomic - ROUNDING_SLACK) - 1, least_steps)
    atomic = ceil(local / (steps + 1) - ROUNDING_SLACK)
    return capped(BatchChoice(atomic, steps), num_replicas, most)


def capped(choice: BatchChoice, num_replicas: int, most: int) -> BatchChoice:
    """Return the choice, with fewer steps or examples if its total is above `most` [examples].

    Each GPU keeps one example or more in each pass, so the total is larger if there are more GPUs than `most`.
    """
    steps = min(choice.accumulation_steps, max(most // num_replicas, 1) - 1)
    fitting = max(most // (num_replicas * (steps + 1)), 1)
    return BatchChoice(min(choice.atomic_batch_size, fitting), steps)


class BatchLimits(NamedTuple):
    """Limits of the batch size of a job on one GPU type [examples]."""

    smallest: int  # of an optimiser step on all GPUs: the initial batch size
    largest: int  # of an optimiser step on all GPUs
    least_per_gpu: int  # in one pass on one GPU
    most_per_gpu: int  # in one pass on one GPU: the memory of the GPU

    @classmethod
    def of(cls, application: Application) -> BatchLimits:
        """Return the limits of an application, also if it has a fixed batch size."""
        return cls(*application.batch_limits)

    def most_accumulation_steps(self, num_gpus: int) -> int:
        """Return the largest number of accumulation steps on `num_gpus` GPUs, with the smallest passes.

        >>> BatchLimits(64, 1024, 16, 128).most_accumulation_steps(8)
        7
        """
        return max(self.largest // (self.least_per_gpu * num_gpus) - 1, 0)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The batch size that a policy chooses for a job: either `total`, or `per_gpu` and `accumulation_steps`.

    Parameters
    ----------
    total
        Examples of an optimiser step on all GPUs. The job takes as few accumulation steps as the memory of its GPUs
        allows, but at least one on a single GPU above the initial batch size, and rounds its parts up to whole examples
        per GPU.
    per_gpu
        Examples of one pass on one GPU.
    accumulation_steps
        Passes before the pass that synchronises. Only with `per_gpu`.
    this_epoch_only
        Whether the agent of the job chooses again from the end of the present epoch on, before the next decision.

    Raises
    ------
    InvalidBatchSizeError
        If both or none of `total` and `per_gpu` are given, or a number is not a whole number in its range.

    Examples
    --------
    >>> BatchSize(total=96).split(BatchLimits(64, 1024, 16, 32), 2)
    BatchChoice(atomic_batch_size=24, accumulation_steps=1)
    """

    total: int | None = None
    per_gpu: int | None = None
    accumulation_steps: int = 0
    this_epoch_only: bool = False

    def __post_init__(self) -> None:
        if (self.total is None) == (self.per_gpu is None):
            raise InvalidBatchSizeError(f"{self!r} must have either total or per_gpu")
        _check_whole(self, "total", self.total, least=1)
        _check_whole(self, "per_gpu", self.per_gpu, least=1)
        _check_whole(self, "accumulation_steps", self.accumulation_steps, least=0)
        if self.accumulation_steps and self.per_gpu is None:
            raise InvalidBatchSizeError(f"{self!r} has accumulation_steps, which need per_gpu instead of total")

    @classmethod
    def of(cls, choice: BatchChoice, *, this_epoch_only: bool = False) -> BatchSize:
        """Return the batch size of a choice, for example of the best choice of a goodput model."""
        return cls(None, choice.atomic_batch_size, choice.accumulation_steps, this_epoch_only)

    def __repr__(self) -> str:
        if self.per_gpu is None:
            stated = f"total={self.total}"
        else:
            stated = f"per_gpu={self.per_gpu}, accumulation_steps={self.accumulation_steps}"
        return f"BatchSize({stated}{', this_epoch_only=True' if self.this_epoch_only else ''})"

    def split(self, limits: BatchLimits, num_gpus: int) -> BatchChoice:
        """Return the division over `num_gpus` GPUs. Raise InvalidBatchSizeError if it is outside the limits."""
        if self.per_gpu is not None:
            choice = BatchChoice(int(self.per_gpu), int(self.accumulation_steps))
            total = choice.batch_size(num_gpus)
        else:
            total = int(self.total or 0)
            least_steps = int(num_gpus == 1 and total > limits.smallest)
            choice = _split(total, num_gpus, limits.largest, limits.most_per_gpu, least_steps)
        if not limits.least_per_gpu <= choice.atomic_batch_size <= limits.most_per_gpu:
            raise InvalidBatchSizeError(
                f"{choice.atomic_batch_size} examples per GPU and pass, must be {limits.least_per_gpu} to "
                f"{limits.most_per_gpu}"
            )
        if not limits.smallest <= total <= limits.largest:
            steps = f" with {choice.accumulation_steps} accumulation steps" if choice.accumulation_steps else ""
            raise InvalidBatchSizeError(
                f"{total} examples in total{steps}, must be {limits.smallest} to {limits.largest}"
            )
        return choice


def _check_whole(size: BatchSize, name: str, value: object, least: int) -> None:
    """Raise InvalidBatchSizeError if a number is not None and not a whole number ≥ `least`."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (is_whole and value >= least):  # type: ignore[operator]
        raise InvalidBatchSizeError(f"{short(size)} has {name}={short(value)}, must be a whole number ≥ {least}")


def split_by_weight(
    limits: Sequence[Application], batch_size: int, gpus: Sequence[int], weights: Sequence[float]
) -> DividedBatch:
    """Split a total batch size [examples] over GPUs of several types by weights, as far as their memories allow.

    `limits`, `gpus` and `weights` have the application, the number of GPUs, and the relative part of one GPU (> 0) for
    each type. The result has the fewest accumulation steps that memory allows. All GPUs of a type have equal parts in
    each step, so the total differs from the batch size: in each step by fewer examples than there are GPUs, unless the
    minimum of a GPU requires more. The rounding does not raise it above the largest batch size.
    """
    largest_sizes = [application.max_atomic_batch_size for application in limits]
    steps = ceil(batch_size / _total(gpus, largest_sizes) - ROUNDING_SLACK) - 1
    smallest_sizes = [application.min_atomic_batch_size for application in limits]
    wanted = max(batch_size / (steps + 1), _total(gpus, smallest_sizes))
    exact = _within(wanted, gpus, weights, list(zip(smallest_sizes, largest_sizes, strict=True)))
    sizes = [floor(size + ROUNDING_SLACK) for size in exact]
    total = _total(gpus, sizes)
    largest = limits[0].max_batch_size // (steps + 1)
    # Rounding down leaves examples over. The types that lost most by it get one more on each GPU.
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index] - exact[index]):
        if total < wanted - ROUNDING_SLACK and sizes[index] < largest_sizes[index] and total + gpus[index] <= largest:
            sizes[index] += 1
            total += gpus[index]
    return DividedBatch(tuple(zip(gpus, sizes, strict=True)), steps)


def _total(gpus: Sequence[int], sizes: Sequence[float]) -> float:
    """Return the examples of all GPUs, from the number of GPUs of each type and the examples on one of them."""
    return sum(count * size for count, size in zip(gpus, sizes, strict=True))


def _within(
    total: float, gpus: Sequence[int], weights: Sequence[float], limits: Sequence[tuple[int, int]]
) -> list[float]:
    """Return the examples per GPU of each type, in proportion to weights within the limits, with a given total.

    If the limits allow no such total, the result has the nearest total that they allow.
    """

    def sizes(scale: float) -> list[float]:
        """Return the examples per GPU of each type at a scale of the weights."""
        return [
            min(max(scale * weight, smallest), largest)
            for weight, (smallest, largest) in zip(weights, limits, strict=True)
        ]

    # The total is linear in the scale between the scales at which a type reaches a limit.
    scales = set()
    for weight, (smallest, largest) in zip(weights, limits, strict=True):
        scales |= {smallest / weight, largest / weight}
    bends = sorted(scales)
    totals = [_total(gpus, sizes(bend)) for bend in bends]
    above = next((index for index, total_at_bend in enumerate(totals) if total_at_bend >= total), len(totals) - 1)
    if above == 0 or totals[above] == totals[above - 1]:
        return sizes(bends[above])
    part = (total - totals[above - 1]) / (totals[above] - totals[above - 1])
    return sizes(bends[above - 1] + part * (bends[above] - bends[above - 1]))
