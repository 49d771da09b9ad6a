"""Map the jobs of a log, which state only GPUs and time, to applications with profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import (
    InvalidInputError,
    MappingRuleError,
    PolluxSimError,
    UnknownApplicationError,
    invalid_setting,
    one_of,
)
from polluxsim.common.values import NonNegativeInt
from polluxsim.common.written import Name, takes_settings
from polluxsim.hardware.gpu_types import NamedTypes
from polluxsim.hardware.placements import packed
from polluxsim.logs.trace_table import TraceJob, dates_of, read_trace
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import Profile
from polluxsim.workloads.past import Past, StateAtStart
from polluxsim.workloads.selection import AT_START, OUTSIDE, Selection, UniqueNames, shared
from polluxsim.workloads.source import check_gpu_types
from polluxsim.workloads.workload import Job, Workload

Requests = Callable[[str, TraceJob, np.random.Generator], "Configuration"]
"""Function that draws the request of a job of a trace for an application."""

# Source: Pollux (OSDI '21), §5.1, and its artifact.
CLASSES: Sequence[tuple[str, float, tuple[str, ...]]] = (
    ("S", 1 * HOUR, ("cifar10", "ncf")),
    ("M", 10 * HOUR, ("deepspeech2", "bert")),
    ("L", 100 * HOUR, ("yolov3",)),
    ("XL", 1000 * HOUR, ("imagenet",)),
)
"""Size classes: name, upper limit of GPU time [GPU s], and their applications, with equal probabilities."""


def classify(gpu_time: float) -> tuple[str, tuple[str, ...]] | None:
    """Return the size class of a job by its GPU time [GPU s], and its applications; None from 1000 GPU-hours on.

    >>> classify(2 * 3600.0)
    ('M', ('deepspeech2', 'bert'))
    """
    return next(((name, applications) for name, limit, applications in CLASSES if gpu_time < limit), None)


def check_profiles(profiles: Mapping[str, Profile]) -> None:
    """Raise UnknownApplicationError if an application of a size class has no profile."""
    missing = list[str]()
    for _, _, applications in CLASSES:
        missing += [name for name in applications if name not in profiles]
    if missing:
        raise UnknownApplicationError(
            f"the size classes need profiles of {', '.join(missing)}, and there are only {', '.join(profiles)}"
        )


# Source of all constants: how the workloads of Pollux (OSDI '21), §5.2, were configured.
REPLICA_CHOICES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)  # GPUs of a tuned request
LONGEST_TRAINING = 12.0 * HOUR  # [s]
LEAST_SCALING = 0.5  # speedup over one GPU, divided by the number of GPUs [1]
MOST_SCALING = 0.8  # the same
GPUS_PER_NODE = 4  # GPUs of each node for which requests are tuned


class Configuration(NamedTuple):
    """Request of a user."""

    num_replicas: int  # requested GPUs
    batch_size: int  # total [examples]


def tuned_configurations(profile: Profile, largest: int = REPLICA_CHOICES[-1]) -> tuple[Configuration, ...]:
    """Return an application's tuned configurations, by rising number of GPUs.

    Each number of GPUs has its best batch size on packed nodes. A configuration is tuned if training takes less than
    12 h and the speedup over the best configuration on one GPU is between 50 and 80 % of the number of GPUs. Without
    tuned configurations, return the best on one GPU. A configuration on more than `largest` GPUs is replaced by the
    best on `largest`.
    """
    time_alone, best_alone = _best(profile, 1)
    choices = []
    for replicas in REPLICA_CHOICES[1:]:
        if replicas > profile.application.most_replicas(profile.application.max_batch_size):
            break
        time, configuration = _best(profile, replicas)
        scaling = time_alone / time / replicas
        is_tuned = time < LONGEST_TRAINING and LEAST_SCALING < scaling < MOST_SCALING
        if is_tuned and replicas > largest:
            choices.append(_best(profile, largest)[1])
        elif is_tuned:
            choices.append(configuration)
    return tuple(choices) or (best_alone,)


def _best(profile: Profile, replicas: int) -> tuple[float, Configuration]:
    """Return the shortest time to completion on a number of GPUs [s], and its configuration.

    Of equal times, the one with the smallest batch counts.
    """
    times = []
    for batch_size in profile.batch_sizes:
        if ceil(batch_size / replicas) >= profile.application.min_atomic_batch_size:
            choice = split_batch_size(profile.application, batch_size, replicas, accumulate_alone=False)
            step = profile.step_time(packed(replicas, GPUS_PER_NODE), choice.atomic_batch_size)
            time = profile.total_iterations(batch_size) * step.optimiser_step(choice.accumulation_steps)
            times.append((time, Configuration(replicas, batch_size)))
    return min(times)


DEFAULT_RULE = "gpu-time-class"

NO_APPLICATION = "no application by the rule"  # reason to leave out a job


class MappingRule(Protocol):
    """Rule that maps a job of a trace to an application. A user's rule is a class with this method."""

    def application(self, job: TraceJob, rng: np.random.Generator) -> str | None:
        """Return the name of an application that has a profile, or None to leave the job out."""


