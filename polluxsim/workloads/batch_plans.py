"""How jobs of Gavel's applications change their batch size: never, by Accordion, or by the noise scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODES = ("static", "accordion", "gns")


class Trained(NamedTuple):
    """What is known of an application: examples of an epoch, and its largest batch size."""

    examples: int
    largest: int


APPLICATIONS: Mapping[str, Trained] = {
    "ResNet-18": Trained(50_000, 256),
    "ResNet-50": Trained(100_000, 128),
    "Transformer": Trained(10_000, 128),
    "LM": Trained(59_675, 80),
    "Recommendation": Trained(117_907, 8192),
}
"""Source: Shockwave (NSDI '23) and its simulator."""


class Course(NamedTuple):
    """A training whose batch sizes are asked for, by one of `MODES`; its last epoch may be short.

    Noise-scale steps double at epochs, from 1, from which the batch size is 2, 4, 8, … times the first [examples].
    """

    model: str
    mode: str
    first: int
    num_epochs: int
    doubles_at: Sequence[int] = ()

    @property
    def largest(self) -> int:
        """Return the largest batch size of its application [examples]."""
        return APPLICATIONS[self.model].largest

    def size(self, epoch: int) -> int:
        """Return the batch size that it trains at in an epoch, from 0 [examples]."""
        if self.mode == "accordion" and self.model != "Transformer" and not _is_critical(self, epoch):
            return self.largest
        if self.mode == "gns":
            return self._doubled(sum(epoch + 1 >= start for start in self.doubles_at))
        return self.first

    def expected_size(self, epoch: int) -> int:
        """Return the batch size that its user expects in an epoch, from 0 [examples].

        A plan of Accordion's trusts the first 30 % of all epochs to be critical, and knows some more that are.
        """
        if self.mode == "accordion":
            is_early = epoch <= 0.3 * self.num_epochs
            return self.first if is_early or _is_thought_critical(self, epoch) else self.size(epoch)
        if self.mode == "gns":
            steps = sum(epoch >= start for start in self.doubles_at)
            is_odd_end = len(self.doubles_at) > 1 and steps > 1 and epoch == self.num_epochs - 1
            return self.first if is_odd_end else self._doubled(steps)
        return self.first

    def _doubled(self, times: int) -> int:
        return min(self.first << times, self.largest)


def _is_critical(course: Course, epoch: int) -> bool:
    """Return whether gradients change too fast for a large batch. Source: as `APPLICATIONS`."""
    model, first = course.model, course.first
    if model == "ResNet-18":
        return epoch < (20 if first == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260
    if model == "ResNet-50":
        return epoch % 30 < 10
    return epoch < {512: 30, 1024: 30, 2048: 40}.get(first, 10)


def _is_thought_critical(course: Course, epoch: int) -> bool:
    return course.model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
