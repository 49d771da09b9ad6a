"""One job alone: its completion time on GPUs that never change, in continuous time and without restarts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.efficiency import gain
from polluxsim.models.goodput import NUM_CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.models.profile import Profile
    from polluxsim.types import BatchChoice


@dataclass(frozen=True)
class Alone:
    """One application on one placement."""

    profile: Profile
    gpus_by_node: tuple[int, ...]
    _step_times: dict[BatchChoice, float] = field(default_factory=dict, init=False, repr=False)

    def fixed_time(self, choice: BatchChoice) -> float:
        """Return the completion time at one batch choice [s]."""
        epochs = range(self.profile.application.num_epochs)
        return sum(self._length(epoch) / self._rate(choice, epoch) for epoch in epochs)

    def adaptive_time(self) -> float:
        """Return the completion time at the choice of most true goodput in every epoch [s]."""
        return sum(length / max(rates) for length, rates in self._epochs())

    def use(self, sharpness: float) -> dict[BatchChoice, float]:
        """Return how much each choice matters to a job that chooses well, 1 in all.

        Every epoch's share of the completion time is divided in proportion to goodput to the power of `sharpness`.
        """
        use = dict.fromkeys(self.choices, 0.0)
        for length, rates in self._epochs():
            shares = [(rate / max(rates)) ** sharpness for rate in rates]
            for choice, share in zip(self.choices, shares, strict=True):
                use[choice] += length / max(rates) * share / sum(shares)
        total = sum(use.values())
        return {choice: part / total for choice, part in use.items()}

    def step_time(self, choice: BatchChoice) -> float:
        """Return the time of one optimiser step [s]."""
        if (known := self._step_times.get(choice)) is None:
            step = self.profile.step_time(self.gpus_by_node, choice.atomic_batch_size)
            known = self._step_times[choice] = step.optimiser_step(choice.accumulation_steps)
        return known

    def _epochs(self) -> Iterator[tuple[float, list[float]]]:
        """Yield each epoch's length [M0-steps] and progress per second at each choice [M0-steps/s]."""
        for epoch in range(self.profile.application.num_epochs):
            yield self._length(epoch), [self._rate(choice, epoch) for choice in self.choices]

    def _length(self, epoch: int) -> float:
        return self.profile.epoch_end(epoch) - (self.profile.epoch_end(epoch - 1) if epoch else 0.0)

    def _rate(self, choice: BatchChoice, epoch: int) -> float:
        """Return the progress per second, goodput over M0 [M0-steps/s]."""
        batch_size = choice.batch_size(sum(self.gpus_by_node))
        scale = batch_size / self.profile.application.init_batch_size
        return gain(self.profile.gradient_statistics(batch_size, epoch), scale) / self.step_time(choice)

    @cached_property
    def choices(self) -> list[BatchChoice]:
        """Return what 50 batch sizes in geometric steps come to, each once."""
        limits, num_replicas = self.profile.application, sum(self.gpus_by_node)
        smallest = max(limits.init_batch_size, limits.min_atomic_batch_size * num_replicas)
        ratio, last = limits.max_batch_size / smallest, NUM_CANDIDATES - 1
        sizes = [round(smallest * ratio ** (step / last)) for step in range(NUM_CANDIDATES)]
        choices = dict.fromkeys(split_batch_size(limits, size, num_replicas) for size in sizes)
        enough = (choice for choice in choices if choice.atomic_batch_size >= limits.min_atomic_batch_size)
        return [choice for choice in enough if choice.batch_size(num_replicas) >= limits.init_batch_size]
