"""Judge forecasts of waits against the truth: calibrate on the first part of a log, and forecast the second part.

The forecast must not see the waits of the second part. Its jobs, and the changes of the nodes, are known to it: it
forecasts waits for a load and a cluster that are given, as a plan of a site gives them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import DAY, HOUR, length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.logs.trace_table import TraceJob
from polluxsim.metrics.outcomes import number_of
from polluxsim.run.configurations import quoted
from polluxsim.statistics.estimates import LEVEL
from polluxsim.studies.causes import FEW_GPUS, Use, WaitOccupancy
from polluxsim.studies.driver import run_sweep
from polluxsim.studies.log_calibration import (
    DEFAULT_GPUS_PER_NODE,
    CalibrateRequest,
    Calibration,
    calibrate,
    refuse_empty,
    refuse_launcher,
    refuse_varied,
    replay_of,
)
from polluxsim.studies.log_selection import Part, part_of
from polluxsim.studies.logged_jobs import recorded_waits
from polluxsim.studies.replayed_jobs import read_replay
from polluxsim.studies.verdicts import SMALL, Agreement, agreements, size_class

Array = NDArray[np.float64]

VARIED = {
    "policy": "--policies",
    "cluster.gpus_per_node": "--gpus-per-node",
    "cluster.num_nodes": "--nodes",
    "workload.start": "--split",
    "workload.hours": "--split",
    "cluster/failures": "--change",
}
"""Options for the settings that a judgement sets, by setting."""

LEAST_REST = 2 * DAY  # shortest time with fewer GPUs in use at the end of a log from which fewer nodes are inferred [s]
LEAST_BUSY_SHARE = 0.25  # share of `LEAST_REST` in which jobs must wait [1]
DRAIN = DAY  # longest time before the removal of a node in which it starts no jobs [s]
LEAST_DAYS = 5  # fewer days in the first part give no intervals


class NodesFrom(NamedTuple):
    """A change of the cluster: its number of nodes from a time on."""

    time: float  # from the first submission of the log [s]
    nodes: int


@dataclass(frozen=True)
class JudgeRequest:
    """A forecast of the second part of a log, judged against the log.

    Raises
    ------
    InvalidConfigError
        If an override sets what the judgement sets or chooses a launcher, nothing is to be tried, or the changes are
        not in order of time.
    """

    log: Path  # a log with queueing delays that `polluxsim log import` wrote
    nodes: int | None = None  # nodes in the first part; None: for the largest number of GPUs in use at once in it
    changes: Sequence[NodesFrom] | None = None  # changes of the nodes; None infers them from the log
    split: float | None = None  # time that ends the first part, from the first submission [s]; None is the middle
    policies: Sequence[str] = ("fifo", "easy")  # to try on the first part
    gpus_per_node: int = DEFAULT_GPUS_PER_NODE  # GPUs of each node
    folder: Path = Path("judged")  # for the runs; finished runs in it are reused
    overrides: Sequence[str] = ()  # settings of every run
    workers: int | None = None  # number of processes; None: one for each core
    partition: str | None = None  # partition of the log; None for all jobs

    def __post_init__(self) -> None:
        refuse_empty(self, "policies")
        refuse_launcher(self.overrides, "log judge")
        refuse_varied(self.overrides, VARIED)
        times = [change.time for change in self.changes or ()]
        if times != sorted(set(times)):
            raise InvalidConfigError("the times of --change do not rise; give the changes in order of time")


class Coverage(NamedTuple):
    """How often the intervals of daily mean waits of a group of jobs contain the recorded mean."""

    inside: int  # number of days whose recorded mean wait is inside its interval
    days: int  # number of days with jobs
    expected: float  # share of the days that should be inside [1]


class JudgedGroup(NamedTuple):
    """The forecast for a group of jobs of the second part."""

    agreement: Agreement
    coverage: Coverage | None  # None if the first part is too short for intervals


class Judgement(NamedTuple):
    """The errors of a forecast of the second part of a log."""

    request: JudgeRequest
    split: float  # end of the first part, from the first submission [s]
    end: float  # last submission [s]
    nodes: int  # in the first part
    calibration: Calibration  # on the first part
    changes: Sequence[NodesFrom]
    groups: Sequence[JudgedGroup]  # all jobs first, then by partition and by size class
    recorded_before: float  # mean wait in the first part of the log [s]
    notes: Sequence[str]  # on the cluster, the changes and the jobs that are left out

    @property
    def whole(self) -> JudgedGroup:
        """Return the forecast for all jobs of the second part."""
        return self.groups[0]

    def sentences(self) -> Iterator[str]:
        """Yield sentences on the forecast: its calibration, its error, and how many days its intervals contain."""
        policy = self.calibration.verdict.policy
        agreement, coverage = self.whole
        yield (
            f"calibrated on the first {length(self.split)} of the log: {policy} on {number_of(self.nodes, 'node')} "
            f"of {self.request.gpus_per_node} GPUs"
        )
        yield from self.notes
        yield from self.calibration.verdict.sentences()
        yield (
            f"forecast of the following {length(self.end - self.split)}: mean wait {length(agreement.replayed)}, "
            f"recorded {length(agreement.recorded)} (first part {length(self.recorded_before)}); off by "
            f"{length(agreement.error)} a job; the forecast {agreement.grade} the waits"
        )
        if coverage is None:
            yield f"no intervals: the first part has jobs of fewer than {LEAST_DAYS} days"
        else:
            yield (
                f"intervals of the mean waits of days, from the errors in the first part: {coverage.inside} of "
                f"{number_of(coverage.days, 'day')} inside, {100 * coverage.expected:.0f} % expected"
            )


def judge(request: JudgeRequest) -> Judgement:
    """Calibrate on the first part of a log, forecast the waits of the second part, and compare them with the log.

    Jobs that run or wait at the border are in the second part with their state, and no value counts them.

    Raises
    ------
    InvalidInputError
        If the log cannot be read, has no recorded waits, or has no jobs in one of the parts, or if a change is outside
        the second part.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    folder = Path(request.folder)
    part = part_of(Path(request.log), request.partition, folder)
    recorded = recorded_waits(part.log, part.jobs)
    jobs = list(part.jobs.values())
    end = jobs[-1].submit_time
    split = _split(request, end)
    notes = list(part.sentences)
    nodes = request.nodes
    if nodes is None:
        nodes = _peak_nodes(jobs, 0.0, split, request.gpus_per_node)
        notes.append(f"inferred: {number_of(nodes, 'node')}, from the GPUs in use at once in the first part")
    first = CalibrateRequest(
        part.log,
        [nodes * request.gpus_per_node],
        request.policies,
        request.gpus_per_node,
        folder / "first",
        (*request.overrides, f"workload.hours={split / HOUR!r}"),
        request.workers,
    )
    calibration = calibrate(first)
    changes = request.changes
    if changes is None:
        changes = inferred_changes(jobs, split, nodes, request.gpus_per_node)
    notes += _in_words(changes, nodes, is_inferred=request.changes is None)
    policy = calibration.verdict.policy
    before = read_replay(calibration.nearest, first.gpus[0]).waits
    forecast = _forecast(request, part, policy, split, nodes, changes)
    groups = _groups(part.jobs, recorded, before, forecast)
    recorded_before = float(np.mean([recorded[name] for name in before if name in recorded]))
    return Judgement(request, split, end, nodes, calibration, changes, groups, recorded_before, notes)


