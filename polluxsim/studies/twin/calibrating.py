"""Judge the estimates of a twin with recorded states and the starts that followed.

A recorded run of Slurm has two files: snapshots of its state, one line of JSON each, and a record of its jobs. The twin
estimates the starts from each snapshot as if it were the present, and the record tells the true starts.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from polluxsim.common.errors import InvalidInputError, bad_line, reading
from polluxsim.logs.live.state import SlurmState, read_line
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.studies.decisions.sources import read_record
from polluxsim.studies.twin.estimates import LEVELS, NUM_FUTURES, JobEstimate, Plans, compared_plans, estimates
from polluxsim.studies.twin.futures import FutureSource, recent_arrivals
from polluxsim.studies.twin.history import PastJob, known_at, of_record
from polluxsim.studies.twin.settings import candidates
from polluxsim.studies.twin.world import TwinWorld

SETTLED = 2  # time without an event after which slurmctld has planned with all that happened [s]


class Judged(NamedTuple):
    """An estimate of a start, with the true start. Times are seconds since 1970-01-01 UTC."""

    job: str
    at: int  # time of the state
    start: int  # true
    estimate: float
    expected: int  # by `squeue --start`; 0 for nothing
    intervals: dict[int, tuple[float, float]]  # by level [%]

    def is_inside(self, level: int) -> bool:
        """Return whether the start is in the interval of a level [%]."""
        low, high = self.intervals[level]
        return low <= self.start <= high


@dataclass
class TwinCalibration:
    """The estimates from all snapshots, and how far they are from the true starts."""

    num_snapshots: int = 0
    num_without_jobs: int = 0  # snapshots without a pending job that the record has
    judged: list[Judged] = field(default_factory=list)
    plans: Plans = field(default_factory=Plans)
    settled_plans: Plans = field(default_factory=Plans)  # in snapshots without an event in the last `SETTLED` seconds
    parameters: str = ""  # which parameters the last snapshot used

    def errors(self, *, of_squeue: bool) -> np.ndarray:
        """Return the absolute errors of the twin, or of `squeue --start`, for estimates that both made [s]."""
        both = [judged for judged in self.judged if judged.expected]
        if of_squeue:
            return np.array([abs(judged.expected - judged.start) for judged in both])
        return np.array([abs(judged.estimate - judged.start) for judged in both])

    def coverage(self, level: int) -> float:
        """Return the share of true starts inside the intervals of a level [1]; NaN without estimates."""
        if not self.judged:
            return float("nan")
        return float(np.mean([judged.is_inside(level) for judged in self.judged]))

    def ratio(self, percentile: int) -> float:
        """Return a percentile of the twin's errors over that of `squeue --start` [1].

        There must be estimates that both made.
        """
        mine = np.percentile(self.errors(of_squeue=False), percentile)
        return float(mine / np.percentile(self.errors(of_squeue=True), percentile))


def calibrated(
    snapshots: Path,
    record: Path,
    *,
    parameters: Parameters | None = None,
    num_futures: int = NUM_FUTURES,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> TwinCalibration:
    """Return how far estimates from recorded states are from the recorded starts.

    Each state is judged with information from before it: jobs that had ended, submissions so far, and, without given
    parameters, the parameters that agreed best with `squeue --start` in this and earlier states. `report` is called
    after each state with the numbers of judged states and of all states.

    Raise InvalidInputError if a file is invalid, the record does not state when its second 0 was, or no snapshot has a
    pending job of the record.
    """
    if not snapshots.is_file():
        raise InvalidInputError(f"{snapshots}: no such file; give the snapshots of a run, a line of JSON for each")
    jobs = _recorded_jobs(record)
    # A recorded job has its end and its duration, so the start follows.
    starts = {job.name: round(job.end - job.duration) for job in jobs}
    events = _events(jobs)
    zero = read_record(record).record.zero or 0.0
    states = list(_states(snapshots, zero))
    result = TwinCalibration()
    totals = [Plans() for _ in candidates()]
    for number, state in enumerate(states):
        result.num_snapshots += 1
        chosen, name, plans = _parameters(state, totals, parameters)
        result.parameters = name
        result.plans += plans
        if not any(0 <= state.now - event <= SETTLED for event in events):
            result.settled_plans += plans
        world = TwinWorld(state, chosen)
        names = [job.name for job in world.pending if job.name in starts]
        if not names:
            result.num_without_jobs += 1
        else:
            # The twin must not see what happened after the state.
            history = known_at(jobs, state.now)
            source = FutureSource(history, recent_arrivals(history))
            for estimate in estimates(world, source, names, num_futures):
                result.judged.append(_judged(estimate, starts[estimate.name], state.now))
        report(number + 1, len(states))
    if not result.judged:
        raise InvalidInputError(f"{snapshots}: no snapshot has a pending job of {record.name}; give files of one run")
    return result


def _judged(estimate: JobEstimate, start: int, at: int) -> Judged:
    """Return an estimate that was made at a time, with the true start [s]."""
    return Judged(
        job=estimate.name,
        at=at,
        start=start,
        estimate=estimate.start.median,
        expected=estimate.expected,
        intervals={level: estimate.start.intervals[level] for level in LEVELS},
    )


def _events(jobs: Sequence[PastJob]) -> set[int]:
    """Return when jobs were submitted, started or ended [s since 1970-01-01 UTC]."""
    times = set()
    for job in jobs:
        times |= {job.submit, round(job.end - job.duration), job.end}
    return times


def _parameters(state: SlurmState, totals: list[Plans], given: Parameters | None) -> tuple[Parameters, str, Plans]:
    """Return the parameters for a state, their name, and how many plans agree under them.

    `totals` counts the plans that agreed so far under each of the candidates, and those of this state are added. At a
    tie, the first candidate wins, which is the likeliest.
    """
    if given is not None:
        return given, "given", compared_plans(TwinWorld(state, given))
    plans = []
    for place, (_, parameters) in enumerate(candidates()):
        plans.append(compared_plans(TwinWorld(state, parameters)))
        totals[place] += plans[place]
    best = max(range(len(totals)), key=lambda place: totals[place].agreeing)
    name, parameters = candidates()[best]
    return parameters, f"inferred: {name}", plans[best]


def _recorded_jobs(path: Path) -> list[PastJob]:
    """Return the jobs of a recorded run under their ids in Slurm.

    The file of the same name that ends in .json states `t0`, and `first_id` if names of jobs are numbers from 0 on.
    Raise InvalidInputError without `t0`.
    """
    record = read_record(path).record
    if record.zero is None:
        raise InvalidInputError(
            f"{path}: the epoch time of second 0 is unknown; write t0 to {path.with_suffix('.json').name} beside it"
        )
    beside = path.with_suffix(".json")
    first_id = None
    if beside.is_file():
        with reading(beside):
            first_id = json.loads(beside.read_text(encoding="utf-8")).get("first_id")
    jobs = []
    for job in record.jobs:
        past = of_record(job, record.zero + record.fraction)
        if isinstance(first_id, int) and job.name.isdecimal():
            past = past._replace(name=str(first_id + int(job.name)))
        jobs.append(past)
    return jobs


def _states(path: Path, zero: float) -> Iterator[SlurmState]:
    """Yield the states with jobs of a file with a line of JSON for each. Its times count from `zero`.

    Raise InvalidInputError if a line is invalid.
    """
    with reading(path), _opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                at = json.loads(line)["at"]
            except (ValueError, KeyError, TypeError):
                raise bad_line(
                    path, number, "no JSON with the key 'at'; give snapshots as drive.py writes them"
                ) from None
            state = read_line(line, zero + float(at))
            if state.jobs:
                yield state


def _opened(path: Path) -> IO[str]:
    """Return an open text file, which is decompressed if its name ends in .gz."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
