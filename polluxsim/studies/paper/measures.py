"""Measures of the runs of an experiment, by name. Times are in [s], and shares in [1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidInputError
from polluxsim.look.fitted_speed import FittedSpeed, agent_model, fitted_speed, mean_error
from polluxsim.look.plot.distributions import FAIRNESS
from polluxsim.look.plot.job_life import Life, StepCurve, contention_between, life_of
from polluxsim.look.plot.profiles import REPLICAS, STAGES, best_choice, efficiencies
from polluxsim.metrics.summary import FAIR, summarise
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.goodput import Alone
from polluxsim.models.profile import Profile
from polluxsim.records.results import JobRecord, Result
from polluxsim.records.storage import Run
from polluxsim.statistics.estimates import Sample
from polluxsim.statistics.series import bin_edges, usage_by_bin
from polluxsim.studies.paper.published import EQUAL, KNOWN
from polluxsim.studies.paper.published_runs import (
    compare_job_times,
    job_times_file,
    published_times,
    read_job_times,
)
from polluxsim.studies.paper.runs import Runs

Array = NDArray[np.float64]

HIGH = 0.5
LOW = 0.25
"""Contention is high from the first share, and low up to the second share, of its maximum in the life of the job."""

LARGE_JOB = "imagenet"
"""Application of Figure 6. Its mean JCT is the "99 %" JCT in the table of the paper."""

SHOWN = "cifar10"  # the application of Figures 1 and 2

SHORT = ("cifar10", "ncf")  # applications of the smallest size class. Source: Pollux (OSDI '21), Table 1
SHORTEST_STAGE = 15 * 60.0  # shorter periods with a constant number of nodes are not counted as stages [s]

METRICS = {
    "GPUs": "gpus",
    "batch size": "batch_size",
    "batch size per GPU": "batch_size_per_gpu",
    "efficiency": "efficiency",
}
"""Fields of `Phase`, by the names of metrics."""


class Phase(NamedTuple):
    """Means over a phase, weighted by time."""

    length: float  # time with GPUs in this phase [s]
    gpus: float  # of the job
    batch_size: float  # in total [examples]
    batch_size_per_gpu: float  # [examples]
    efficiency: float  # statistical


class Chosen(NamedTuple):
    """The large job of a run with the longest phase A, and its phases."""

    record: JobRecord
    phases: Mapping[str, Phase]


def adaptation(runs: Runs) -> Iterator[Sample]:
    """Yield the means of the large job of each run in each phase.

    A run in which no job passes through all phases yields nothing.
    """
    for run in runs.made:
        chosen = choose(run.read(), runs.profiles)
        if chosen is None:
            continue
        for name, phase in chosen.phases.items():
            for metric, field in METRICS.items():
                yield Sample(metric, name, getattr(phase, field), run.workload, run.seed)


def choose(run: Run, profiles: Mapping[str, Profile]) -> Chosen | None:
    """Return the large job with the longest phase A among the large jobs with all three phases."""
    candidates = []
    for record in run.result.job_records:
        if record.application == LARGE_JOB and record.completion_time is not None:
            contention = contention_between(run.result, record.submit_time, record.completion_time)
            phases_of_job = phases(life_of(run, record, profiles), contention)
            if len(phases_of_job) == 3:
                candidates.append(Chosen(record, phases_of_job))
    return max(candidates, key=lambda chosen: chosen.phases["A"].length, default=None)


def phases(life: Life, contention: StepCurve) -> Mapping[str, Phase]:
    """Return the phases in which a job held GPUs.

    Contention is the number of active jobs. In B, it is at least half of its maximum in the life of the job. A is
    before B and C is after B; both count only while contention is at most a quarter of the maximum. Raise ValueError if
    the efficiency of the job is unknown.
    """
    if life.efficiency is None:
        raise ValueError(f"{life.label}: a life without efficiency has no phases; read the life with profiles")
    curves = (life.gpus, life.batch_size, life.efficiency)
    # All curves are constant between two of these times.
    edges = np.unique(np.concatenate([curve.edges for curve in (*curves, contention)]))
    starts = edges[:-1]
    lengths = np.diff(edges)
    gpus, sizes, efficiency = (_at(curve, starts) for curve in curves)
    active = _at(contention, starts)
    crowded = active >= HIGH * active.max()
    first = starts[crowded].min()
    last = starts[crowded].max()
    quiet = active <= LOW * active.max()
    masks = {"A": quiet & (starts < first), "B": crowded, "C": quiet & (starts > last)}
    phases_by_name = {}
    for name, mask in masks.items():
        # Times without GPUs have no batch size and no efficiency, so they count in no phase.
        weights = np.where(mask & (gpus > 0), lengths, 0.0)
        if weights.sum() > 0:
            phases_by_name[name] = Phase(
                length=float(weights.sum()),
                gpus=_mean(gpus, weights),
                batch_size=_mean(sizes, weights),
                batch_size_per_gpu=_mean(sizes / np.maximum(gpus, 1), weights),
                efficiency=_mean(efficiency, weights),
            )
    return phases_by_name


def _at(curve: StepCurve, times: Array) -> Array:
    """Return the value of a curve from each time on, shape (n,); NaN outside the curve."""
    index = np.searchsorted(curve.edges, times, side="right") - 1
    is_inside = (index >= 0) & (index < len(curve.values))
    values: Array = np.where(is_inside, curve.values[np.clip(index, 0, len(curve.values) - 1)], np.nan)
    return values


def _mean(values: Array, weights: Array) -> float:
    """Return the weighted mean, without the values that have no weight, which may be NaN."""
    has_weight = weights > 0
    return float(np.average(values[has_weight], weights=weights[has_weight]))


def of_profiles(runs: Runs) -> Iterator[Sample]:
    """Yield the work [M0-steps], noise scales [examples], and step and completion time on one GPU [s] of each profile.

    All values are at the initial batch size M0.
    """
    for name, profile in runs.profiles.items():
        limits = profile.application
        size = limits.init_batch_size
        last = limits.num_epochs - 1
        step_time = Alone(profile, (1,)).step_time(split_batch_size(limits, size, 1))
        yield Sample("work [M0-steps]", name, profile.epoch_end(last))
        for when, epoch in (("first", 0), ("last", last)):
            noise_scale = profile.gradient_statistics(size, epoch).noise_scale(size)
            yield Sample(f"{when} noise scale [examples]", name, noise_scale)
        yield Sample("step time on 1 GPU", name, step_time)
        yield Sample("completion time on 1 GPU", name, step_time * profile.epoch_end(last))


def shown_profile(runs: Runs) -> Profile:
    """Return the profile of the application of Figures 1 and 2. Raise InvalidInputError if it is missing."""
    if SHOWN not in runs.profiles:
        problem = f"{runs.inputs.profiles}: has no profile of {SHOWN}, which {runs.experiment.name} shows"
        raise InvalidInputError(f"{problem}; give a folder that has one with --profiles")
    return runs.profiles[SHOWN]


def best_batch_sizes(runs: Runs) -> Iterator[Sample]:
    """Yield the batch size that takes the least time, by GPUs and stage [examples]."""
    profile = shown_profile(runs)
    for count in REPLICAS:
        for stage, shares in STAGES.items():
            choice = best_choice(profile, count, shares)
            if choice:
                yield Sample("best batch size", f"{count} GPUs, {stage}", choice.batch_size(count))


def efficiency_by_stage(runs: Runs) -> Iterator[Sample]:
    """Yield the statistical efficiency of the second smallest and of the largest batch size, early and late."""
    profile = shown_profile(runs)
    # At least one epoch, because a mean needs a value.
    tenth = max(profile.application.num_epochs // 10, 1)
    # The second smallest size, or the only one: at the smallest size, the efficiency is 1 by definition.
    small = profile.batch_sizes[:2][-1]
    large = profile.batch_sizes[-1]
    for name, size in (("small batch", small), ("large batch", large)):
        values = efficiencies(profile, size)
        yield Sample("efficiency", f"{name}, first tenth", float(np.mean(values[:tenth])))
        yield Sample("efficiency", f"{name}, last tenth", float(np.mean(values[-tenth:])))


def fit_errors(runs: Runs) -> Iterator[Sample]:
    """Yield the mean relative error of each application's modelled throughput, and the average of these errors [1]."""
    errors = {name: mean_error(comparison) for name, comparison in fits(runs.profiles).items()}
    for name, error in errors.items():
        yield Sample("error of throughput", name, error)
    yield Sample("error of throughput", "average", float(np.mean(list(errors.values()))))


