"""Calls of policies: the view of the cluster, errors, requests for reasons, and garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from math import isnan
from pathlib import Path
from threading import Lock
from traceback import extract_tb
from typing import Any, NamedTuple, cast

from polluxsim.common.errors import PolicyError, PolluxSimError, did_you_mean, short
from polluxsim.engine.job import Transition
from polluxsim.engine.rounds import Rounds
from polluxsim.engine.sharing import Sharing
from polluxsim.engine.state import State
from polluxsim.engine.time_limit import Interruption
from polluxsim.engine.views import JobWindow, JobWindows
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.use_limits import LimitsNow
from polluxsim.policies.contract.view import ClusterView, JobView, Oracle, Reason, ReasonKind, SharedGpus, Standing
from polluxsim.records.columns import copy_containers
from polluxsim.records.results import ReasonRecord, ReasonText

PACKAGE = Path(__file__).parents[1]

RUNNING = 8  # rounds after which the reasons of a job that keeps its GPUs are due for the first time
ALLOCATIONS = 50_000  # Allocations before a collection of young objects. Python's default is 700.

_LOCK = Lock()
_BEFORE: list[tuple[int, int, int]] = []


class guarded:  # noqa: N801  (a context manager, like those of contextlib)
    """Context manager that turns an error of a policy, also `SystemExit`, into a `PolicyError`.

    The message names the policy, the round [s], and the file and line in the policy's code. `KeyboardInterrupt`,
    `Interruption` and `PolluxSimError` are passed on.
    """

    __slots__ = ("_name", "_time")

    def __init__(self, name: str, time: float) -> None:
        self._name = name
        self._time = time

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A compiled kernel turns an interrupt into an error of its own.
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__  # Ctrl-C during a compiled kernel
        if error is not None and not isinstance(error, (KeyboardInterrupt, Interruption, PolluxSimError)):
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}{_attributes(error)}"
            where = f"in the round at {self._time:g} s{_place(error)}"
            raise PolicyError(f"policy {self._name} failed {where}: {problem}") from error


def _attributes(error: BaseException) -> str:
    """Return the attributes of a view, or the likely one, if an error is about one that it lacks; otherwise ""."""
    if not isinstance(error, AttributeError):
        return ""
    for kind in (ClusterView, JobView, Oracle):
        names = [name for name in dir(kind) if not name.startswith("_")]
        if {*names} <= {*dir(type(error.obj))}:
            return did_you_mean(error.name, names) or f"; it has {', '.join(names)}"
    return ""


def _place(error: BaseException) -> str:
    """Return where in a user's code an error came from; an empty string for a policy of polluxsim."""
    frames = [
        frame
        for frame in extract_tb(error.__traceback__)
        if PACKAGE not in Path(frame.filename).parents and not frame.filename.startswith("<")  # code without a file
    ]
    return f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


class FitTogether:
    """Whether a sharing model lets two jobs have the same GPUs, on every node type of the cluster."""

    def __init__(self, sharing: Sharing, node_types: NodeTypes) -> None:
        self._sharing = sharing
        self._types = node_types
        # A sharing model depends on the GPU type, so one node of each type is enough.
        names = [gpu_type.name for gpu_type in node_types]
        self._nodes = [names.index(name) for name in dict.fromkeys(names)] or [0]

    def __call__(self, one: JobView, other: JobView) -> bool:
        """Return whether two jobs request equally many GPUs and fit together on each node type."""
        windows = cast("Sequence[JobWindow]", (one, other))
        pairs = ([window.as_tenant(node, self._types) for window in windows] for node in self._nodes)
        return one.num_replicas == other.num_replicas and all(map(self._sharing.fits, pairs))

    def __deepcopy__(self, memo: dict[int, Any]) -> FitTogether:
        return self  # it never changes


def cluster_view(state: State, rounds: Rounds) -> ClusterView:
    """Open the views of a run, and return the view of its cluster now."""
    jobs = state.jobs
    nodes = state.nodes
    validity = state.view_validity
    settings = state.scenario.settings
    up = nodes.present(state.clock.now)
    validity.open(state.clock.now, up, nodes.health)
    running = JobWindows(validity, len(jobs.placed), jobs.running_views)
    return ClusterView(
        time=validity.time,
        gpus_per_node=up,
        jobs=JobWindows(validity, len(jobs.active), jobs.all_views),
        restarts=settings.delays,
        free_starts=settings.free_starts,
        nodes=nodes.counts,
        changes=rounds.changes(jobs.views),
        round_interval=settings.round_interval,
        standing=Standing(
            running,
            JobWindows(validity, len(jobs.active) - len(jobs.placed), jobs.waiting_views),
            tuple(nodes.idle(len(up))),
            jobs.demand,
        ),
        health=nodes.health,
        node_types=nodes.node_types,
        sharing=_shared_gpus(state),
        hosts=state.scenario.cluster.hosts[: len(up)],
        shape_rule=state.scenario.shape_rule,
        limits=LimitsNow.of(settings.use_limits, running),
        partition_groups=state.scenario.cluster.partition_groups,
        partitions=state.scenario.cluster.partitions,
    )


