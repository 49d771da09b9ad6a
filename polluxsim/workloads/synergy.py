"""The load of Synergy's experiments: image, language and speech models whose speeds depend on CPUs and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np

from polluxsim.common.durations import HOUR, MINUTE
from polluxsim.common.errors import invalid_setting
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.values import NonNegativeFloat, NonNegativeInt, OneOf, PositiveFloat, Range, check
from polluxsim.common.written import takes_settings
from polluxsim.hardware.clusters import MOST_GPUS
from polluxsim.models.profile import Profile
from polluxsim.models.sensitivity import Curve, is_curve
from polluxsim.workloads.job import curve_of
from polluxsim.workloads.source import MOST_JOBS, draw
from polluxsim.workloads.workload import Job, Workload

MODELS = "synergy-models.csv"

SHORT = (1.5, 3.0)  # limits of x for short jobs of 10^x minutes, with uniform x
LONG = (3.0, 4.0)  # limits of x for long jobs
SHARE_OF_SHORT = 0.8  # share of short jobs [1]


class Model(NamedTuple):
    """A model with its speeds, relative to the speed with 3 CPUs and 62.5 GB per GPU."""

    name: str
    cpu_speeds: Curve  # by CPUs per GPU [cores]
    memory_speeds: Curve  # by memory per GPU [GB]


@takes_settings("workload")
@dataclass(frozen=True)
class SplitLoad:
    """Rigid jobs of image, language and speech models with Poisson arrivals.

    Durations hold for 3 CPUs and 62.5 GB per GPU.

    Source: Mohan et al., Synergy (OSDI '22), §5.1, and its published simulator (MIT), from which
    `synergy-models.csv` has the throughputs. Durations: Gavel (OSDI '20), §7.1.

    Raise InvalidConfigError if a parameter is invalid.
    """

    num_jobs: Annotated[int, Range(least=1, most=MOST_JOBS)] = 1000  # number of jobs
    jobs_per_hour: PositiveFloat = 8.0  # mean number of submissions per hour
    # Relative numbers of jobs by task: image, language, speech.
    split: Mapping[str, NonNegativeFloat] = field(
        default_factory=lambda: {"image": 20.0, "language": 70.0, "speech": 10.0}
    )
    # Relative numbers of jobs by requested GPUs.
    gpus: Mapping[int, NonNegativeFloat] = field(default_factory=lambda: {1: 1.0})
    seed: NonNegativeInt = 0  # seed of the draws

    def __post_init__(self) -> None:
        for name, parts in (("split", self.split), ("gpus", self.gpus)):
            if not sum(parts.values()):
                raise invalid_setting(f"workload.{name}", dict(parts), "numbers ≥ 0, at least one > 0")
        for count in self.gpus:
            check("a number of GPUs in workload.gpus", count, Annotated[int, Range(least=1, most=MOST_GPUS)])
        for task in self.split:
            check("a task in workload.split", task, Annotated[str, OneOf(*models_by_task())])

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the jobs: submissions, tasks, GPUs and durations first, then the model of each job."""
        rng = np.random.default_rng(self.seed)
        tasks = models_by_task()
        times = np.cumsum(rng.exponential(HOUR / self.jobs_per_hour, self.num_jobs))
        job_tasks = draw(self.split, self.num_jobs, rng)
        gpus = draw(self.gpus, self.num_jobs, rng)
        is_short = rng.random(self.num_jobs) < SHARE_OF_SHORT
        powers = np.where(is_short, rng.uniform(*SHORT, self.num_jobs), rng.uniform(*LONG, self.num_jobs))
        jobs = list[Job]()
        for time, task, count, power in zip(times.tolist(), job_tasks, gpus, powers.tolist(), strict=True):
            name, cpu_speeds, memory_speeds = tasks[task][int(rng.integers(len(tasks[task])))]
            job_id = f"{name}-{len(jobs)}"
            duration = MINUTE * 10.0**power
            line = len(jobs) + 1
            speeds = {"cpu_speeds": cpu_speeds, "memory_speeds": memory_speeds}
            jobs.append(Job.rigid(job_id, time, count, duration, line, **speeds))
        return Workload(tuple(jobs), source="split load")


def models_by_task() -> Mapping[str, list[Model]]:
    """Return the measured models by task. Raise InvalidInputError if the table of the models is invalid."""
    models = defaultdict[str, list[Model]](list)
    for row in read_rows(shipped("workloads") / MODELS, ("model", "task", "cpu_speeds", "memory_speeds")):
        model = Model(row.text("model"), _measured(row, "cpu_speeds"), _measured(row, "memory_speeds"))
        models[row.text("task")].append(model)
    return models


def _measured(row: Row, column: str) -> Curve:
    """Return the speeds in a column of the table of models. Raise InvalidInputError if they are no curve."""
    curve = curve_of(row, column)
    if not is_curve(curve):
        raise row.error(column, "rising amounts with speeds that do not fall")
    return curve