def fits(profiles: Mapping[str, Profile]) -> dict[str, FittedSpeed]:
    """Return the throughput of each application, of the profile and of the model that an agent fits to it."""
    return {name: fitted_speed(profile, agent_model(profile), name) for name, profile in profiles.items()}


def _of_jobs(metrics: Callable[[pd.DataFrame], Mapping[str, float]], runs: Runs) -> Iterator[Sample]:
    """Yield metrics of the jobs of each run."""
    for run in runs.made:
        for metric, value in metrics(run.jobs()).items():
            yield Sample(metric, run.arm.name, value, run.workload, run.seed)


def _percentile(values: Array, share: float) -> float:
    """Return the percentile `share` [%], linear between ranks; infinite if a neighbouring value is infinite."""
    upper = np.percentile(values, share, method="higher")
    if not np.isfinite(upper):
        return np.inf
    # Values above the upper neighbour do not matter. Infinite ones among them would make the interpolation NaN.
    return float(np.percentile(np.minimum(values, upper), share))


def times(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the completion times of one run [s]; they are infinite if a job was cut off.

    `makespan` counts from the first submission, `last completion` from time 0. `99 % of the jobs` is
    the time of one job, while the 99th percentile may lie between two.
    """
    # A job that was cut off counts with an infinite time, so that it never makes a mean better.
    jct = jobs["jct"].fillna(np.inf).to_numpy()
    large = jct[(jobs["application"] == LARGE_JOB).to_numpy()]
    end = float(jobs["completion_time"].fillna(np.inf).max())
    values = {
        "average JCT": float(jct.mean()),
        "99th percentile JCT": _percentile(jct, 99),
        "99 % of the jobs": float(np.sort(jct)[int(0.99 * len(jct))]),
        "makespan": end - float(jobs["submit_time"].min()),
        "last completion": end,
    }
    if len(large):
        values["mean JCT imagenet"] = float(large.mean())
    return values


def fairness_of(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the largest ρ of one run, and the share of jobs with ρ < 2 [1]."""
    values = jobs[FAIRNESS].fillna(np.inf)
    return {
        "largest ρ": float(values.max()),
        "largest ρ but of ncf": float(values[jobs["application"] != "ncf"].max()),
        "jobs with ρ < 2": float((values < FAIR).mean()),
    }


def deadlines_of(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the share of jobs that met their deadline [1], and the mean JCT of completed jobs [s]."""
    with_deadline = jobs[jobs["deadline"].notna()]
    met = float((with_deadline["completion_time"] <= with_deadline["deadline"]).mean())
    return {"deadlines met": met, "average JCT of the completed": float(jobs["jct"].mean())}


def overheads_of(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the overheads of one run [s, or 1], and the GPU time of a job on average [GPU s].

    `time between re-allocations` is the time in which jobs held GPUs, divided by restarts; `time at one placement` is
    this time divided by all starts. If no job ran, the share in restarts is 0.
    """
    run_time = float(jobs["run_time"].sum())
    restarts = int(jobs["num_restarts"].sum())
    started = int((jobs["run_time"] > 0).sum())
    short = jobs["application"].isin(SHORT)
    share_in_restarts = 0.0
    if run_time:
        share_in_restarts = float(jobs["restart_time"].sum()) / run_time
    values = {
        "time at one placement": run_time / max(restarts + started, 1),
        "share of run time in restarts": share_in_restarts,
        "GPU time of a job": float(jobs["gpu_seconds"].mean()),
    }
    # Without restarts, the time between two of them is unknown, not 0.
    if restarts:
        values["time between re-allocations"] = run_time / restarts
    if short.any():
        values["average JCT of short jobs"] = float(jobs["jct"][short].mean(skipna=False))
    return values


def jobs_at_published_times(runs: Runs) -> Iterator[Sample]:
    """Yield the number of jobs with a completion time, published or ours, and the number of jobs with equal times."""
    artifact = runs.inputs.workloads
    if artifact is None:
        return
    for run in runs.first_seeds:
        published = published_times(artifact, runs.experiment.published_runs.get(run.arm.name, ""), run.workload)
        if published:
            ours = run.jcts()
            # A job that only one of the runs has counts as known and not as equal.
            equal = sum(ours.get(job) == jct for job, jct in published.items())
            yield Sample(KNOWN, run.arm.name, max(len(published), len(ours)), run.workload)
            yield Sample(EQUAL, run.arm.name, equal, run.workload)


def job_times(runs: Runs) -> Iterator[Sample]:
    """Yield the `PER_JOB` metrics of each arm with a file of published completion times."""
    for run in runs.first_seeds:
        file = job_times_file(runs.experiment, runs.inputs, run.arm.name)
        if file is None:
            continue
        for metric, value in compare_job_times(run.jcts(), read_job_times(*file)).items():
            yield Sample(metric, run.arm.name, value, run.workload, run.seed)


def usage(runs: Runs) -> Iterator[Sample]:
    """Yield the statistical efficiency over the whole of each run, weighted by GPU time."""
    for run in runs.made:
        result = run.read().result
        _, (efficiency,) = usage_by_bin(result, bin_edges(result.end_time, result.end_time))
        yield Sample("efficiency", run.arm.name, float(efficiency), run.workload, run.seed)


def shares(runs: Runs) -> Iterator[Sample]:
    """Yield each application's share of the jobs of every workload."""
    # A workload does not depend on the seeds of its runs.
    for run in runs.first_seeds:
        shares = run.jobs()["application"].value_counts(normalize=True)
        for name in runs.profiles:
            yield Sample("share of jobs", name, float(shares.get(name, 0.0)), run.workload)


def autoscaling(runs: Runs) -> Iterator[Sample]:
    """Yield the mean completion time [s], the cost and the number of stages of every run.

    A run in which no job completes has stages only.
    """
    for run in runs.made:
        result = run.read().result
        summary = summarise(result)
        if summary is not None and summary.avg_jct is not None:
            yield Sample("completion time", run.arm.name, summary.avg_jct, run.workload, run.seed)
            yield Sample("cost", run.arm.name, summary.cost, run.workload, run.seed)
        yield Sample("stages", run.arm.name, float(len(stages(result))), run.workload, run.seed)


def stages(result: Result) -> list[int]:
    """Return the number of nodes in each stage of a run on an elastic cluster, in order, without short ones."""
    rounds = result.round_records
    ends = [record.time for record in rounds[1:]]
    ends.append(result.end_time)
    nodes_of_stages = []
    # The number of nodes is constant from one round to the next.
    for nodes, spans in groupby(zip(rounds, ends, strict=True), key=lambda span: span[0].nodes):
        length = sum([end - record.time for record, end in spans])
        if length > SHORTEST_STAGE:
            nodes_of_stages.append(nodes)
    return nodes_of_stages


MEASURES: Mapping[str, Callable[[Runs], Iterable[Sample]]] = {
    "adaptation": adaptation,
    "autoscaling": autoscaling,
    "best_batch_sizes": best_batch_sizes,
    "completion_times": partial(_of_jobs, times),
    "deadlines": partial(_of_jobs, deadlines_of),
    "efficiency_by_stage": efficiency_by_stage,
    "fairness": partial(_of_jobs, fairness_of),
    "fit_errors": fit_errors,
    "job_times": job_times,
    "jobs_at_published_times": jobs_at_published_times,
    "of_profiles": of_profiles,
    "overheads": partial(_of_jobs, overheads_of),
    "shares": shares,
    "usage": usage,
}
"""Functions that yield the samples of a measure, by the name of the measure in the file of an experiment."""


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield all samples of an experiment."""
    for name in runs.experiment.measure:
        yield from MEASURES[name](runs)