class GpuTimeClass:
    """The paper's rule: draw an application of the job's size class by GPU time, with equal probabilities.

    Source: Pollux (OSDI '21), §5.1.
    """

    def application(self, job: TraceJob, rng: np.random.Generator) -> str | None:
        """Return an application of the job's size class; None from 1000 GPU-hours on."""
        job_class = classify(job.gpu_time)
        if job_class is None:
            return None
        _, applications = job_class
        return applications[rng.integers(len(applications))]


RULES: Mapping[str, Callable[[], MappingRule]] = {DEFAULT_RULE: GpuTimeClass}  # rules by name

KNOWN_RULES = f"one of {', '.join(RULES)}, or a class as module.Class"


def find_rule(name: str) -> MappingRule:
    """Return the rule with a name in `RULES`, or an object of a class given as module.Class.

    Raise InvalidConfigError if there is no such rule.
    """
    if name in RULES:
        return RULES[name]()
    module, _, attribute = name.rpartition(".")
    try:
        rule = getattr(import_module(module), attribute)()
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise invalid_setting("workload.rule", name, f"{KNOWN_RULES} ({problem})") from error
    if not callable(getattr(rule, "application", None)):
        raise invalid_setting("workload.rule", name, "a class with a method application(job, rng)")
    return rule  # type: ignore[no-any-return]


# Source of both: Pollux (OSDI '21), §5.2, and its artifact.
REDRAWN_CLASSES = ("L", "XL")  # classes whose realistic numbers of GPUs are drawn from their jobs of at most a day
LONGEST_REQUEST = 24.0 * HOUR  # longest job in this draw [s]


def tuned_requests(profiles: Mapping[str, Profile]) -> Requests:
    """Return the requests of users who know how their jobs scale: tuned configurations, with equal probabilities."""
    choices_of = cache(lambda application: tuned_configurations(profiles[application]))

    def request(application: str, job: TraceJob, rng: np.random.Generator) -> Configuration:
        """Draw one of the tuned configurations of an application."""
        choices = choices_of(application)
        return choices[rng.integers(len(choices))]

    return request