def _split(request: JudgeRequest, end: float) -> float:
    """Return the time that ends the first part of a log whose last submission is at `end` [s].

    Raise InvalidInputError if it leaves one part empty, or if a change of the nodes is outside the second part.
    """
    split = request.split
    if split is None:
        split = end / 2
    if not 0 < split < end:
        raise InvalidInputError(
            f"--split is {length(split)}, must be above 0 and below {length(end)}, the last submission of the log"
        )
    for change in request.changes or ():
        if not split <= change.time < end:
            raise InvalidInputError(
                f"--change at {length(change.time)} is outside the second part of the log, {length(split)} to "
                f"{length(end)}; give a time in it, or another --split"
            )
    return split


def _peak_nodes(jobs: Sequence[TraceJob], start: float, end: float, gpus_per_node: int) -> int:
    """Return the nodes for the largest number of GPUs in use at once between two times [s].

    Raise InvalidInputError if no job ran between them.
    """
    use = Use.of(jobs)
    use = use.only((use.start < end) & (use.end > start))
    if not use.peak:
        raise InvalidInputError(
            f"no job ran between {length(start)} and {length(end)}; give --nodes or another --split"
        )
    occupancy = WaitOccupancy(use)
    is_between = (occupancy.grid >= start) & (occupancy.grid < end)
    return ceil(float(occupancy.in_use[is_between].max()) / gpus_per_node)


