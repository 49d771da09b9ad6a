"""Settings against their baselines, over the jobs that complete in both runs of a pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from polluxsim.metrics.declared import Metric
from polluxsim.metrics.outcomes import outcome
from polluxsim.metrics.summary import counted, of_run, summarise
from polluxsim.records.results import Result, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.estimates import Measured, Sample, Samples
from polluxsim.statistics.frames import columns_of


class InCommon(NamedTuple):
    """A setting against its baseline over the jobs that complete in both runs of a pair."""

    num_jobs: int  # over all pairs
    left_out: Mapping[str, Counter[str]]  # jobs that the comparison leaves out, by setting and by what happened to them
    changes: Mapping[str, Measured]  # by metric; empty if the means over all jobs are comparable


def common_to_pairs(
    ours: tuple[str, Mapping[str, Run]], baseline: tuple[str, Mapping[str, Run]], metrics: Mapping[str, Metric]
) -> InCommon | None:
    """Compare a setting with its baseline over the jobs that complete in both runs of a pair.

    The settings are a label and its runs by key of the pair. `metrics` are the declarations of the metrics to compare;
    metrics of the user are left out. Return None if all jobs complete in both runs of each pair, or if runs of a pair
    have other jobs of the same names. The changes are empty if the runs leave out the same jobs, because the means over
    all jobs are then comparable.
    """
    label, our_runs = ours
    baseline_label, baseline_runs = baseline
    counts_left_out = {label: Counter[str](), baseline_label: Counter[str]()}
    samples = list[Sample]()
    num_jobs = 0
    are_comparable = True
    common_keys = [key for key in our_runs if key in baseline_runs]
    for number, key in enumerate(common_keys):
        results = {label: our_runs[key].result, baseline_label: baseline_runs[key].result}
        if not _have_the_same_jobs(results[label], results[baseline_label]):
            return None
        outcomes = {name: _outcomes(result) for name, result in results.items()}
        common = _completed(outcomes[label]) & _completed(outcomes[baseline_label])
        num_jobs += len(common)
        # A job of only one run is left out too. Both settings count it.
        left_out = (outcomes[label].keys() | outcomes[baseline_label].keys()) - common
        for name, result in results.items():
            counts_left_out[name].update(outcomes[name].get(job, ABSENT) for job in left_out)
            # The number of the pair stands in for the seed, so that the two runs are one pair of samples.
            samples += _samples_over(common, result, name, number, metrics)
            # The means of this run are over other jobs than the common ones.
            if {job.job for job in counted(result)} != common:
                are_comparable = False
    if not counts_left_out[label]:
        return None
    changes: dict[str, Measured] = {}
    if not are_comparable:
        samples_by_setting = Samples(samples)
        for metric in metrics:
            change = samples_by_setting.change(metric, label, baseline_label)
            if change is not None:
                changes[metric] = change
    return InCommon(num_jobs, counts_left_out, changes)


def _samples_over(
    jobs: Container[str], result: Result, label: str, pair: int, metrics: Iterable[str]
) -> Iterator[Sample]:
    """Yield the metrics of a run over some of its jobs. `pair` is the number of the pair of runs."""
    records = tuple(job for job in result.job_records if job.job in jobs)
    summary = summarise(replace(result, job_records=records))
    if summary is None:
        return
    values = columns_of(summary)
    for metric in metrics:
        if values.get(metric) is not None:
            yield Sample(metric, label, float(values[metric]), "", pair)


ABSENT = "not in the run"  # what happened to a job of the other run of a pair


def _outcomes(result: Result) -> dict[str, str]:
    """Return what happened to each job of a run, by name."""
    return {job.job: outcome(job, result.end_time) for job in of_run(result)}


def _completed(outcomes: Mapping[str, str]) -> set[str]:
    """Return the jobs that completed, given what happened to each job."""
    return {job for job, end in outcomes.items() if end == Status.COMPLETED}


def _have_the_same_jobs(one: Result, other: Result) -> bool:
    """Return whether jobs of two runs with equal names are the same jobs. Draws at another rate have other jobs."""
    jobs = {job.job: job for job in one.job_records}
    for job in other.job_records:
        same_name = jobs.get(job.job)
        if same_name is None:
            continue
        if same_name.application != job.application:
            return False
        # The submission of a job that waits for other jobs depends on the run.
        if same_name.submit_time != job.submit_time and not same_name.after:
            return False
    return True
