"""Map the jobs of a log, which state only GPUs and time, to applications with profiles."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import (
    InvalidConfigError,
    InvalidInputError,
    MappingRuleError,
    PolluxSimError,
    UnknownApplicationError,
)
from polluxsim.hardware.gpu_types import NamedTypes
from polluxsim.hardware.placements import packed
from polluxsim.logs.trace_table import read_trace
from polluxsim.models.batch_size import split_batch_size
from polluxsim.workloads.selection import Selection, UniqueNames, shared
from polluxsim.workloads.source import check_whole
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polluxsim.logs.trace_table import TraceJob
    from polluxsim.models.profile import Profile

# Source: Pollux (OSDI '21), §5.1, and its artifact.
CLASSES: Sequence[tuple[str, float, tuple[str, ...]]] = (
    ("S", 1 * HOUR, ("cifar10", "ncf")),
    ("M", 10 * HOUR, ("deepspeech2", "bert")),
    ("L", 100 * HOUR, ("yolov3",)),
    ("XL", 1000 * HOUR, ("imagenet",)),
)
"""Size classes: name, upper limit of GPU time [GPU s], and the applications that stand for them, at even odds."""


def classify(gpu_time: float) -> tuple[str, tuple[str, ...]] | None:
    """Return the size class of a job and the applications that stand for it; None from 1000 GPU-hours on.

    >>> classify(2 * 3600.0)
    ('M', ('deepspeech2', 'bert'))
    """
    return next(((name, applications) for name, limit, applications in CLASSES if gpu_time < limit), None)


def check_profiles(profiles: Mapping[str, Profile]) -> None:
    """Raise UnknownApplicationError if an application that stands for a size class has no profile."""
    if missing := [name for *_, names in CLASSES for name in names if name not in profiles]:
        raise UnknownApplicationError(
            f"workload: the size classes need profiles of {', '.join(missing)}, there are {', '.join(profiles)}"
        )


# Source of all constants: how the workloads of Pollux (OSDI '21), §5.2, were configured.
REPLICA_CHOICES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)
LONGEST_TRAINING = 12.0 * HOUR
LEAST_SCALING, MOST_SCALING = 0.5, 0.8
GPUS_PER_NODE = 4


class Configuration(NamedTuple):
    """What a user asks for: GPUs, and the total batch size [examples]."""

    num_replicas: int
    batch_size: int


def tuned_configurations(profile: Profile, largest: int = REPLICA_CHOICES[-1]) -> tuple[Configuration, ...]:
    """Return an application's tuned configurations, by rising GPU count.

    A count is a choice if, at its best batch size on packed nodes, training takes less than 12 h and its speedup over
    the best on one GPU is between 50 and 80 % of its GPUs; with no such count it is one GPU at its best batch size.
    In place of each of more than `largest` GPUs stands the best on so many.
    """
    alone_time, alone = _best(profile, 1)
    choices = []
    for replicas in REPLICA_CHOICES[1:]:
        if replicas > profile.application.most_replicas(profile.application.max_batch_size):
            break
        time, configuration = _best(profile, replicas)
        if time < LONGEST_TRAINING and LEAST_SCALING < alone_time / time / replicas < MOST_SCALING:
            choices.append(configuration)
    fitting = (each if each.num_replicas <= largest else _best(profile, largest)[1] for each in choices)
    return tuple(fitting) or (alone,)


def _best(profile: Profile, replicas: int) -> tuple[float, Configuration]:
    """Return the shortest time to completion [s] on so many GPUs, and the batch size that reaches it."""
    application = profile.application
    return min(
        (_training_time(profile, replicas, batch_size), Configuration(replicas, batch_size))
        for batch_size in profile.batch_sizes
        if ceil(batch_size / replicas) >= application.min_atomic_batch_size
    )


def _training_time(profile: Profile, replicas: int, batch_size: int) -> float:
    choice = split_batch_size(profile.application, batch_size, replicas, accumulate_alone=False)
    step = profile.step_time(packed(replicas, GPUS_PER_NODE), choice.atomic_batch_size)
    return profile.total_iterations(batch_size) * step.optimiser_step(choice.accumulation_steps)


DEFAULT_RULE = "gpu-time-class"


class MappingRule(Protocol):
    """Says which application stands for a job of a trace. A user's own rule is a class with this method."""

    def application(self, job: TraceJob, rng: np.random.Generator) -> str | None:
        """Return the name of an application that has a profile, or None to leave the job out."""
        ...


class GpuTimeClass:
    """The paper's rule: an application of the job's size class by GPU time, at even odds.

    Source: Pollux (OSDI '21), §5.1.
    """

    def application(self, job: TraceJob, rng: np.random.Generator) -> str | None:
        """Return an application of the job's class."""
        if (found := classify(job.gpu_time)) is None:
            return None
        _, names = found
        return names[rng.integers(len(names))]


