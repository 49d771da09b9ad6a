"""Whose reasons a policy is asked for: enough to answer for any job at any time, few enough to cost next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from heapq import heappop, heappush
from math import isnan
from typing import TYPE_CHECKING

from polluxsim.errors import PolicyError, short
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

    from polluxsim.types import JobId

RUNNING = 8
"""Rounds after which the reasons of a job that runs on are due for the first time."""


class Inquiry:
    """Says whose reasons are due at a round.

    A job's are due when it is new, when its placement changes, and then, while it waits, 1, 2, 4, 8 … round intervals
    later each; while it runs on unchanged, 8, 16, 32 … So their number grows with the logarithm of such a stretch only.
    That holds of `changes`; of `rounds`, all jobs' are due at every round, and of `none` nobody's.
    """

    def __init__(self, whose: str, round_interval: float) -> None:
        self._whose = whose
        self._first_gaps = {False: round_interval, True: RUNNING * round_interval}
        self._interval = round_interval
        self._due: dict[JobId, float] = {}
        self._gaps: dict[JobId, float] = {}
        self._queue: list[tuple[float, int, JobId]] = []
        self._count = 0
        self._pending: set[JobId] = set()

    def submitted(self, job_id: JobId) -> None:
        """Take note of an arrival."""
        if self._whose == "changes":
            self._call(job_id, 0.0)

    def ended(self, job_id: JobId) -> None:
        """Forget a job that has ended."""
        self._due.pop(job_id, None)
        self._gaps.pop(job_id, None)
        self._pending.discard(job_id)

    def due(self, now: float, moved: Collection[JobId], active: Iterable[JobId]) -> list[JobId]:
        """Return the jobs whose reasons are due, and remain so until `asked` is told of them."""
        if self._whose != "changes":
            return list(active) if self._whose == "rounds" else []
        while self._queue and self._queue[0][0] <= now:
            time, _, job_id = heappop(self._queue)
            if self._due.get(job_id) == time:
                self._pending.add(job_id)
        # In an order that does not depend on how a set is laid out in memory.
        return sorted(self._pending.union(moved))

    def asked(self, now: float, jobs: Iterable[JobId], moved: Container[JobId], placed: Container[JobId]) -> None:
        """Take note that the policy has been asked about jobs that were due."""
        if self._whose != "changes":
            return
        self._pending.clear()
        for job_id in jobs:
            gap = self._gaps.get(job_id)
            if gap is None or job_id in moved:
                gap = self._first_gaps[job_id in placed]
            self._gaps[job_id] = 2 * gap
            # Half a round earlier, so that rounding cannot put it off to the round after.
            self._call(job_id, now + gap - self._interval / 2)

    def _call(self, job_id: JobId, time: float) -> None:
        self._due[job_id] = time
        self._count += 1
        heappush(self._queue, (time, self._count, job_id))

    def __deepcopy__(self, memo: dict[int, object]) -> Inquiry:
        new = copy(self)
        new._due, new._gaps, new._queue = self._due.copy(), self._gaps.copy(), self._queue.copy()
        new._pending = self._pending.copy()
        return new


def checked_reasons(answer: object, asked: Iterable[JobId]) -> Mapping[JobId, Reason]:
    """Return a policy's reasons with plain numbers, of the jobs asked about that it speaks of.

    Raises
    ------
    PolicyError
        If they are not a mapping of jobs to reasons, or of others than those asked about.
    """
    if not isinstance(answer, Mapping):
        raise PolicyError(f"the policy explained itself by {short(answer)}, allowed is a mapping of jobs to reasons")
    known = set(asked)
    if stray := [job_id for job_id in answer if job_id not in known]:
        raise PolicyError(f"the policy explained job {short(stray[0])}, which it was not asked about")
    return {job_id: _reason(job_id, reason) for job_id, reason in answer.items()}


def _reason(job_id: object, reason: object) -> Reason:
    try:
        kind, numbers, others = reason  # type: ignore[misc]
        plain = dict(zip(map(str, numbers), map(float, numbers.values()), strict=True))  # type: ignore[has-type]
        if not isinstance(kind, str) or any(map(isnan, plain.values())):  # type: ignore[has-type]
            raise TypeError
        return Reason(kind, plain, tuple(map(str, others)))  # type: ignore[has-type]
    except (TypeError, ValueError, AttributeError):
        raise PolicyError(
            f"the policy explained job {job_id!r} by {short(reason)}, allowed is a Reason(kind, numbers, others)"
        ) from None
