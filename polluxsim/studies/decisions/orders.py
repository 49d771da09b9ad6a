"""The possible orders of the events of one second, and the starts of a policy in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple, Protocol

from polluxsim.studies.decisions.record import RecordedJob, Second, Started

UNSEEN = 0
COMPLETING = 1
SEEN = 2
"""What a scheduler knows of an end: nothing, that the job ended but its node still completes, or that it ended."""

MOST_ENDS = 6  # ends of one second whose states vary one by one; more ends have the same state


class SeenState(NamedTuple):
    """What a scheduler sees when it runs."""

    second: int
    running: tuple[RecordedJob, ...]
    completing: tuple[RecordedJob, ...]
    pending: tuple[RecordedJob, ...]  # in order of submission
    # Nodes of the jobs that an earlier pass of the second started, by name. They are among `running`.
    started: tuple[Started, ...] = ()


class Decider(Protocol):
    """A policy that decides at a moment."""

    @property
    def schedulers(self) -> Sequence[str]:
        """Return the names of the schedulers that may run: one for most policies."""

    @property
    def judges_quiet(self) -> bool:
        """Return whether the policy decides in every second, so that a second without a start tells something."""

    def starts(self, moment: SeenState, scheduler: str) -> frozenset[Started]:
        """Return the jobs that the policy starts, and those that it preempts for them."""

    def reasons(self, moment: SeenState, scheduler: str) -> dict[str, str]:
        """Return why each pending job starts or waits, in words; empty for a policy without reasons."""


class SeenEvents(NamedTuple):
    """The events of a second that a pass sees: the first submissions, and the state of each end."""

    num_submitted: int
    ends: tuple[int, ...]

    def has_more_than(self, other: SeenEvents) -> bool:
        """Return whether a pass sees all events that another one sees, and a further one."""
        if self == other or self.num_submitted < other.num_submitted:
            return False
        # The states of an end rise with what a scheduler knows of it.
        return all(state >= earlier for state, earlier in zip(self.ends, other.ends, strict=True))


class Attempt(NamedTuple):
    """The starts of one possible order, with the last pass."""

    starts: frozenset[Started]
    moment: SeenState
    scheduler: str


def views_of(second: Second) -> Iterator[SeenEvents]:
    """Yield what a pass of a second may see, first all events, which is the most frequent case."""
    states: Iterable[tuple[int, ...]] = product((SEEN, UNSEEN, COMPLETING), repeat=len(second.ended))
    # Three states of each end make 3^7 views of 7 ends, each of which asks the policy.
    if len(second.ended) > MOST_ENDS:
        states = ((state,) * len(second.ended) for state in (SEEN, UNSEEN, COMPLETING))
    for ends in states:
        for num_submitted in range(len(second.submitted), -1, -1):
            yield SeenEvents(num_submitted, ends)


def moment_of(second: Second, seen: SeenEvents, first: frozenset[Started] = frozenset()) -> SeenState:
    """Return what a pass sees after the starts of the first pass, if there was one."""
    states = {job.name: state for job, state in zip(second.ended, seen.ends, strict=True)}
    present = [*second.pending, *second.submitted[: seen.num_submitted]]
    names = {start.job for start in first}
    # A running job among the starts of the first pass was preempted by it.
    running = []
    for job in second.running:
        is_over = states.get(job.name, UNSEEN) != UNSEEN
        if not is_over and job.name not in names:
            running.append(job)
    running += [job for job in present if job.name in names]
    completing = [job for job in second.ended if states[job.name] == COMPLETING]
    pending = [job for job in present if job.name not in names]
    return SeenState(second.second, tuple(running), tuple(completing), tuple(pending), tuple(sorted(first)))


def attempts(second: Second, decider: Decider) -> Iterator[Attempt]:
    """Yield the starts of a policy in each possible order of a second, with one pass and then with two.

    A third pass would multiply the orders once more.
    """
    # The values are None: a dict is a set that keeps the order, so that ties end the same way in each process.
    partial: dict[tuple[SeenEvents, frozenset[Started]], None] = {}
    for seen in views_of(second):
        moment = moment_of(second, seen)
        for scheduler in decider.schedulers:
            starts = decider.starts(moment, scheduler)
            yield Attempt(starts, moment, scheduler)
            if second.is_begun_by(starts):
                partial[seen, starts] = None
    # A first pass without starts changes nothing, and a first pass with a wrong start cannot agree any more.
    for first, starts in partial:
        for seen in views_of(second):
            if not seen.has_more_than(first):
                continue
            moment = moment_of(second, seen, starts)
            for scheduler in decider.schedulers:
                yield Attempt(starts | decider.starts(moment, scheduler), moment, scheduler)


def agrees(second: Second, decider: Decider) -> bool:
    """Return whether a policy agrees with the record in some order.

    It agrees about a second without a start if it starts at most the jobs that start one second later.
    """
    for attempt in attempts(second, decider):
        differing = second.differing(attempt.starts)
        if not differing or (not second.is_decision and differing <= second.next_jobs):
            return True
    return False


def nearest(second: Second, decider: Decider) -> Attempt:
    """Return the order whose starts differ least from the recorded ones; the first one on ties."""
    return min(attempts(second, decider), key=lambda attempt: len(second.differing(attempt.starts)))
