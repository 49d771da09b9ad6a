"""Profile that computes its values from the figures of a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from polluxsim.applications.card import Card, place_in_use
from polluxsim.models.efficiency import GradientStatistics, gain
from polluxsim.models.profile import Application, DoesNotFitError, ProfileRangeError, StepTime, overlapped
from polluxsim.models.sensitivity import Sensitivity

PLACEMENT_CLASSES = ("one_gpu", "one_node", "few_nodes", "many_nodes", "unpacked")
"""Classes of placements with separate errors; see `placement_class`."""

FEW_NODES = 4  # most nodes of the classes `few_nodes` and `unpacked`


def compactness(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> float:
    """Return the smallest number of nodes for a placement's GPUs divided by its number of nodes, at most 1.

    The correction of a step time is raised to this power, because corrections were fitted to packed placements.

    >>> compactness((4, 2), 4), compactness((1, 1, 1, 1), 4)
    (1.0, 0.25)
    """
    return min(-(-sum(gpus_by_node) // gpus_per_node) / len(gpus_by_node), 1.0)


def placement_class(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> str:
    """Return the class of a placement, one of `PLACEMENT_CLASSES`.

    A placement on several GPUs is `one_node` or, on more than four nodes, `many_nodes`. On two to four nodes it is
    `few_nodes` if all nodes but one are full, and otherwise `unpacked`.

    >>> placement_class((4, 2), 4), placement_class((3, 3), 4)
    ('few_nodes', 'unpacked')
    """
    if sum(gpus_by_node) == 1:
        return "one_gpu"
    if len(gpus_by_node) == 1:
        return "one_node"
    if len(gpus_by_node) > FEW_NODES:
        return "many_nodes"
    if is_packed(gpus_by_node, gpus_per_node):
        return "few_nodes"
    return "unpacked"


def is_packed(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> bool:
    """Return whether all nodes but one are full."""
    return all(gpus >= gpus_per_node for gpus in sorted(gpus_by_node)[1:])


@dataclass(frozen=True)
class CardProfile:
    """A profile that computes step times and gradient statistics from the figures of a card.

    `other_type` is a GPU type in the card's `types`, or None for the type of the measurements.
    """

    card: Card
    other_type: str | None = None
    # Policies ask for the same values in every round, and computing one takes many steps in Python. The caches are not
    # compared, because equal cards have equal values.
    _known_totals: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _known_statistics: dict[tuple[int, int], GradientStatistics] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _known_step_times: dict[tuple[tuple[int, ...], int], StepTime] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def application(self) -> Application:
        """Return the application, with the largest atomic batch size that fits in the memory of the type."""
        if self.other_type is None:
            return self.card.application
        other = self.card.types[self.other_type]
        return replace(self.card.application, max_atomic_batch_size=other.max_atomic_batch_size)

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Return the speed by CPUs and memory, or None."""
        return self.card.sensitivity

    @cached_property
    def by_type(self) -> Mapping[str, CardProfile]:
        """Return the profiles on the GPU types of the card, by name; empty if the card states no type."""
        if self.card.gpu_type is None:
            return {}
        profiles = {self.card.gpu_type: CardProfile(self.card)}
        for name in self.card.types:
            profiles[name] = CardProfile(self.card, name)
        return profiles

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time on a placement, given as the GPUs on each of its nodes.

        Raise DoesNotFitError if the examples do not fit in the memory of a GPU, and ProfileRangeError if a node has no
        GPU or the atomic batch size is too small.
        """
        key = (gpus_by_node, atomic_batch_size)
        step_time = self._known_step_times.get(key)
        if step_time is None:
            self._check_step(gpus_by_node, atomic_batch_size)
            step_time = self._known_step_times[key] = self._step_time(gpus_by_node, atomic_batch_size)
        return step_time

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return the statistics of the epoch, scaled so that sqr + var = 1.

        Raise ProfileRangeError if the batch size or the epoch is outside the application's limits.
        """
        statistics = self._known_statistics.get((batch_size, epoch))
        if statistics is not None:
            return statistics
        limits = self.application
        self._check_epoch(epoch)
        if not limits.init_batch_size <= batch_size <= limits.max_batch_size:
            raise ProfileRangeError(
                f"{limits.name}: batch size is {batch_size}, must be {limits.init_batch_size} to "
                f"{limits.max_batch_size}"
            )
        # From φ = M0·var/sqr and sqr + var = 1.
        sqr = limits.init_batch_size / (self.card.noise(batch_size, epoch) + limits.init_batch_size)
        statistics = self._known_statistics[batch_size, epoch] = GradientStatistics(sqr, 1.0 - sqr)
        return statistics

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of the epoch [M0-steps]; epochs have equal lengths.

        Raise ProfileRangeError if there is no such epoch.
        """
        self._check_epoch(epoch)
        return self.card.work * (epoch + 1) / self.application.num_epochs

    @cached_property
    def losses(self) -> Sequence[float]:
        """Return the loss after each epoch; empty if the card has no losses."""
        curve = self.card.losses
        if curve is None:
            return []
        return [curve(epoch + 1) for epoch in range(self.application.num_epochs)]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return M0 times the powers of two, up to and including the largest batch size [examples]."""
        limits = self.application
        sizes = [limits.init_batch_size]
        while 2 * sizes[-1] < limits.max_batch_size:
            sizes.append(2 * sizes[-1])
        if sizes[-1] < limits.max_batch_size:
            sizes.append(limits.max_batch_size)
        return tuple(sizes)

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training at a batch size [examples], from the gain in each epoch.

        Raise ProfileRangeError if the batch size is outside the application's limits.
        """
        total = self._known_totals.get(batch_size)
        if total is None:
            total = self._known_totals[batch_size] = self._iterations(batch_size, 0)
        return total

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps from the end of `epoch` to the end of training; 1 if the epoch is the last one.

        Raise ProfileRangeError if there is no such epoch.
        """
        self._check_epoch(epoch)
        last = self.application.num_epochs - 1
        if epoch >= last:
            return 1.0
        # At least 1, the value of the last epoch, so that the remaining steps never increase.
        return max(self._iterations(batch_size, epoch + 1), 1.0)

    def _iterations(self, batch_size: int, first_epoch: int) -> float:
        """Return the optimiser steps from the start of an epoch to the end of training."""
        scale = batch_size / self.application.init_batch_size
        epochs = range(first_epoch, self.application.num_epochs)
        # An optimiser step makes a progress of `gain` M0-steps, so the steps of an epoch are its work over the gain.
        inverse_gains = (1.0 / gain(self.gradient_statistics(batch_size, epoch), scale) for epoch in epochs)
        return self.card.work / self.application.num_epochs * sum(inverse_gains)

    def _step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time by the figures of the card; the arguments are checked."""
        card = self.card
        num_replicas = sum(gpus_by_node)
        if self.other_type is not None:
            grad, step = card.types[self.other_type](len(gpus_by_node), num_replicas, atomic_batch_size)
            return StepTime(step, step - grad)
        grad = card.grad(num_replicas, min(gpus_by_node), atomic_batch_size)
        if num_replicas == 1:
            return StepTime(grad + card.sync.alone, card.sync.alone)
        num_nodes = len(gpus_by_node)
        # Corrections were fitted on nodes of one size and up to a number of GPUs. Larger placements use the correction
        # of the largest placement, so the formula alone extrapolates.
        corrected_as = min(num_replicas, card.grad.gpus_per_node * num_nodes, card.corrections.num_replicas[-1])
        place = place_in_use(self.application, corrected_as, atomic_batch_size)
        sync = card.sync(num_nodes, num_replicas)
        correction = card.corrections(corrected_as, place) ** compactness(gpus_by_node, card.grad.gpus_per_node)
        step = overlapped(grad, sync, card.sync.gamma) * correction
        # If the correction makes a step shorter than a pass, the time to synchronise is 0, not negative.
        return StepTime(step, max(step - grad, 0.0))

    def _check_step(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> None:
        """Raise ProfileRangeError or DoesNotFitError, as `step_time` does."""
        limits = self.application
        if not gpus_by_node or min(gpus_by_node) < 1:
            problem = f"a placement has {gpus_by_node} GPUs on its nodes, must have 1 or more on each"
            raise ProfileRangeError(f"{limits.name}: {problem}")
        allowed = f"must be {limits.min_atomic_batch_size} to {limits.max_atomic_batch_size}"
        if atomic_batch_size > limits.max_atomic_batch_size:
            where = self.other_type or self.card.gpu_type or "a GPU"
            raise DoesNotFitError(
                f"{limits.name}: {atomic_batch_size} examples do not fit in the memory of {where}, {allowed}"
            )
        if atomic_batch_size < limits.min_atomic_batch_size:
            raise ProfileRangeError(f"{limits.name}: no step time for {atomic_batch_size} examples per GPU, {allowed}")

    def _check_epoch(self, epoch: int) -> None:
        """Raise ProfileRangeError if a training has no such epoch."""
        if not 0 <= epoch < self.application.num_epochs:
            last = self.application.num_epochs - 1
            raise ProfileRangeError(f"{self.application.name}: epoch is {epoch}, must be 0 to {last}")
