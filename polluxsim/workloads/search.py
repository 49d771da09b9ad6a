"""Hyper-parameter search: a workload whose next job depends on the results of complete jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log10
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.errors import UnknownApplicationError, invalid_setting, one_of
from polluxsim.common.values import NonNegativeInt, PositiveInt, Range
from polluxsim.common.written import Name, takes_settings
from polluxsim.models.profile import Profile
from polluxsim.workloads.source import MOST_JOBS
from polluxsim.workloads.workload import Job, Workload

UNIFORM_TRIALS = 10  # complete trials before which points are drawn uniformly
BEST_SHARE = 0.25  # share of the best complete trials, near which later points are drawn
SPREAD = 0.1  # standard deviation of these draws [share of a parameter's range]


class HyperParameters(NamedTuple):
    """Learning rate, momentum and weight decay of SGD."""

    learning_rate: float  # from 1e-3 to 1
    momentum: float  # from 0.5 to 0.99
    weight_decay: float  # from 1e-5 to 1e-2


def parameters_at(point: NDArray[np.float64]) -> HyperParameters:
    """Return the parameters at a point of the unit cube, shape (3,), with logarithmic axes of rate and decay."""
    rate, momentum, decay = map(float, point)
    return HyperParameters(10 ** (3 * rate - 3), 0.5 + 0.49 * momentum, 10 ** (3 * decay - 5))


class Sampler:
    """Proposes points of the unit cube: uniform draws at first, then draws near one of the best points."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.scored: list[tuple[float, NDArray[np.float64]]] = []  # scores and points of the complete trials

    def propose(self) -> NDArray[np.float64]:
        """Return the next point, shape (3,)."""
        if len(self.scored) < UNIFORM_TRIALS:
            return self._rng.random(3)
        best_first = sorted(self.scored, key=lambda scored: -scored[0])
        best = best_first[: round(BEST_SHARE * len(self.scored))]
        _, centre = best[self._rng.integers(len(best))]
        return np.clip(self._rng.normal(centre, SPREAD), 0.0, 1.0)

    def learn(self, point: NDArray[np.float64], score: float) -> None:
        """Keep the score of a point."""
        self.scored.append((score, point))


def surrogate_accuracy(parameters: HyperParameters) -> float:
    """Return an artificial final accuracy of a trial, in (0, 0.95].

    A simulation trains no model, so this function replaces the measured score. It has its maximum at the usual
    parameters of ResNet on CIFAR-10 (0.1, 0.9, 5e-4). The duration of a trial does not depend on its parameters, so the
    score determines only the parameters of later trials.
    """
    distance = (
        log10(parameters.learning_rate / 0.1) ** 2
        + log10((1 - parameters.momentum) / 0.1) ** 2
        + 0.25 * log10(parameters.weight_decay / 5e-4) ** 2
    )
    return 0.95 / (1 + 0.1 * distance)


class Trials:
    """The trials of one search. Each job is a copy of the template with another name and time.

    `first` has the `at_once` jobs that are submitted at the start.
    """

    def __init__(self, template: Job, num_trials: int, at_once: int, seed: int) -> None:
        self.sampler = Sampler(seed)
        self._template = template
        self._num_trials = num_trials
        self._running: dict[str, NDArray[np.float64]] = {}  # point of each running trial, by the name of its job
        self._num_started = 0
        self.first = tuple(self._start(0.0) for _ in range(at_once))

    def after(self, job: Job, time: float) -> Sequence[Job]:
        """Keep the score of a complete trial, and return the next trial, submitted at `time` [s], if any."""
        point = self._running.pop(job.job_id)
        self.sampler.learn(point, surrogate_accuracy(parameters_at(point)))
        if self._num_started >= self._num_trials:
            return ()
        return (self._start(time),)

    def _start(self, time: float) -> Job:
        """Return the job of the next trial, submitted at `time` [s]."""
        self._num_started += 1
        digits = len(str(self._num_trials))  # leading zeros, so that the order of the names is that of the trials
        name = f"trial-{self._num_started:0{digits}d}"
        self._running[name] = self.sampler.propose()
        template = self._template
        return Job(name, time, template.application, template.num_replicas, template.batch_size)


@takes_settings("workload")
@dataclass(frozen=True)
class HyperParameterSearch:
    """Trials of one application. When a trial is complete, the next is submitted.

    Raise InvalidConfigError if a setting is invalid.

    Source: Pollux (OSDI '21), §5.4.2 and Table 3.
    """

    application: Name = "cifar10"  # application of every trial
    num_trials: Annotated[int, Range(least=1, most=MOST_JOBS)] = 100  # number of trials
    at_once: Annotated[int, Range(least=1, most=MOST_JOBS)] = 4  # number of trials at the same time
    num_replicas: PositiveInt = 4  # requested GPUs of a trial
    batch_size: int | None = None  # requested batch size of a trial [examples]; None for the initial batch size
    seed: NonNegativeInt = 0  # seed of the searcher

    def __post_init__(self) -> None:
        if self.at_once > self.num_trials:
            must = f"1 to workload.num_trials, which is {self.num_trials}"
            raise invalid_setting("workload.at_once", self.at_once, must)

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the workload of the first trials, which creates the later trials.

        Raise UnknownApplicationError if the application has no profile.
        """
        profile = profiles.get(self.application)
        if profile is None:
            requirement = one_of(self.application, sorted(profiles))
            raise UnknownApplicationError(f"workload.application is {self.application!r}, must be {requirement}")
        batch_size = self.batch_size
        if batch_size is None:
            batch_size = profile.application.init_batch_size
        template = Job("trial", 0.0, self.application, self.num_replicas, batch_size)
        new_search = partial(Trials, template, self.num_trials, self.at_once, self.seed)
        followers = self.num_trials - self.at_once
        return Workload(new_search().first, "search", new_arrivals=new_search, num_followers=followers)
