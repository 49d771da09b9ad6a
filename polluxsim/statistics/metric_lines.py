"""Declarations of the shipped metrics, and lines with one metric of several runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from polluxsim.common.durations import HOUR, unit_of
from polluxsim.metrics.declared import LESS, MORE, NEITHER, Metric, UserValues
from polluxsim.metrics.summary import Summary
from polluxsim.records.results import Result
from polluxsim.statistics.number_texts import change_text, number_text, share_text, time_text

FAILURE = "failure"  # the word for losses of GPUs in the declarations of metrics

OF_JOBS = {
    "jct": Metric("JCT", "h", formula="completion − submission; the age at the end of the run if the job was cut off"),
    "queueing_delay": Metric("time to the first GPU", "h", formula="first GPU − submission"),
    "waiting_time": Metric("waiting time in total", "h", formula="JCT − time with GPUs"),
    "restarts": Metric(
        "restarts",
        better=NEITHER,
        formula="changes of GPUs by the policy after the first start, without starts after failures",
    ),
    "failures": Metric("failures", formula="times that a failure took the GPUs"),
    "lost_time": Metric("cost of failures", "h", formula="time of training that failures undid"),
    "effective_time_ratio": Metric(
        "effective training time",
        "%",
        MORE,
        formula="(time with GPUs − starts − checkpoints − lost training) / time since the first GPU",
    ),
    "fairness": Metric("finish-time fairness ρ", formula="JCT / JCT alone on an equal share of the cluster"),
    "gpu_hours": Metric("GPU time", "GPU h", formula="sum of GPUs × time"),
    "average_gpus": Metric("average GPUs", better=NEITHER, formula="GPU time / JCT"),
}
"""Metrics of a job, as reports list them."""

OVER_TIME = {
    "gpus": Metric("GPUs in use", better=NEITHER, formula="that jobs hold"),
    "nodes": Metric("nodes", better=NEITHER, formula="that are up"),
    "nodes_down": Metric("nodes down", formula="nodes that failures took"),
    "cost": Metric("cost", "$", formula="of all nodes so far"),
    "efficiency": Metric("efficiency", "%", MORE, formula="statistical, of all running jobs, weighted by GPUs"),
    "queue": Metric("queue", formula="jobs that were submitted and hold no GPU"),
}
"""Values of a run at a time, as curves, the selected time of a report and the live view show them."""

GPU_TIME = (
    ("useful", "useful training", "jobs without checkpoints, starts and lost training", MORE),
    ("checkpoint", "checkpoints", "checkpoints", LESS),
    ("restart", "starts and restarts", "starts and restarts", LESS),
    ("lost", "lost training", "training that failures undid", LESS),
    ("idle", "idle", "free GPUs on nodes that were up", NEITHER),
    ("down", "nodes down", "nodes that were down", LESS),
)
"""Uses of GPU time: name in `Summary.gpu_time`, title, subject of the formula, and better direction."""

PERCENTILES_OF_WAITS = (
    ("p50", "median"), ("p90", "90th percentile"), ("p95", "95th percentile"), ("p99", "99th percentile"),
)  # fmt: skip
"""Names and titles of the percentiles of the waiting time in total."""

METRICS = {
    "num_jobs": Metric("jobs", better=NEITHER, formula="jobs of the workload"),
    "cut_off": Metric("cut off", formula="jobs not complete when the run ended"),
    "never_started": Metric("never started", is_part=True, formula="jobs that were cut off before their first GPU"),
    "cancelled": Metric("cancelled", better=NEITHER, formula="jobs that were cancelled"),
    "rejected": Metric("rejected", formula="jobs that the policy rejected"),
    "failed": Metric("failed", formula="jobs that failed"),
    "not_submitted": Metric(
        "not even submitted", better=NEITHER, formula="jobs with a submission after the end of the run"
    ),
    "avg_jct": Metric(
        f"average {OF_JOBS['jct'].title}",
        "h",
        formula="mean of JCT = completion − submission; a job that was cut off has its age at the end of the run",
    ),
    "p50_jct": Metric("median JCT", "h", formula="50th percentile of the JCTs, linear between ranks"),
    "p99_jct": Metric("99th percentile JCT", "h", formula="99th percentile of the JCTs, linear between ranks"),
    "jct_by_application": Metric("average JCT", "h", is_part=True, formula="average JCT of the jobs of an application"),
    "avg_queueing_delay": Metric(
        f"average {OF_JOBS['queueing_delay'].title}", "h", formula="mean of first GPU − submission"
    ),
    "avg_waiting_time": Metric(f"average {OF_JOBS['waiting_time'].title}", "h", formula="mean of JCT − time with GPUs"),
    **{
        f"{name}_waiting_time": Metric(
            f"{title} wait",
            "h",
            is_part=True,
            formula=f"{title.replace('median', '50th percentile')} of JCT − time with GPUs, linear between ranks",
        )
        for name, title in PERCENTILES_OF_WAITS
    },
    "makespan": Metric("makespan", "h", formula="last completion − first submission"),
    "utilisation": Metric(OVER_TIME["gpus"].title, "%", NEITHER, formula="GPU time of jobs / (GPUs × makespan)"),
    "restarts": Metric(
        OF_JOBS["restarts"].title,
        better=NEITHER,
        formula=(
            "changes of GPUs that the policy ordered after a job's first start, of all jobs; a start after a failure "
            "is not one of them"
        ),
    ),
    "time_between_restarts": Metric(
        "time between restarts", "h", NEITHER, is_part=True, formula="time with GPUs of all jobs / restarts"
    ),
    "restart_share": Metric(
        "share of run time in starts and restarts",
        "%",
        NEITHER,
        is_part=True,
        formula="time for starts and restarts / time with GPUs, of all jobs",
    ),
    "max_fairness": Metric(
        f"largest {OF_JOBS['fairness'].title}",
        formula="largest ρ, with ρ = JCT / JCT alone on an equal share of the cluster",
    ),
    "p99_fairness": Metric("99th percentile ρ", is_part=True, formula="99th percentile of ρ"),
    "fair_share": Metric("jobs below 2", "%", MORE, is_part=True, formula="jobs with ρ < 2 / jobs with a known ρ"),
    "unknown_fairness": Metric(
        "not known, jobs", better=NEITHER, is_part=True, formula="complete jobs without a known ρ"
    ),
    "deadlines_met": Metric(
        "deadlines met", "%", MORE, formula="jobs complete by their deadline / jobs with a deadline"
    ),
    "outages": Metric("outages of nodes", better=NEITHER, formula="outages of nodes"),
    "restarts_by_failure": Metric(
        "restarts by failure", formula="times that a failure took a job's GPUs, also if the job did not start again"
    ),
    "effective_time_ratio": replace(
        OF_JOBS["effective_time_ratio"], formula=f"{OF_JOBS['effective_time_ratio'].formula}, of all jobs"
    ),
    **{
        f"gpu_time.{name}": Metric(
            f"GPU time: {title}", "%", better, is_part=True, formula=f"GPU time of {subject} / GPU time of all nodes"
        )
        for name, title, subject, better in GPU_TIME
    },
    "availability": Metric(
        "availability of GPUs", "%", MORE, formula="1 − GPU time of nodes that were down / GPU time of all nodes"
    ),
    "gpu_hours": replace(OF_JOBS["gpu_hours"], formula="sum of GPUs × time over all jobs"),
    "cost": Metric("cost of nodes", "$", formula="sum of price × time over all nodes that were rented"),
}
"""Shipped metrics in the order of reports."""

WHERE_ANY = {
    "cut_off", "never_started", "cancelled", "rejected", "failed", "not_submitted", "unknown_fairness", "deadlines_met",
    "cost",
}  # fmt: skip
"""Metrics that are listed only if they are above 0 in a run."""

UNDER_FAILURES = {"outages", "restarts_by_failure", "effective_time_ratio", "gpu_time", "availability"}
"""Metrics that are listed, with their parts, only if nodes fail or jobs make checkpoints."""

UNTIL_COMPLETION = {"max_fairness", "p99_fairness", "fair_share", "gpu_hours"}
"""Metrics beside times that are not comparable if jobs were cut off or rejected, because they leave out such jobs."""


def worded(metrics: Mapping[str, Metric], losses: str) -> dict[str, Metric]:
    """Return metrics whose titles and formulas name what took GPUs by another word than "failure".

    >>> worded(METRICS, "outage")["restarts_by_failure"].formula
    "times that an outage took a job's GPUs, also if the job did not start again"
    """
    renamed = {}
    for name, metric in metrics.items():
        title = _with_word(metric.title, losses)
        formula = _with_word(metric.formula, losses)
        renamed[name] = replace(metric, title=title, formula=formula)
    return renamed


def _with_word(text: str, losses: str) -> str:
    """Return a text with another word than "failure"."""
    article = "an" if losses[0] in "aeiou" else "a"
    text = text.replace(f"a {FAILURE}", f"{article} {losses}")
    return re.sub(rf"\b{FAILURE}", losses, text)


def needs_completion(name: str, metric: Metric) -> bool:
    """Return whether runs in which jobs were cut off or rejected have no comparable value of a metric."""
    return metric.unit == "h" or name in UNTIL_COMPLETION


def is_lower_bound(name: str, metric: Metric) -> bool:
    """Return whether the value of a run in which jobs were cut off is a lower bound.

    The 99th percentile of ρ is none: jobs that were cut off may have smaller ρ than complete jobs.
    """
    return needs_completion(name, metric) and metric.better == LESS and name != "p99_fairness"


def metric_of(column: str, declared: Mapping[str, Metric] | None = None) -> Metric:
    """Return the declaration of a column of a table, from polluxsim's metrics and the user's declared ones.

    A column without a declaration has its name as the title.

    >>> metric_of("jct_by_application.bert").heading
    'average JCT of bert [h]'
    """
    if declared and column in declared:
        return declared[column]
    if column == "deadlines_met":  # tables have the number of jobs, reports their share
        return replace(METRICS[column], unit="jobs")
    if column in METRICS:
        return METRICS[column]
    group, _, name = column.partition(".")
    if group in METRICS:
        return replace(METRICS[group], title=f"{METRICS[group].title} of {name}")
    return Metric(column)


COMPARED_WITHOUT_DIRECTION = {"restarts", "time_between_restarts"}
"""Metrics with changes that are neither better nor worse: a policy may restart jobs in order to adapt them."""


class MetricLine(NamedTuple):
    """One metric of all runs."""

    field: str  # name in `Summary`, with the application after a dot for its mean JCT
    label: str
    unit: str  # of the texts
    values: Sequence[float | None]  # in the units of `Summary`; None if a run has no value
    texts: Sequence[str]  # "≥ " stands before a lower bound, the value of a run in which jobs were cut off
    metric: Metric
    incomplete: Sequence[bool]  # whether a run has no comparable value, because jobs were cut off or rejected
    left_out: Sequence[frozenset[str]] = ()  # names of the jobs that the value of a run leaves out; () if none matter

    @property
    def title(self) -> str:
        """Return the label with its unit."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


