"""The state of a job at the start of a run, if the job was submitted before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from numbers import Real

from polluxsim.common.errors import InvalidInputError, short
from polluxsim.common.tables import Row, read_number
from polluxsim.hardware.placements import MOST_SECONDS, Placement, num_replicas


class StateAtStart(StrEnum):
    """State of a job at the start of a run."""

    RUNNING = "running"
    PENDING = "pending"


STATES = " or ".join(StateAtStart)


@dataclass(frozen=True, slots=True, repr=False)
class Past:
    """The state of a job at the start of a run, at 0 s. The job was submitted before, so its submission is below 0 s.

    A running job holds its GPUs from the start of the run. It gets them without a restart delay. A pending job waits.
    No metric counts these jobs, but they compete with the jobs of the run for GPUs.

    Raise InvalidInputError if the state is unknown; `Job` checks the other values.
    """

    state: str  # a value of `StateAtStart`
    # First start of the job [s], at most 0. None for a job that has not started; a running job has started.
    started: float | None = None
    progress: float = 0.0  # work done before the run: seconds of the duration, or M0-steps of the profile
    service: float = 0.0  # GPUs times the time for which the job has held them before the run [GPU s]
    # GPUs of a running job by node. Empty if the nodes are unknown; the job then gets the requested number of GPUs.
    placement: Placement = ()

    def __post_init__(self) -> None:
        if self.state not in list(StateAtStart):
            raise InvalidInputError(f"the state of a job at the start of a run is {short(self.state)}; give {STATES}")

    def __repr__(self) -> str:
        """Return code that makes the past."""
        values = (str(self.state), self.started, self.progress, self.service, self.placement)
        return f"Past({', '.join(map(repr, values))})"

    @classmethod
    def running(cls, started: float, gpus: int, progress: float | None = None, placement: Placement = ()) -> Past:
        """Return the past of a job that has run on a number of GPUs, without a pause, since it started [s].

        Without `progress`, the job has done one second of its duration in each second.
        """
        done = -started if progress is None else progress
        return cls(StateAtStart.RUNNING.value, started, done, -started * gpus, placement)

    @classmethod
    def pending(cls) -> Past:
        """Return the past of a job that has not started."""
        return cls(StateAtStart.PENDING.value)

    @property
    def is_running(self) -> bool:
        """Return whether the job runs at the start of the run."""
        return self.state == StateAtStart.RUNNING

    def objections(self, submit_time: float, most_progress: float | None) -> Iterator[tuple[str, object, str]]:
        """Yield the name, the value and the requirement of each invalid value.

        `submit_time` is the submission of the job [s]. `most_progress` is its whole work; None if it is unknown.
        """
        if self.started is not None and not _is_within(self.started, submit_time, 0.0):
            yield "started", self.started, f"a time from the submission, {submit_time:g} s, to 0 s"
        if self.started is None and self.is_running:
            yield "started", None, "the time at which the running job started, at most 0 s"
        if self.started is None and (self.progress or self.service):
            yield "started", None, "a time, because the job has progress or service"
        if not _is_within(self.progress, 0.0, MOST_SECONDS):
            yield "progress", self.progress, f"a number from 0 to {MOST_SECONDS:g}"
        elif most_progress is not None and self.progress >= most_progress:
            yield "progress", self.progress, f"less than the duration, {most_progress:g} s"
        if not _is_within(self.service, 0.0, MOST_SECONDS * MOST_SECONDS):
            yield "service", self.service, "a number of GPU s of at least 0"
        nodes = [node for node, _ in self.placement]
        is_placement = all(node >= 0 and gpus >= 1 for node, gpus in self.placement)
        if not is_placement or len(set(nodes)) < len(nodes):
            yield "nodes", self.placement, "pairs of a node and its number of GPUs, each node once"
        if self.placement and not self.is_running:
            yield "nodes", self.placement, "empty for a job that is pending"


def at_cut(submitted: float, wait: float | None, duration: float | None, cut: float) -> tuple[str, float] | None:
    """Return the state of a job of a log when a window is cut, and its start; None if it has ended [s].

    The job was submitted before the cut, at `submitted`, waited for `wait` and ran for `duration` [s]. The start counts
    from the cut [s]. A job without a recorded wait counts as if it started at its submission, and one without a known
    duration as if it ended when it started.
    """
    start = submitted + max(wait or 0.0, 0.0)
    if start + (duration or 0.0) <= cut:
        return None
    state = StateAtStart.RUNNING if start <= cut else StateAtStart.PENDING
    return state.value, start - cut


def _is_within(value: object, least: float, most: float) -> bool:
    """Return whether a value is a finite number within limits, which are allowed too."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return isfinite(value) and least <= float(value) <= most


STATE = "past_state"
COLUMNS = (STATE, "past_started", "past_progress", "past_service", "past_nodes")
"""Columns of a workload file for jobs that were submitted before the start of the run."""


def past_of(row: Row) -> Past | None:
    """Return the past of the job in a row of a workload file; None if the row has none.

    The columns are those of `COLUMNS`: the state, the first start [s], the work done before the run, the attained
    service [GPU s], and the GPUs as pairs NODE:GPUs with spaces between them. Raise InvalidInputError for other cells.
    """
    if not row.has(STATE):
        for name in COLUMNS[1:]:
            if row.has(name):
                raise row.error(name, f"empty in a row without {STATE}")
        return None
    state = row.text(STATE)
    if state not in list(StateAtStart):
        raise row.error(STATE, STATES)
    started = row.number("past_started") if row.has("past_started") else None
    placement = _placement(row) if row.has("past_nodes") else ()
    gpus = num_replicas(placement) if placement else row.integer("num_replicas")
    # Without the other columns, the job has run since its start without a pause.
    passed = 0.0 if started is None else -started
    progress = row.number("past_progress") if row.has("past_progress") else passed
    service = row.number("past_service") if row.has("past_service") else passed * gpus
    return Past(state, started, progress, service, placement)


def _placement(row: Row) -> Placement:
    """Return the GPUs of a running job from a cell like `0:4 1:2`. Raise InvalidInputError for another cell."""
    pairs = []
    for text in row.text("past_nodes").split():
        numbers = [read_number(part) for part in text.split(":")]
        whole = [int(number) for number in numbers if number is not None and number.is_integer()]
        if len(numbers) != 2 or len(whole) != 2:
            raise row.error("past_nodes", "pairs NODE:GPUs with spaces between them, like 0:4 1:2")
        pairs.append((whole[0], whole[1]))
    return tuple(pairs)


def cell_of(past: Past | None, column: str) -> object:
    """Return the value of a past in a column of a workload file."""
    if past is None:
        return ""
    if column == "past_nodes":
        return " ".join(f"{node}:{gpus}" for node, gpus in past.placement)
    value = getattr(past, column.removeprefix("past_"))
    if value is None:
        return ""
    return value
