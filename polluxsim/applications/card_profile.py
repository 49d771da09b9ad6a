"""Profile that answers the simulator's questions from the figures of a card."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from polluxsim.applications.card import place_in_use
from polluxsim.models.efficiency import GradientStatistics, gain
from polluxsim.models.overlap import overlapped
from polluxsim.models.profile import DoesNotFitError, ProfileRangeError, StepTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.applications.card import Card
    from polluxsim.models.profile import Application
    from polluxsim.models.sensitivity import Sensitivity

PLACEMENT_CLASSES = ("one_gpu", "one_node", "few_nodes", "many_nodes", "unpacked")
"""Kinds of placements by which errors are told apart, see `placement_class`."""

FEW_NODES = 4


def compactness(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> float:
    """Return the fewest nodes that could hold a placement's GPUs over the nodes that do, at most 1.

    Corrections are learnt on packed placements, and count so much on others.

    >>> compactness((4, 2), 4), compactness((1, 1, 1, 1), 4)
    (1.0, 0.25)
    """
    return min(-(-sum(gpus_by_node) // gpus_per_node) / len(gpus_by_node), 1.0)


def placement_class(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> str:
    """Return which of `PLACEMENT_CLASSES` a placement belongs to.

    `few_nodes` are placements on up to four nodes of which all but one are full; `unpacked` are the others on
    up to four; `many_nodes` are all on more.

    >>> placement_class((4, 2), 4), placement_class((3, 3), 4)
    ('few_nodes', 'unpacked')
    """
    if sum(gpus_by_node) == 1:
        return "one_gpu"
    if len(gpus_by_node) == 1:
        return "one_node"
    if len(gpus_by_node) > FEW_NODES:
        return "many_nodes"
    return "few_nodes" if is_packed(gpus_by_node, gpus_per_node) else "unpacked"


def is_packed(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> bool:
    """Return whether all nodes but one are full."""
    return all(gpus >= gpus_per_node for gpus in sorted(gpus_by_node)[1:])


@dataclass(frozen=True)
class CardProfile:
    """A profile that computes everything from a card.

    Parameters
    ----------
    card
        The figures.
    other_type
        Name of the type of GPU in the card's `types`; None for the one that it was measured on.
    """

    card: Card
    other_type: str | None = None

    @cached_property
    def application(self) -> Application:
        """Return the application's properties, with what fits the memory of the type."""
        if self.other_type is None:
            return self.card.application
        most = self.card.types[self.other_type].max_atomic_batch_size
        return replace(self.card.application, max_atomic_batch_size=most)

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Return how fast it is by CPUs and memory; None if the card does not say."""
        return self.card.sensitivity

    @cached_property
    def by_type(self) -> Mapping[str, CardProfile]:
        """Return the profiles of the types that the card knows, by name; empty if it does not say which it is of."""
        if self.card.gpu_type is None:
            return {}
        return {self.card.gpu_type: CardProfile(self.card)} | {
            name: CardProfile(self.card, name) for name in self.card.types
        }

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time on any placement."""
        key = (gpus_by_node, atomic_batch_size)
        if (known := self._known_step_times.get(key)) is None:
            self._check_step(gpus_by_node, atomic_batch_size)
            known = self._known_step_times[key] = self._step_time(gpus_by_node, atomic_batch_size)
        return known

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return the statistics of the epoch, scaled so that sqr + var = 1.

        Raises
        ------
        ProfileRangeError
            If the batch size is outside the application's limits, or training has no such epoch.
        """
        if (known := self._known_statistics.get((batch_size, epoch))) is not None:
            return known
        limits = self.application
        self._check_epoch(epoch)
        if not limits.init_batch_size <= batch_size <= limits.max_batch_size:
            raise ProfileRangeError(
                f"{limits.name}: batch size {batch_size}, "
                f"allowed are {limits.init_batch_size} to {limits.max_batch_size}"
            )
        sqr = limits.init_batch_size / (self.card.noise(batch_size, epoch) + limits.init_batch_size)
        known = self._known_statistics[batch_size, epoch] = GradientStatistics(sqr, 1.0 - sqr)
        return known

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of the epoch: epochs are of equal length."""
        self._check_epoch(epoch)
        return self.card.work * (epoch + 1) / self.application.num_epochs

    @cached_property
    def losses(self) -> Sequence[float]:
        """Return the loss after each epoch, empty if the card does not say."""
        curve = self.card.losses
        return [] if curve is None else [curve(epoch + 1) for epoch in range(self.application.num_epochs)]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the powers of two times M0 up to the largest batch size, and that [examples]."""
        limits = self.application
        sizes = [limits.init_batch_size]
        while 2 * sizes[-1] < limits.max_batch_size:
            sizes.append(2 * sizes[-1])
        return (*sizes, limits.max_batch_size) if limits.max_batch_size > sizes[-1] else tuple(sizes)

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training by the gain."""
        if (known := self._known_totals.get(batch_size)) is None:
            known = self._known_totals[batch_size] = self._iterations(batch_size, 0)
        return known

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps from the end of `epoch` to the last by the gain; 1 if it is the last."""
        self._check_epoch(epoch)
        last = self.application.num_epochs - 1
        if epoch >= last:
            return 1.0
        # No fewer than the 1 of the last epoch, so that training never seems to recede.
        return max(self._iterations(batch_size, epoch + 1), 1.0)

    def _iterations(self, batch_size: int, first_epoch: int) -> float:
        """Return the optimiser steps from the start of an epoch to the end of training."""
        scale = batch_size / self.application.init_batch_size
        epochs = range(first_epoch, self.application.num_epochs)
        inverse_gains = (1.0 / gain(self.gradient_statistics(batch_size, epoch), scale) for epoch in epochs)
        return self.card.work / self.application.num_epochs * sum(inverse_gains)

    @cached_property
    def _known_totals(self) -> dict[int, float]:
        return {}

    @cached_property
    def _known_statistics(self) -> dict[tuple[int, int], GradientStatistics]:
        return {}

    @cached_property
    def _known_step_times(self) -> dict[tuple[tuple[int, ...], int], StepTime]:
        return {}

    def _step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        card, num_replicas = self.card, sum(gpus_by_node)
        if self.other_type is not None:
            grad, step = card.types[self.other_type](len(gpus_by_node), num_replicas, atomic_batch_size)
            return StepTime(step, step - grad)
        grad = card.grad(num_replicas, min(gpus_by_node), atomic_batch_size)
        if num_replicas == 1:
            return StepTime(grad + card.sync.alone, card.sync.alone)
        num_nodes = len(gpus_by_node)
        # Corrections were learned on nodes of one size and so many GPUs: what is larger is corrected as the
        # largest known, so that the formula alone says how time grows beyond.
        corrected_as = min(num_replicas, card.grad.gpus_per_node * num_nodes, card.corrections.num_replicas[-1])
        place = place_in_use(self.application, corrected_as, atomic_batch_size)
        sync = card.sync(num_nodes, num_replicas)
        correction = card.corrections(corrected_as, place) ** compactness(gpus_by_node, card.grad.gpus_per_node)
        step = overlapped(grad, sync, card.sync.gamma) * correction
        # A step corrected to less than a pass is all pass: synchronising never takes negative time.
        return StepTime(step, max(step - grad, 0.0))

    def _check_step(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> None:
        limits = self.application
        if not gpus_by_node or min(gpus_by_node) < 1:
            raise ProfileRangeError(
                f"{limits.name}: no step time on {gpus_by_node} GPUs, allowed is 1 or more on a node"
            )
        allowed = f"allowed are {limits.min_atomic_batch_size} to {limits.max_atomic_batch_size}"
        if atomic_batch_size > limits.max_atomic_batch_size:
            where = self.other_type or self.card.gpu_type or "a GPU"
            raise DoesNotFitError(
                f"{limits.name}: {atomic_batch_size} examples do not fit in memory of {where}, {allowed}"
            )
        if atomic_batch_size < limits.min_atomic_batch_size:
            raise ProfileRangeError(f"{limits.name}: no step time for {atomic_batch_size} examples per GPU, {allowed}")

    def _check_epoch(self, epoch: int) -> None:
        if not 0 <= epoch < self.application.num_epochs:
            raise ProfileRangeError(
                f"{self.application.name}: epoch {epoch}, allowed are 0 to {self.application.num_epochs - 1}"
            )