def metric_lines(
    summaries: Sequence[Summary],
    gpus: Sequence[int | None] = (),
    user_values: Sequence[UserValues] = (),
    is_shown: Callable[[str], bool] = lambda field: True,
    losses: str = FAILURE,
) -> list[MetricLine]:
    """Return the metrics of runs that reports list, the user's metrics last.

    A metric without a value in any run is left out, as a rule. `is_shown` tells which shipped metrics to return, by
    name.

    `gpus` contains the number of GPUs of each run's cluster, or None if it is unknown or changes. `user_values` has
    the declarations and the values of the user's metrics of each run, by name. `losses` is the word for what took GPUs.
    """
    lines: list[MetricLine] = []
    has_failures = any(map(_has_failures, summaries))
    for field, metric in worded(METRICS, losses).items():
        if not is_shown(field):
            continue
        if field.partition(".")[0] in UNDER_FAILURES and not has_failures:
            continue
        if field == "jct_by_application":
            names = set[str]()
            for run in summaries:
                names.update(run.jct_by_application)
            for name in sorted(names):
                metric_of_application = replace(metric, title=f"average JCT {name}")
                lines.append(_line(f"{field}.{name}", metric_of_application, summaries, gpus))
        else:
            lines.append(_line(field, metric, summaries, gpus))
    lines += _lines_of_user(user_values, summaries)
    # Only all lines together tell the unit of a family.
    lines = [_in_unit_of_family(line, lines, summaries) for line in lines]
    return [line for line in lines if _is_listed(line)]