def inferred_changes(jobs: Sequence[TraceJob], split: float, nodes: int, gpus_per_node: int) -> list[NodesFrom]:
    """Return the changes of the nodes after a time [s], from the GPUs in use at once, in order of time.

    Nodes came when more GPUs were in use than `nodes` have. Nodes went if at least two days remain in which at most
    90 % of the GPUs were in use at once, and if jobs waited for half a day or more of them.
    """
    use = Use.of(jobs)
    occupancy = WaitOccupancy(use)
    is_second_part = occupancy.grid >= split
    if not is_second_part.any():
        return []
    changes = []
    present = nodes
    in_use = np.where(is_second_part, occupancy.in_use, 0.0)
    nodes_in_use = ceil(float(in_use.max()) / gpus_per_node)
    came = split
    if nodes_in_use > nodes:
        # The nodes come when the first of them must be there, and all at once: the log does not say when the others do.
        came = float(occupancy.grid[np.argmax(in_use > nodes * gpus_per_node)])
        present = nodes_in_use
        changes.append(NodesFrom(came, present))
    # Nodes can have gone only after the last time at which most of the GPUs were in use.
    has_most_in_use = np.flatnonzero(in_use > FEW_GPUS * present * gpus_per_node)
    went = came
    if has_most_in_use.size and has_most_in_use[-1] + 1 < len(occupancy.grid):
        went = float(occupancy.grid[has_most_in_use[-1] + 1])
    is_after = (occupancy.grid >= went) & is_second_part
    has_waiting = occupancy.largest_waiting(use) > 0
    time_with_waiting = float((occupancy.lengths * has_waiting)[is_after].sum())
    end = jobs[-1].submit_time
    # Few GPUs in use mean fewer nodes only if jobs wait for GPUs, and only over a time that is no chance.
    is_long = end - went >= LEAST_REST
    is_busy = time_with_waiting >= LEAST_BUSY_SHARE * LEAST_REST
    if is_after.any() and is_long and is_busy:
        fewer = ceil(float(occupancy.in_use[is_after].max()) / gpus_per_node)
        if 0 < fewer < present:
            changes.append(NodesFrom(went, fewer))
    return changes


def _in_words(changes: Sequence[NodesFrom], nodes: int, *, is_inferred: bool) -> Iterator[str]:
    """Yield a sentence for each change of the nodes, or one that says that there is none."""
    source = "given"
    if is_inferred:
        source = "inferred from the GPUs in use at once"
    before = nodes
    for change in changes:
        verb = "came" if change.nodes > before else "went"
        count = number_of(abs(change.nodes - before), "node")
        yield f"{source}: {count} {verb} at {length(change.time)} of the log, {change.nodes} from then on"
        before = change.nodes
    if not changes:
        yield f"{source}: the nodes did not change, so the plain replay is judged"


def _forecast(
    request: JudgeRequest, part: Part, policy: str, split: float, nodes: int, changes: Sequence[NodesFrom]
) -> Mapping[str, float]:
    """Return the forecast waits of the jobs of the second part, by name [s]."""
    folder = Path(request.folder)
    # The cluster of a run has a constant number of nodes, so it has all of them, and some are absent for a time.
    largest = max([nodes] + [change.nodes for change in changes])
    overrides = [
        *replay_of(part.log),
        f"policy={policy}",
        f"cluster.num_nodes={largest}",
        f"cluster.gpus_per_node={request.gpus_per_node}",
        f"workload.start={split / HOUR!r}",
        f"workload.most_gpus={largest * request.gpus_per_node}",
    ]
    absences = absences_of_nodes(split, nodes, changes)
    if absences:
        outages = folder / f"{part.log.stem}-nodes.csv"
        _write(absences, outages)
        overrides += ["cluster/failures=recorded", f"cluster.failures.path={quoted(str(outages.resolve()))}"]
    frame = run_sweep([[*overrides, *request.overrides]], folder / "second", workers=request.workers)
    return read_replay(Path(frame["folder"][0]), largest * request.gpus_per_node).waits


class Absence(NamedTuple):
    """A time in which a node is not there, as a row of recorded failures."""

    node: int
    time: float  # from the start of the second part [s]
    down_until: float | str  # end [s]; "" for good
    kind: str
    drain: float  # time before in which the node starts no jobs [s]