def _shared_gpus(state: State) -> SharedGpus:
    """Return the use of shared GPUs, in containers that a policy may keep."""
    nodes = state.nodes
    sharing = state.scenario.settings.sharing
    if sharing is None and not nodes.shared.held and not state.shares:
        return SharedGpus({}, {})
    speeds = {job_id: speed for job_id, (_, speed) in state.shares.items()}
    fit_together = None
    if sharing is not None:
        fit_together = FitTogether(sharing, nodes.node_types)
    return SharedGpus(dict(nodes.shared.held), speeds, fit_together)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely inside the block, in all threads, and as before after the last block.

    A run makes few cycles and many records. Each full collection would scan all records.
    """
    with _LOCK:
        before = gc.get_threshold()
        if _BEFORE:
            before = _BEFORE[0]  # of the first block, because blocks of other threads have changed it since
        _BEFORE.append(before)
        first, *older_thresholds = before
        if first:  # 0 means that the user has turned the collection off
            gc.set_threshold(max(first, ALLOCATIONS), *older_thresholds)
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                gc.set_threshold(*before)


class DueReasons:
    """The jobs whose reasons a policy is asked for at a round.

    With `changes`, the reasons of a job are due when it is new and when its placement changes. After that they are due
    1, 2, 4, 8 … rounds later while it waits, and 8, 16, 32 … rounds later while it keeps its GPUs. With `rounds`, the
    reasons of all jobs are due at every round.
    """

    def __init__(self, whose: str, round_interval: float) -> None:
        self._whose = whose
        self._first_gaps = {False: round_interval, True: RUNNING * round_interval}
        self._interval = round_interval
        self._due: dict[JobId, float] = {}
        self._gaps: dict[JobId, float] = {}
        self._queue: list[tuple[float, JobId]] = []
        self._pending: set[JobId] = set()

    def submit(self, transition: Transition) -> None:
        """Take note of an arrival."""
        if self._whose == "changes":
            self._due[transition.job.job_id] = 0.0
            heappush(self._queue, (0.0, transition.job.job_id))

    def evict(self, transition: Transition) -> None:
        """Record that a job lost its GPUs: its reasons are due as for a new job."""
        self.end(transition)
        self.submit(transition)

    def end(self, transition: Transition) -> None:
        """Forget a job that has ended."""
        job_id = transition.job.job_id
        self._due.pop(job_id, None)
        self._gaps.pop(job_id, None)
        self._pending.discard(job_id)

    def due(self, now: float, moved: Collection[JobId], active: Iterable[JobId]) -> list[JobId]:
        """Return the jobs whose reasons are due, by `changes` also those that `moved`. They stay due until `asked`."""
        if self._whose == "rounds":
            return list(active)
        if self._whose != "changes":
            return []
        while self._queue and self._queue[0][0] <= now:
            time, job_id = heappop(self._queue)
            # Other entries of the queue are void: the job has ended, or was asked about since.
            if self._due.get(job_id) == time:
                self._pending.add(job_id)
        # The order must not depend on the layout of a set in memory.
        return sorted(self._pending.union(moved))

    def asked(self, now: float, jobs: Iterable[JobId], moved: Container[JobId], placed: Container[JobId]) -> None:
        """Record that the policy was asked for the reasons of these jobs."""
        if self._whose != "changes":
            return
        self._pending.clear()
        for job_id in jobs:
            gap = self._gaps.get(job_id)
            if gap is None or job_id in moved:
                gap = self._first_gaps[job_id in placed]
            self._gaps[job_id] = 2 * gap
            # Half a round earlier, so that rounding cannot delay it to the next round.
            time = now + gap - self._interval / 2
            self._due[job_id] = time
            heappush(self._queue, (time, job_id))

    def __deepcopy__(self, memo: dict[int, object]) -> DueReasons:
        return copy_containers(self)


class Explained(NamedTuple):
    """A reason of a policy, and the sentence and units of its kind."""

    record: ReasonRecord
    text: ReasonText


def checked_reasons(answer: object, asked: Iterable[JobId], time: float) -> dict[JobId, Explained]:
    """Return a policy's reasons at a time [s], with plain numbers.

    Raise PolicyError if the answer is no mapping, names a job that was not asked about, or has an invalid reason.
    """
    if type(answer) is not dict and not isinstance(answer, Mapping):
        raise PolicyError(f"the policy explained itself by {short(answer)}, must be a mapping of jobs to reasons")
    asked_jobs = set(asked)
    checked = {}
    for job_id, reason in answer.items():
        if job_id not in asked_jobs:
            raise PolicyError(f"the policy explained job {short(job_id)}, which it was not asked about")
        try:
            if not isinstance(reason, Reason):
                raise TypeError
            kind, numbers, other_jobs = reason
            # Records have plain values, and a reason may have those of NumPy.
            values = tuple(map(float, numbers.values()))
            if any(map(isnan, values)):
                raise TypeError
            plain = tuple(zip(map(str, numbers), values, strict=True))
            jobs = tuple(map(str, other_jobs or ()))
        except (TypeError, ValueError, AttributeError):
            must_be = "a Reason(kind, numbers, others)"
            raise PolicyError(f"the policy explained job {job_id!r} by {short(reason)}, must be {must_be}") from None
        if not isinstance(kind, ReasonKind):
            must_be = f"a ReasonKind, like polluxsim.ReasonKind({str(kind)!r})"
            raise PolicyError(f"the policy explained job {job_id!r} by the kind {short(kind)}, must be {must_be}")
        record = ReasonRecord(time, job_id, kind.name, plain, jobs)
        checked[job_id] = Explained(record, ReasonText(kind.sentence, kind.units))
    return checked