def _has_failures(run: Summary) -> bool:
    """Return whether nodes or jobs of a run failed, or jobs made checkpoints."""
    return bool(run.outages or run.restarts_by_failure or run.gpu_time.get("checkpoint"))


def _lines_of_user(user_values: Sequence[UserValues], runs: Sequence[Summary]) -> Iterator[MetricLine]:
    """Yield the lines of the user's metrics. If runs declare a metric differently, the last declaration counts."""
    declared = dict[str, Metric]()
    for values_of_run in user_values:
        for name, (metric, _) in values_of_run.items():
            declared[name] = metric
    for name, metric in declared.items():
        values: list[float | None] = []
        for values_of_run in user_values:
            _, value = values_of_run.get(name, (metric, None))
            values.append(value)
        yield _line_of(name, metric, values, runs)


def _is_listed(line: MetricLine) -> bool:
    """Return whether a metric is listed: it is not 0 in some run, or 0 is a result and it is known in some run.

    The average JCT and the largest ρ are always listed.
    """
    if any(line.values):
        return True
    if line.field in WHERE_ANY:
        return False
    return line.field in ("avg_jct", "max_fairness") or any(value is not None for value in line.values)


def first_of_same_jobs(results: Sequence[Result]) -> list[int]:
    """Return, for each run, the index of the first run with the same jobs: runs of other workloads are not compared."""
    if len(results) == 1:
        return [0]
    first_run_of: dict[int, int] = {}
    bases = []
    for index, result in enumerate(results):
        # The submission of a job that waits for other jobs depends on the run.
        jobs = tuple((job.job, job.application, job.after or job.submit_time) for job in result.job_records)
        # The hash takes less memory than the jobs, of which a run can have many.
        bases.append(first_run_of.setdefault(hash(jobs), index))
    return bases