def absences_of_nodes(split: float, nodes: int, changes: Sequence[NodesFrom]) -> list[Absence]:
    """Return the times in which nodes are not there, on the clock of the second part, which begins at `split` [s].

    The nodes with the highest numbers come last and go first.
    """
    times = [0.0]
    counts = [nodes]
    for change in changes:
        times.append(max(change.time - split, 0.0))
        counts.append(change.nodes)
    absences: list[Absence] = []
    for node in range(max(counts)):
        absent_since: float | None = None
        for time, count in zip(times, counts, strict=True):
            is_there = node < count
            if not is_there and absent_since is None:
                absent_since = time
            elif is_there and absent_since is not None:
                # An absence of no length would be an outage, which preempts jobs.
                if time > absent_since:
                    absences.append(_absence(node, absent_since, time))
                absent_since = None
        if absent_since is not None:
            absences.append(_absence(node, absent_since, ""))
    return absences


def _absence(node: int, time: float, until: float | str) -> Absence:
    """Return an absence that begins with a drain, as administrators remove nodes, so that jobs end before it."""
    drain = min(time, DRAIN)  # the drain cannot begin before the run
    return Absence(node, time, until, "absent", drain)


def _write(absences: Sequence[Absence], path: Path) -> None:
    """Write the absences of nodes as a file of recorded failures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Absence._fields, *absences])


def _groups(
    jobs: Mapping[str, TraceJob],
    recorded: Mapping[str, float],
    before: Mapping[str, float],
    forecast: Mapping[str, float],
) -> list[JudgedGroup]:
    """Return the agreement and the coverage of the forecast, of all jobs, by partition and by size class."""
    first = [name for name in before if name in recorded]
    second = [name for name in forecast if name in recorded]
    if not second:
        raise InvalidInputError("no job of the second part has a recorded wait; choose an earlier --split")
    recorded_of_second = {name: recorded[name] for name in second}
    whole, partitions, sizes = agreements(jobs, recorded_of_second, forecast)
    groups = []
    for group in (whole, *partitions, *sizes):
        first_of_group = [name for name in first if _is_in(group.name, jobs[name])]
        second_of_group = [name for name in second if _is_in(group.name, jobs[name])]
        errors = _daily(jobs, first_of_group, recorded, before)
        differences = _daily(jobs, second_of_group, recorded, forecast)
        groups.append(JudgedGroup(group, _coverage(errors, differences)))
    return groups


def _is_in(group: str, job: TraceJob) -> bool:
    """Return whether a job is in the group with a name of `agreements`."""
    return group in ("all jobs", size_class(job.num_gpus), f"partition {job.partition or 'unknown'}")


def _daily(
    jobs: Mapping[str, TraceJob], names: Sequence[str], recorded: Mapping[str, float], replayed: Mapping[str, float]
) -> Array:
    """Return the mean recorded minus the mean replayed wait of each day with submissions, shape (these days,) [s]."""
    if not names:
        return np.zeros(0)
    days = [floor(jobs[name].submit_time / DAY) for name in names]
    # Days without jobs have no mean, so the days with jobs are numbered from 0.
    _, day = np.unique(days, return_inverse=True)
    differences = np.array([recorded[name] - replayed[name] for name in names])
    return np.asarray(np.bincount(day, differences) / np.bincount(day), dtype=float)


def _coverage(errors: Array, differences: Array) -> Coverage | None:
    """Return how many differences of days of the second part are within the errors of days of the first part.

    Return None if the first part has too few days, or the second part has none.
    Among n + 1 exchangeable days, a new day lies between the k-th smallest and the k-th largest of the other n days
    with the probability 1 − 2k / (n + 1). The interval takes the largest k with at least 95 %, or k = 1 if there is
    none. It is at least `SMALL` wide on either side.
    """
    count = len(errors)
    if count < LEAST_DAYS or not len(differences):
        return None
    rank = max(floor((1 - LEVEL) / 2 * (count + 1)), 1)  # the k above
    rising = np.sort(errors)
    # An empty queue in the first part has errors of 0, and an interval of no width would contain no other day.
    low = min(float(rising[rank - 1]), -SMALL)
    high = max(float(rising[-rank]), SMALL)
    is_inside = (differences >= low) & (differences <= high)
    expected = 1 - 2 * rank / (count + 1)
    return Coverage(int(is_inside.sum()), len(differences), expected)
