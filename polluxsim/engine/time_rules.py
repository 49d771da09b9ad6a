"""How progress becomes time: exactly, or by the whole-second rule of the published results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Milestone(NamedTuple):
    """When a boundary of progress is reached.

    Attributes
    ----------
    time
        The time [s].
    after_round
        Whether a scheduling round at the same instant comes first.
    """

    time: float
    after_round: bool = False


class TimeRule(Protocol):
    """Turns a constant rate of progress into times and back."""

    def reach(self, progress: float, rate: float, start: float, boundary: float) -> Milestone:
        """Return when a job that has `progress` at `start` reaches `boundary`.

        Parameters
        ----------
        progress, boundary
            Work done and to be done [M0-steps].
        rate
            M0-steps per second, positive.
        start
            Time from which the rate holds [s].
        """
        ...

    def course(
        self, progress: float, start: float, rates: Sequence[float], boundaries: Sequence[float]
    ) -> list[tuple[float, bool]]:
        """Return when a job reaches one boundary after the other, each at its own rate, as pairs of `Milestone`.

        Most of them are never reached, as the job gets other GPUs before.
        """
        ...

    def progress_at(self, progress: float, rate: float, start: float, now: float) -> float:
        """Return the progress at `now`, from `start` on, at which the boundary is not reached."""
        ...


@dataclass(frozen=True)
class ExactTime:
    """Time is real: progress is rate times time."""

    def reach(self, progress: float, rate: float, start: float, boundary: float) -> Milestone:
        """Return start + work / rate."""
        return Milestone(start + max(boundary - progress, 0.0) / rate)

    def course(
        self, progress: float, start: float, rates: Sequence[float], boundaries: Sequence[float]
    ) -> list[tuple[float, bool]]:
        """Return the times one after the other."""
        course: list[tuple[float, bool]] = []
        for rate, boundary in zip(rates, boundaries, strict=True):
            start += max(boundary - progress, 0.0) / rate
            progress = boundary
            course.append((start, False))
        return course

    def progress_at(self, progress: float, rate: float, start: float, now: float) -> float:
        """Return progress + rate · time."""
        return progress + rate * (now - start)


@dataclass(frozen=True)
class WholeSeconds:
    """Epochs end at whole seconds, and progress is added up interval by interval.

    Parameters
    ----------
    round_interval
        Length of an interval [s]; intervals start at its multiples.

    Source: the artifact of Pollux (OSDI '21). Its rounding is kept to reproduce its results to the second.
    """

    round_interval: float

    def reach(self, progress: float, rate: float, start: float, boundary: float) -> Milestone:
        """Return the whole second, half to even, of the interval in which the boundary is reached.

        Rounded down to the first instant of the interval it is still within it: the round of that instant is over.
        """
        left = self.round_interval - start % self.round_interval
        if progress + rate * left < boundary:
            progress, start, left = progress + rate * left, start + left, self.round_interval
            step = rate * left
            while progress + step < boundary:
                progress += step
                start += left
        seconds = round((boundary - progress) / rate)
        return Milestone(start + seconds, after_round=not seconds and left == self.round_interval)

    def course(
        self, progress: float, start: float, rates: Sequence[float], boundaries: Sequence[float]
    ) -> list[tuple[float, bool]]:
        """Return the whole seconds one after the other."""
        interval, course = self.round_interval, list[tuple[float, bool]]()
        for rate, boundary in zip(rates, boundaries, strict=True):
            left = interval - start % interval
            if progress + rate * left < boundary:
                start, after_round = self.reach(progress, rate, start, boundary)
            else:
                seconds = round((boundary - progress) / rate)
                start, after_round = start + seconds, not seconds and left == interval
            progress = boundary
            course.append((start, after_round))
        return course

    def progress_at(self, progress: float, rate: float, start: float, now: float) -> float:
        """Return the progress after adding interval by interval, in this order of rounding."""
        left = self.round_interval - start % self.round_interval
        step = rate * self.round_interval
        while start + left <= now:
            progress += rate * left if left != self.round_interval else step
            start += left
            left = self.round_interval
        return progress + rate * (now - start) if now > start else progress
