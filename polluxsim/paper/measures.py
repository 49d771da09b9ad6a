"""Functions that measure the runs of an experiment, by name. Each yields samples in seconds and shares."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.look.plot.cdf import FAIRNESS
from polluxsim.look.samples import Sample
from polluxsim.look.series import bin_edges, usage_by_bin
from polluxsim.metrics.summary import FAIR, summarise
from polluxsim.paper.phases import adaptation
from polluxsim.paper.profile_measures import best_batch_sizes, efficiency_by_stage, fit_errors, of_profiles
from polluxsim.paper.published_runs import compare_job_times, job_times_file, published_times, read_job_times
from polluxsim.paper.verdicts import EQUAL, KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas as pd

    from polluxsim.paper.runs import Runs
    from polluxsim.records import Result

LARGE = "imagenet"
"""The application whose mean completion time is the "99 %" JCT in the paper's table."""

SHORT = ("cifar10", "ncf")
"""Applications of the smallest size class. Source: Pollux (OSDI '21), Table 1."""

SHORTEST_STAGE = 15 * 60.0
"""Shorter periods with a constant number of nodes are not counted as stages [s]."""


def _of_jobs(metrics: Callable[[pd.DataFrame], Mapping[str, float]], runs: Runs) -> Iterator[Sample]:
    """Yield metrics of the jobs of each run."""
    for run in runs.made:
        for metric, value in metrics(run.jobs()).items():
            yield Sample(metric, run.arm.name, value, run.workload, run.seed)


def times(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the completion times of one run [s]; they are infinite if a job was cut off.

    `makespan` counts from the first submission, `last completion` from the start of the workload. `99 % of the jobs` is
    the time of one job, while the 99th percentile may lie between two.
    """
    jct = jobs["jct"].fillna(np.inf).to_numpy()
    large = jct[(jobs["application"] == LARGE).to_numpy()]
    end = float(jobs["completion_time"].fillna(np.inf).max())
    found = {
        "average JCT": float(jct.mean()),
        "99th percentile JCT": float(np.percentile(jct, 99)),
        "99 % of the jobs": float(np.sort(jct)[int(0.99 * len(jct))]),
        "makespan": end - float(jobs["submit_time"].min()),
        "last completion": end,
    }
    return found | ({"mean JCT imagenet": float(large.mean())} if len(large) else {})


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
    of = jobs[jobs["deadline"].notna()]
    met = float((of["completion_time"] <= of["deadline"]).mean())
    return {"deadlines met": met, "average JCT of the completed": float(jobs["jct"].mean())}


def overheads_of(jobs: pd.DataFrame) -> dict[str, float]:
    """Return the overheads of one run [s, or 1], and the GPU time of a job on average [GPU s].

    `time between re-allocations` is the time in which jobs held GPUs, divided by restarts; `time at one placement`
    divides it by all starts.
    """
    run_time, restarts = float(jobs["run_time"].sum()), int(jobs["num_restarts"].sum())
    started = int((jobs["run_time"] > 0).sum())
    short = jobs["application"].isin(SHORT)
    found = {
        "time at one placement": run_time / max(restarts + started, 1),
        "share of run time in restarts": float(jobs["restart_time"].sum()) / run_time,
        "GPU time of a job": float(jobs["gpu_seconds"].mean()),
    }
    if restarts:
        found["time between re-allocations"] = run_time / restarts
    if short.any():
        found["average JCT of short jobs"] = float(jobs["jct"][short].mean(skipna=False))
    return found


def jobs_at_published_times(runs: Runs) -> Iterator[Sample]:
    """Yield the number of jobs with a published completion time, and the number of our jobs with an equal one."""
    if (artifact := runs.inputs.workloads) is None:
        return
    for run in runs.first_seeds:
        published = published_times(artifact, runs.experiment.published_runs.get(run.arm.name, ""), run.workload)
        if published:
            jobs = run.jobs()
            ours = dict(zip(jobs["job"], jobs["jct"], strict=True))
            equal = sum(ours.get(job) == jct for job, jct in published.items())
            yield Sample(KNOWN, run.arm.name, max(len(published), len(ours)), run.workload)
            yield Sample(EQUAL, run.arm.name, equal, run.workload)


def job_times(runs: Runs) -> Iterator[Sample]:
    """Yield the `PER_JOB` metrics of each arm with a file of published completion times."""
    for run in runs.first_seeds:
        if (file := job_times_file(runs.experiment, runs.inputs, run.arm.name)) is None:
            continue
        jobs = run.jobs()
        ours = dict(zip(jobs["job"], jobs["jct"], strict=True))
        for metric, value in compare_job_times(ours, read_job_times(*file)).items():
            yield Sample(metric, run.arm.name, value, run.workload, run.seed)


def usage(runs: Runs) -> Iterator[Sample]:
    """Yield the efficiency over the whole run, weighted by GPU time."""
    for run in runs.made:
        result = run.read().result
        _, (efficiency,) = usage_by_bin(result, bin_edges(result.end_time, result.end_time))
        yield Sample("efficiency", run.arm.name, float(efficiency), run.workload, run.seed)


def shares(runs: Runs) -> Iterator[Sample]:
    """Yield each application's share of the jobs of every workload."""
    # A workload is the same whatever its runs' seeds.
    for run in runs.first_seeds:
        found = run.jobs()["application"].value_counts(normalize=True)
        for name in runs.profiles:
            yield Sample("share of jobs", name, float(found.get(name, 0.0)), run.workload)


def autoscaling(runs: Runs) -> Iterator[Sample]:
    """Yield completion time, cost and stages of every run."""
    for run in runs.made:
        result = run.read().result
        if (summary := summarise(result)) is not None and summary.avg_jct is not None:
            yield Sample("completion time", run.arm.name, summary.avg_jct, run.workload, run.seed)
            yield Sample("cost", run.arm.name, summary.cost, run.workload, run.seed)
        yield Sample("stages", run.arm.name, float(len(stages(result))), run.workload, run.seed)


def stages(result: Result) -> list[int]:
    """Return the number of nodes in each stage, in order."""
    rounds = result.round_records
    ends = [*(record.time for record in rounds[1:]), result.end_time]
    spans = groupby(zip(rounds, ends, strict=True), key=lambda span: span[0].nodes)
    lengths = ((nodes, [end - record.time for record, end in held]) for nodes, held in spans)
    return [nodes for nodes, held in lengths if sum(held) > SHORTEST_STAGE]


MEASURES: Mapping[str, Callable[[Runs], Iterable[Sample]]] = {
    "completion_times": partial(_of_jobs, times),
    "deadlines": partial(_of_jobs, deadlines_of),
    "fairness": partial(_of_jobs, fairness_of),
    "overheads": partial(_of_jobs, overheads_of),
} | {
    function.__name__: function
    for function in (
        adaptation, autoscaling, best_batch_sizes, efficiency_by_stage, fit_errors, job_times,
        jobs_at_published_times, of_profiles, shares, usage,
    )
}  # fmt: skip


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield all samples of an experiment."""
    for name in runs.experiment.measure:
        yield from MEASURES[name](runs)