def baseline_note(names: Sequence[str], bases: Sequence[int]) -> str:
    """Return a note that names the baselines of the differences, or "" if no run has another one as its baseline.

    `bases` contains the index of the baseline of each run.
    """
    base_names: list[str] = []
    for run, base in enumerate(bases):
        if run != base and names[base] not in base_names:
            base_names.append(names[base])
    if not base_names:
        return ""
    if len(base_names) == 1:
        return f"Per cent against {base_names[0]} (baseline: the first run)."
    return f"Per cent against {' and '.join(base_names)} (baselines: each the first run of the same jobs)."


def difference(line: MetricLine, run: int, first: int) -> tuple[str, str]:
    """Return the difference of a run from its baseline in words, and "better", "worse" or "".

    `run` and `first` are the indices of the run and of its baseline. Both texts are "" if the metric is not compared,
    also because jobs were cut off or rejected in one of the runs, or because the runs leave out different jobs.
    """
    value = line.values[run]
    base = line.values[first]
    if run == first or value is None or not base or line.metric.unit == "%":
        return "", ""
    if not line.metric.better and line.field not in COMPARED_WITHOUT_DIRECTION:
        return "", ""
    if line.incomplete[run] or line.incomplete[first]:
        return "", ""
    if line.left_out and line.left_out[run] != line.left_out[first]:
        return "", ""
    # Positive if the value is larger, also against a negative baseline
    share = value / base - 1 if base > 0 else 1 - value / base
    text = change_text(share)
    if not line.metric.better or text.startswith("±"):
        return text, ""
    is_less = share < 0
    less_is_better = line.metric.better == LESS
    verdict = "better" if is_less == less_is_better else "worse"
    return text, verdict


def _line(field: str, metric: Metric, runs: Sequence[Summary], gpus: Sequence[int | None]) -> MetricLine:
    """Return the line of a shipped metric. That of the deadlines has numbers beside the share."""
    line = _line_of(field, metric, list(_values(field, runs, gpus)), runs)
    if field != "deadlines_met":
        return line
    texts = []
    for run, text in zip(runs, line.texts, strict=True):
        if run.deadlines:
            texts.append(f"{run.deadlines_met} of {run.deadlines} ({text})")
        else:
            texts.append("–")
    return line._replace(texts=texts)


