"""Unlike parts of a batch for workers on GPUs of unlike speed, so that nobody waits for the slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.agent.agent import Workers


class Controller(NamedTuple):
    """A proportional controller of the examples that workers have in a step.

    Attributes
    ----------
    gain
        Share of the change that would make a worker's time the mean one, if it were proportional to its examples.
    dead_band
        Largest change, over what a worker has, that is let be; so is one of less than an example.

    Source: Tyagi and Sharma (ACSOS 2020): a worker's error is its time less the mean of all, and its examples change by
    its examples a second times that.
    """

    gain: float
    dead_band: float

    def parts(self, workers: Sequence[Workers]) -> tuple[float, ...] | None:
        """Return what one worker of each type is to have next, in proportion; None if they keep what they have.

        >>> from polluxsim.agent.agent import Workers
        >>> Controller(1.0, 0.05).parts([Workers("a100", 1, 64, 1.0), Workers("t4", 1, 64, 3.0)])
        (128.0, 42.666666666666664)
        """
        mean = sum(each.gpus * each.time for each in workers) / sum(each.gpus for each in workers)
        changes = [self.gain * (mean / each.time - 1) for each in workers]
        # Less than an example would only move back and forth with rounding.
        moved = max(abs(change) * each.examples for each, change in zip(workers, changes, strict=True))
        if moved < 1 or max(map(abs, changes)) <= self.dead_band:
            return None
        return tuple(each.examples * (1 + change) for each, change in zip(workers, changes, strict=True))