RULES: Mapping[str, Callable[[], MappingRule]] = {DEFAULT_RULE: GpuTimeClass}
"""Rules by the name a user gives."""

ALLOWED_RULES = f"{', '.join(RULES)}, or a class as module.Class"


def find_rule(name: str) -> MappingRule:
    """Return the rule of a name in `RULES`, or a class as module.Class; raise InvalidConfigError if there is none."""
    if name in RULES:
        return RULES[name]()
    module, _, attribute = name.rpartition(".")
    try:
        rule = getattr(import_module(module), attribute)()
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InvalidConfigError(f"rule is {name!r}, allowed are {ALLOWED_RULES} ({what})") from error
    if not _is_rule(rule):
        raise InvalidConfigError(f"rule is {name!r}, allowed is a class with a method application(job, rng)")
    return rule  # type: ignore[no-any-return]


# Source of both: Pollux (OSDI '21), §5.2, and its artifact.
REDRAWN_CLASSES = ("L", "XL")
"""Classes whose realistic GPU counts are drawn anew, from their jobs of at most a day."""

LONGEST_REQUEST = 24.0 * HOUR
"""Longest jobs that those are drawn from [s]."""


class Tuned:
    """Users who know what their jobs scale to."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles
        self._choices: dict[str, tuple[Configuration, ...]] = {}

    def draw(self, application: str, job: TraceJob, rng: np.random.Generator) -> Configuration:
        """Return one of the application's tuned configurations, at even odds."""
        if application not in self._choices:
            self._choices[application] = tuned_configurations(self._profiles[application])
        choices = self._choices[application]
        return choices[rng.integers(len(choices))]


