"""Sample a workload from the Philly trace, as the paper's evaluation did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.durations import DAY, HOUR
from polluxsim.errors import InvalidConfigError
from polluxsim.logs.formats import LogJob, find_format
from polluxsim.logs.trace_table import TraceJob, origin_of, read_trace
from polluxsim.workloads.mapping import map_jobs
from polluxsim.workloads.selection import Selection
from polluxsim.workloads.size_classes import check_profiles
from polluxsim.workloads.source import check_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.workload import Workload

# Source of all constants: Pollux (OSDI '21), §5.1, and its artifact.
CLOCK_SHIFT = 2 * HOUR
WINDOW_HOURS = 8


@dataclass(frozen=True)
class PhillySample:
    """A workload drawn from the Philly trace.

    Jobs of at least a minute and less than 1000 GPU-hours, submitted within an 8-hour window of the day, with all days
    folded into one, are drawn without replacement.

    Parameters
    ----------
    path
        philly.csv, as in the artifact of Pollux, or any trace in Parquet that knows its time of day (UTC is used).
    num_jobs
        Jobs to draw.
    tuned
        Whether jobs ask for tuned GPUs and batch sizes, or for the trace's GPUs and the initial batch size for each.
    seed
        Seed of the drawing.

    Source: Pollux (OSDI '21), §5.1, and its artifact.
    """

    path: str
    num_jobs: int = 160
    tuned: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("seed", self.seed)

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the workload; `profiles` says what tuned configurations there are."""
        check_profiles(profiles)
        usable = Selection().select(_folded(Path(self.path)))
        candidates = [job for job in usable if job.submit_time < WINDOW_HOURS * HOUR]
        if not 0 < self.num_jobs <= len(candidates):
            raise InvalidConfigError(
                f"workload.num_jobs is {self.num_jobs}, allowed are 1 to the {len(candidates)} jobs of {self.path}"
            )
        rng = np.random.default_rng(self.seed)
        drawn = rng.choice(len(candidates), self.num_jobs, replace=False)
        chosen = sorted((candidates[i] for i in drawn), key=lambda job: job.submit_time)
        return map_jobs(chosen, usable, profiles, rng, tuned=self.tuned, source=self.path)


def _folded(path: Path) -> list[TraceJob]:
    """Return a trace's jobs with their submissions from midnight of the shifted clock, all days folded into one [s].

    The runs of a sweep draw from one trace, and reading Philly's takes a second, so the last trace is kept.
    """
    state = path.stat() if path.is_file() else None
    return list(_read_folded(path, state and (state.st_mtime_ns, state.st_size, state.st_ino)))


@lru_cache(maxsize=1)
def _read_folded(path: Path, state: tuple[int, ...] | None) -> tuple[TraceJob, ...]:
    """Read the trace as `_folded` returns it. A changed `state` of the file makes it read again."""
    if path.suffix == ".parquet":
        info, jobs = read_trace(path)
        origin = origin_of(path, info).timestamp()
    else:
        origin, jobs = 0.0, _read_philly(path)
    return tuple(job._replace(submit_time=float(int(origin + job.submit_time - CLOCK_SHIFT) % DAY)) for job in jobs)


def _read_philly(path: Path) -> list[TraceJob]:
    """Read philly.csv in the order of the file, with submissions since 1970 UTC [s]."""
    jobs = []
    for entry in find_format("philly").read(path, UTC):
        if not isinstance(entry, LogJob):
            raise entry if isinstance(entry, Exception) else TypeError(entry)
        jobs.append(TraceJob(entry.job, entry.submitted, entry.duration, entry.num_gpus, entry.tenant, entry.status))
    return jobs
