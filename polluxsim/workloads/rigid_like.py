"""Rigid jobs with the statistics of the Philly trace, drawn for a run, with deadlines where asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.workloads.replay_like import ReplayLike, trace_jobs
from polluxsim.workloads.selection import Selection
from polluxsim.workloads.source import check_whole
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.logs.trace_table import TraceJob
    from polluxsim.models.profile import Profile

LEAST_SLACK = 1.2
"""The tightest deadlines are at so many times a job's duration after its submission."""


@dataclass(frozen=True)
class PhillyLikeRigid:
    """Bursts as `ReplayLike` has them, of jobs of a minute or more, and less than 1000 GPU-hours.

    Parameters
    ----------
    hours, start, rate
        As of `ReplayLike`.
    most_gpus
        Jobs with more GPUs are left out.
    slack
        Deadlines are at a time after submission, drawn evenly from 1.2 to so many times the duration; None for none.
    seed
        Seed of the drawing.
    """

    hours: int = 8
    start: int = 2
    rate: float = 0.4
    most_gpus: int = 64
    slack: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("most_gpus", self.most_gpus, least=1)
        if self.slack is not None and not self.slack >= LEAST_SLACK:
            raise InvalidConfigError(f"workload.slack is {self.slack}, allowed is a number ≥ {LEAST_SLACK}, or null")
        self._source()

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the jobs."""
        drawn = Selection().select(trace_jobs(self._source().draw(), self.start))
        usable = [job for job in drawn if job.num_gpus <= self.most_gpus]
        if not usable:
            raise InvalidInputError(f"philly-like rigid workload: no job came in {self.hours} h at rate {self.rate:g}")
        # A stream of its own, apart from those that the load is drawn with.
        rng = np.random.default_rng(np.random.SeedSequence(self.seed).spawn(5)[4])
        slacks = rng.uniform(LEAST_SLACK, self.slack or LEAST_SLACK, len(usable)).tolist()
        jobs = tuple(self._job(job, slack) for job, slack in zip(usable, slacks, strict=True))
        return Workload(jobs, source=f"philly-like rigid workload, seed {self.seed}")

    def _job(self, job: TraceJob, slack: float) -> Job:
        duration = job.duration or 0.0  # all that are selected have one
        deadline = None if self.slack is None else job.submit_time + slack * duration
        gpus = int(job.num_gpus)
        return Job.rigid(job.job, job.submit_time, gpus, duration, queue=job.tenant, deadline=deadline)

    def _source(self) -> ReplayLike:
        return ReplayLike(self.hours, self.start, self.rate, heartbeat=False, seed=self.seed)