class Realistic:
    """Users who ask for what those of the trace did, with the initial batch size on each GPU.

    GPU counts of large classes are drawn from those of the `usable` jobs.
    """

    def __init__(self, profiles: Mapping[str, Profile], usable: Sequence[TraceJob]) -> None:
        self._profiles = profiles
        self._requested: dict[str, list[int]] = {name: [] for name in REDRAWN_CLASSES}
        for job in usable:
            if (name := _class_of(job)) in self._requested and (job.duration or 0) <= LONGEST_REQUEST:
                self._requested[name].append(ceil(job.num_gpus))

    def draw(self, application: str, job: TraceJob, rng: np.random.Generator) -> Configuration:
        """Return the job's GPUs, or for large jobs those of one like it; never more than the largest batch feeds."""
        limits = self._profiles[application].application
        requested = self._requested.get(_class_of(job)) or [ceil(job.num_gpus)]
        gpus = requested[rng.integers(len(requested))]
        gpus = min(gpus, limits.max_batch_size // limits.init_batch_size)
        return Configuration(gpus, limits.init_batch_size * gpus)


def _class_of(job: TraceJob) -> str:
    found = classify(job.gpu_time)
    return "" if found is None else found[0]


def requests_of(profiles: Mapping[str, Profile], usable: Sequence[TraceJob], *, tuned: bool) -> Tuned | Realistic:
    """Return the users: those who know what their jobs scale to, or those of the trace."""
    return Tuned(profiles) if tuned else Realistic(profiles, usable)


@dataclass(frozen=True)
class MappingReport:
    """What became of the jobs of a trace."""

    jobs: int
    left_out: Mapping[str, int]
    applications: Mapping[str, int]

    def as_text(self) -> str:
        """Return the report, a line for each count."""
        mapped = sum(self.applications.values())
        return "\n".join((f"{mapped} of {self.jobs} jobs mapped: {_counts(self.applications)}", *self.notes()))

    def notes(self) -> list[str]:
        """Return what was left out, a line for each reason."""
        return [f"left out: {count} × {reason}" for reason, count in _by_count(self.left_out)]


@dataclass(frozen=True)
class MappedTrace:
    """A workload of profiled jobs in place of the jobs of a trace.

    Parameters
    ----------
    path
        The trace in Parquet, as `polluxsim import` and `polluxsim generate` write it.
    rule
        Which application stands for which job: a name in `RULES`, module.Class, or an object.
    tuned
        Whether jobs ask for tuned GPUs and batch sizes, or for the trace's GPUs and the initial batch size for each.
    seed
        Seed of the drawing.
    select
        Which jobs are used.
    gpu_types
        What GPU types of the log stand for, as in `TraceReplay`; None, the default, lets all jobs use any type, as
        profiles of an application may know other types than the log has.
    """

    path: str
    rule: str | MappingRule = DEFAULT_RULE
    tuned: bool = True
    seed: int = 0
    select: Selection = field(default_factory=Selection)
    gpu_types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_whole("seed", self.seed)
        if not isinstance(self.rule, str) and not _is_rule(self.rule):
            raise InvalidConfigError(f"workload.rule is {self.rule!r}, allowed are {ALLOWED_RULES}")
        if not isinstance(self.select, Selection):
            raise InvalidConfigError(
                f"workload.select is {self.select!r}, allowed are its settings, as workload.select.hours=8"
            )

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Map the trace; what was left out stands in the workload's notes.

        Raises
        ------
        InvalidInputError
            If the trace cannot be read, or no job is left.
        InvalidConfigError
            If there is no such rule.
        UnknownApplicationError
            If the rule names an application without profile.
        MappingRuleError
            If the rule raises an error of its own.
        """
        workload, report = self.map(profiles)
        return replace(workload, notes=tuple(report.notes()))

    def map(self, profiles: Mapping[str, Profile]) -> tuple[Workload, MappingReport]:
        """Map the trace; returns the workload and what was left out. Raises as `load` does."""
        rule = find_rule(self.rule) if isinstance(self.rule, str) else self.rule
        _, jobs = read_trace(Path(self.path))
        usable, left_out = self.select.select(jobs), self.select.left_out(jobs)
        rng = np.random.default_rng(self.seed)
        requests = requests_of(profiles, usable, tuned=self.tuned)
        pairs = stand_ins(self.select.in_window(usable), rule, requests, profiles, rng, source=self.path)
        names = UniqueNames(job.job for job in jobs)
        types = NamedTypes(self.gpu_types, (job.gpu_type for job in jobs))
        workload = Workload(tuple(_kept(*pair, names, types) for pair in pairs), source=self.path)
        if left := len(usable) - len(workload.jobs):
            left_out["no application by the rule"] = left
        report = MappingReport(len(jobs), left_out, Counter(job.application for job in workload.jobs))
        if not workload.jobs:
            raise InvalidInputError(f"{self.path}: none of {len(jobs)} jobs is left: {_counts(left_out)}")
        return workload, report


def _kept(of_trace: TraceJob, job: Job, names: UniqueNames, types: NamedTypes) -> Job:
    """Return a stand-in with the name, the owners and the GPU types of the job it stands for."""
    name, gpu_types = names.next_of(of_trace.job), types.of(of_trace.gpu_type)
    return replace(job, job_id=name, user=shared(of_trace.user), queue=shared(of_trace.tenant), gpu_types=gpu_types)


def map_jobs(
    jobs: Sequence[TraceJob],
    usable: Sequence[TraceJob],
    profiles: Mapping[str, Profile],
    rng: np.random.Generator,
    *,
    tuned: bool,
    source: str,
) -> Workload:
    """Return jobs of a trace, all or some of the `usable`, mapped by the paper's rule, named APPLICATION-NUMBER."""
    requests = requests_of(profiles, usable, tuned=tuned)
    pairs = stand_ins(jobs, GpuTimeClass(), requests, profiles, rng, source=source)
    return Workload(tuple(job for _, job in pairs), source=source)


def stand_ins(
    jobs: Sequence[TraceJob],
    rule: MappingRule,
    requests: Tuned | Realistic,
    profiles: Mapping[str, Profile],
    rng: np.random.Generator,
    *,
    source: str,
) -> list[tuple[TraceJob, Job]]:
    """Return each job of a trace that a rule has an application for, and the job of a profile that stands for it.

    Each has a duration; they come in order of submission, and `source` says in messages where from.

    Raises
    ------
    UnknownApplicationError
        If the rule names an application without profile.
    MappingRuleError
        If the rule raises an error of its own.
    """
    mapped: list[tuple[TraceJob, Job]] = []
    for job in jobs:
        if (application := _ask(rule, job, rng, source)) is None:
            continue
        if not isinstance(application, str) or application not in profiles:
            raise UnknownApplicationError(
                f"{source}, job {job.job!r}: application {application!r} has no profile, "
                f"allowed are {', '.join(profiles)}"
            )
        request = requests.draw(application, job, rng)
        mapped.append((job, Job(f"{application}-{len(mapped)}", job.submit_time, application, *request)))
    return mapped


def _is_rule(rule: object) -> bool:
    return callable(getattr(rule, "application", None))


def _ask(rule: MappingRule, job: TraceJob, rng: np.random.Generator, source: str) -> str | None:
    """Return what the rule answers; an error of its own says at which job."""
    try:
        return rule.application(job, rng)
    except PolluxSimError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise MappingRuleError(f"{source}, job {job.job!r}: rule {type(rule).__name__} failed: {what}") from error


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in _by_count(counts))


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