FAMILIES = (
    ("avg_jct", "p50_jct", "p99_jct", "jct_by_application"),
    ("avg_queueing_delay", "avg_waiting_time"),
    tuple(f"{name}_waiting_time" for name, _ in PERCENTILES_OF_WAITS),
)
"""Metrics that share a unit of time, so that they can be compared."""


def _family_of(field: str) -> Sequence[str]:
    """Return the metrics that share the unit of a metric; empty for a metric that shares none."""
    group = field.partition(".")[0]
    for family in FAMILIES:
        if group in family:
            return family
    return ()


def _in_unit_of_family(line: MetricLine, lines: Sequence[MetricLine], runs: Sequence[Summary]) -> MetricLine:
    """Return a line of a family of metrics in the unit of the largest value of the family."""
    family = _family_of(line.field)
    if not family:
        return line
    largest = 0.0
    for member in lines:
        if member.field.partition(".")[0] in family:
            largest = _largest_of(member.values, largest)
    return _line_of(line.field, line.metric, line.values, runs, largest)


def _line_of(
    field: str, metric: Metric, values: Sequence[float | None], runs: Sequence[Summary], largest: float = 0.0
) -> MetricLine:
    """Return the line of a metric from its values. Times have a unit that suits `largest` [s] too."""
    unit, texts = _texts(metric, values, largest)
    is_affected = needs_completion(field, metric)  # by jobs that are not complete
    incomplete = [is_affected and bool(run.cut_off or run.rejected) for run in runs]
    left_out = []
    if is_affected:
        left_out = [run.left_out for run in runs]
    has_bounds = is_lower_bound(field, metric)
    marked_texts = []
    for text, run in zip(texts, runs, strict=True):
        is_bound = has_bounds and run.cut_off and text != "–"
        marked_texts.append(f"≥ {text}" if is_bound else text)
    return MetricLine(field, metric.title, unit, values, marked_texts, metric, incomplete, left_out)


def _values(field: str, runs: Sequence[Summary], gpus: Sequence[int | None]) -> Iterator[float | None]:
    """Yield the value of a metric of each run; None if it is unknown."""
    group, _, name = field.partition(".")
    for index, run in enumerate(runs):
        if group == "utilisation":
            yield _utilisation(run, gpus[index] if gpus else None)
        elif group == "availability":
            yield 1 - run.gpu_time["down"] if run.gpu_time else None
        elif group == "deadlines_met":
            yield run.deadlines_met / run.deadlines if run.deadlines else None
        else:
            value: Any = getattr(run, group)
            if name:
                value = value.get(name)
            if isinstance(value, tuple):
                value = len(value)  # the number of jobs in place of their names
            yield value


def _utilisation(run: Summary, num_gpus: int | None) -> float | None:
    """Return the share of the GPU time up to the makespan that jobs held; None if it is unknown."""
    if not num_gpus or not run.makespan:
        return None
    # Jobs from before the run hold GPUs too.
    hours = run.gpu_hours + (run.earlier_gpu_hours or 0.0)
    return hours * HOUR / (num_gpus * run.makespan)


def _texts(metric: Metric, values: Sequence[float | None], largest: float) -> tuple[str, list[str]]:
    """Return the unit and the texts of values. Times have the unit of the largest of them, and of `largest` [s]."""
    write: Callable[[float], str] = number_text
    unit = metric.unit
    if metric.unit == "%":
        unit = ""  # the texts have it
        write = share_text
    elif metric.unit == "h":
        unit, size = unit_of(_largest_of(values, largest) or HOUR)
        write = partial(time_text, size=size)
    texts = []
    for value in values:
        texts.append("–" if value is None else write(value))
    return unit, texts


def value_text(metric: Metric, value: float) -> str:
    """Return a value of a metric with its unit."""
    unit, (text,) = _texts(metric, [value], 0.0)
    return f"{text} {unit}".strip()


def _largest_of(values: Sequence[float | None], least: float) -> float:
    """Return the largest of the known values, or `least` if it is larger."""
    largest = least
    for value in values:
        if value is not None:
            largest = max(largest, value)
    return largest