def realistic_requests(profiles: Mapping[str, Profile], usable: Sequence[TraceJob]) -> Requests:
    """Return the GPUs of the trace, limited by the largest batch size, with the initial batch size on each GPU.

    Numbers of GPUs of large classes are drawn from the `usable` jobs of the class.
    """
    of_class: dict[str, list[int]] = {name: [] for name in REDRAWN_CLASSES}
    for job in usable:
        name = _class_of(job)
        if name in of_class and (job.duration or 0) <= LONGEST_REQUEST:
            of_class[name].append(ceil(job.num_gpus))

    def request(application: str, job: TraceJob, rng: np.random.Generator) -> Configuration:
        """Return the GPUs of the job, or for a large class those of a drawn job, within the largest batch size."""
        limits = profiles[application].application
        choices = of_class.get(_class_of(job)) or [ceil(job.num_gpus)]
        gpus = min(choices[rng.integers(len(choices))], limits.max_batch_size // limits.init_batch_size)
        return Configuration(gpus, limits.init_batch_size * gpus)

    return request


def _class_of(job: TraceJob) -> str:
    """Return the name of a job's size class; empty from 1000 GPU-hours on."""
    job_class = classify(job.gpu_time)
    if job_class is None:
        return ""
    return job_class[0]


@dataclass(frozen=True)
class MappingReport:
    """Numbers of jobs that were mapped and left out."""

    jobs: int  # of the trace
    left_out: Mapping[str, int]  # by reason
    applications: Mapping[str, int]  # mapped jobs of the window by application
    before: int = 0  # jobs from before the window that run or wait at its start

    def notes(self) -> list[str]:
        """Return a line for each reason to leave out jobs."""
        return [f"left out: {count} × {reason}" for reason, count in _by_count(self.left_out)]


@takes_settings("workload")
@dataclass(frozen=True)
class MappedTrace:
    """A workload that maps the jobs of a trace to applications. Raise InvalidConfigError if a setting is invalid."""

    path: str  # trace in Parquet, as `polluxsim log import` and `polluxsim workload` write it
    # Rule that maps a job to an application: a name in `RULES`, module.Class, or an object.
    rule: str | MappingRule = DEFAULT_RULE
    # Whether jobs request tuned GPUs and batch sizes, or the trace's GPUs and the initial batch size per GPU.
    tuned: bool = True
    seed: NonNegativeInt = 0  # seed of the draws
    select: Selection = field(default_factory=Selection)  # selection of jobs
    # GPU type for each type in the log, as in `TraceReplay`. None, the default, lets all jobs use any type, because
    # profiles may have other types than the log.
    gpu_types: Mapping[Name, Name] | None = None

    def __post_init__(self) -> None:
        check_gpu_types(self.gpu_types)
        if not isinstance(self.rule, str) and not callable(getattr(self.rule, "application", None)):
            raise invalid_setting("workload.rule", self.rule, KNOWN_RULES)
        if not isinstance(self.select, Selection):
            raise invalid_setting("workload.select", self.select, "settings, for example workload.select.hours=8")

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Map the trace. The notes of the workload state how many jobs are left out. Raise the errors of `map`."""
        workload, report = self.map(profiles)
        return replace(workload, notes=tuple(report.notes()))

    def map(self, profiles: Mapping[str, Profile]) -> tuple[Workload, MappingReport]:
        """Map the trace; return the workload and a report.

        Raise InvalidInputError if the trace cannot be read or no job is left, and the errors of `stand_ins` and
        `find_rule`.
        """
        rule = self.rule
        if isinstance(rule, str):
            rule = find_rule(rule)
        info, jobs = read_trace(Path(self.path))
        usable = self.select.select(jobs)
        left_out = self.select.left_out(jobs)
        rng = np.random.default_rng(self.seed)
        requests = _requests(profiles, usable, tuned=self.tuned)
        pairs = stand_ins(self.select.in_window(usable), rule, requests, profiles, rng, source=self.path)
        names = UniqueNames(job.job for job in jobs)
        types = NamedTypes(self.gpu_types, (job.gpu_type for job in jobs))
        mapped = []
        for logged, job in pairs:
            mapped.append(
                replace(
                    job,
                    job_id=names.next_of(logged.job),
                    user=shared(logged.user),
                    queue=shared(logged.tenant),
                    gpu_types=types.of(logged.gpu_type),
                    job_name=shared(logged.application),
                    qos=shared(logged.qos),
                )
            )
        num_unmapped = len(usable) - len(mapped)
        if num_unmapped:
            left_out[NO_APPLICATION] = num_unmapped
        if not mapped:
            raise InvalidInputError(
                f"{self.path}: none of {len(jobs)} jobs is left: {_counts(left_out)}; choose other jobs"
            )
        # After the jobs of the window, so that their names do not depend on the jobs before it.
        before = tuple(self._mapped_before(jobs, rule, requests, profiles, names, types))
        # The selection counted these jobs as outside the window, because it does not know which of them are mapped.
        selected_before = len(self.select.before(jobs))
        left_out[OUTSIDE] -= selected_before
        left_out[NO_APPLICATION + AT_START] += selected_before - len(before)
        report = MappingReport(len(jobs), +left_out, Counter(job.application for job in mapped), len(before))
        origin = dates_of(Path(self.path), info)
        if origin is not None:
            origin = origin.later(self.select.start * HOUR)
        return Workload((*before, *mapped), source=self.path, origin=origin), report

    def _mapped_before(
        self,
        jobs: Sequence[TraceJob],
        rule: MappingRule,
        requests: Requests,
        profiles: Mapping[str, Profile],
        names: UniqueNames,
        types: NamedTypes,
    ) -> Iterator[Job]:
        """Yield the jobs from before the window that run or wait at its start.

        A running job has done the same share of its work as the job of the log. Its own random numbers leave the draws
        of the window as they are without it.
        """
        before = self.select.before(jobs)
        # By identity, because two jobs of a log can have equal values.
        places = {id(job): (state, start) for job, state, start in before}
        rng = np.random.default_rng([self.seed, 1])
        pairs = _stand_ins([job for job, _, _ in before], rule, requests, profiles, rng, source=self.path)
        for logged, application, request in pairs:
            state, start = places[id(logged)]
            past = Past.pending()
            if state == StateAtStart.RUNNING:
                profile = profiles[application]
                work = profile.epoch_end(profile.application.num_epochs - 1)
                past = Past.running(start, request.num_replicas, work * -start / (logged.duration or 1.0))
            yield Job(
                names.next_of(logged.job),
                logged.submit_time,
                application,
                *request,
                user=shared(logged.user),
                queue=shared(logged.tenant),
                gpu_types=types.of(logged.gpu_type),
                job_name=shared(logged.application),
                qos=shared(logged.qos),
                past=past,
            )


def map_jobs(
    jobs: Sequence[TraceJob],
    usable: Sequence[TraceJob],
    profiles: Mapping[str, Profile],
    rng: np.random.Generator,
    *,
    tuned: bool,
    source: str,
) -> Workload:
    """Return the workload of jobs of a trace, mapped by the paper's rule, with names APPLICATION-NUMBER.

    `usable` are the jobs of the trace from which realistic requests are drawn, if the requests are not `tuned`. Jobs of
    1000 GPU-hours or more are left out. Raise UnknownApplicationError if an application has no profile.
    """
    requests = _requests(profiles, usable, tuned=tuned)
    pairs = stand_ins(jobs, GpuTimeClass(), requests, profiles, rng, source=source)
    return Workload(tuple(job for _, job in pairs), source=source)


def _requests(profiles: Mapping[str, Profile], usable: Sequence[TraceJob], *, tuned: bool) -> Requests:
    """Return the tuned or the realistic requests of users."""
    if tuned:
        return tuned_requests(profiles)
    return realistic_requests(profiles, usable)


def stand_ins(
    jobs: Sequence[TraceJob],
    rule: MappingRule,
    requests: Requests,
    profiles: Mapping[str, Profile],
    rng: np.random.Generator,
    *,
    source: str,
) -> list[tuple[TraceJob, Job]]:
    """Return pairs of a job of a trace and the job with a profile to which a rule maps it, in the order of `jobs`.

    Each of the jobs must have a duration. Jobs that the rule maps to None are left out.

    Raise UnknownApplicationError if the rule names an application without a profile, and MappingRuleError if the rule
    raises an exception.
    """
    mapped: list[tuple[TraceJob, Job]] = []
    for job, application, request in _stand_ins(jobs, rule, requests, profiles, rng, source=source):
        mapped.append((job, Job(f"{application}-{len(mapped)}", job.submit_time, application, *request)))
    return mapped


def _stand_ins(
    jobs: Sequence[TraceJob],
    rule: MappingRule,
    requests: Requests,
    profiles: Mapping[str, Profile],
    rng: np.random.Generator,
    *,
    source: str,
) -> Iterator[tuple[TraceJob, str, Configuration]]:
    """Yield the jobs of `stand_ins` with their applications and requests. Raise its errors."""
    for job in jobs:
        try:
            application = rule.application(job, rng)
        except PolluxSimError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise MappingRuleError(
                f"{source}, job {job.job!r}: rule {type(rule).__name__} failed: {problem}"
            ) from error
        if application is None:
            continue
        if not isinstance(application, str) or application not in profiles:
            raise UnknownApplicationError(
                f"{source}, job {job.job!r}: the rule returned {application!r}, must be {one_of(application, profiles)}"
            )
        yield job, application, requests(application, job, rng)


def _counts(counts: Mapping[str, int]) -> str:
    """Return numbers by name as text, largest first."""
    return ", ".join(f"{count} × {name}" for name, count in _by_count(counts))


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return pairs of a name and its number, largest number first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
