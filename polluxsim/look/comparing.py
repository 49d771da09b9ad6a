"""One setting against others by pairs of runs: changes with their intervals, by application, and which jobs lose."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from polluxsim.durations import length
from polluxsim.errors import InvalidInputError
from polluxsim.look.frames import every_row_of, frame_of, settings_in
from polluxsim.look.groups import REPLICATES, in_words, policy_name
from polluxsim.look.metric_names import unit_of
from polluxsim.look.replication import change_of, samples_of, told_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.look.frames import Row
    from polluxsim.look.samples import Measured
    from polluxsim.records import Result
    from polluxsim.storage import Run

METRICS = ("avg_jct", "p50_jct", "p99_jct", "avg_queueing_delay", "makespan", "restarts", "gpu_hours", "max_fairness")
MOST_JOBS = 3
"""Of those that lose most, named."""


class Gain(NamedTuple):
    """How much longer a job takes under the first setting: its name and run, and the difference [s]."""

    job: str
    run: str
    seconds: float


class Against(NamedTuple):
    """The first setting against another, by what they are called.

    Changes are by metric, as a share of the other's, without those that no pair of runs has; jobs are those that are
    complete in both runs of a pair, those that gain most first.
    """

    setting: str
    other: str
    changes: dict[str, Measured]
    jobs: list[Gain]


def compared(runs: Sequence[Run], by: str | None = None) -> list[Against]:
    """Return the setting of the first run against each other one; runs alike in workload and seed are pairs.

    `by` is the setting that counts, like `policy` or `policy.p`: runs alike in all others are pairs. By default all
    that is not a seed or a workload's file counts.

    Raises
    ------
    InvalidInputError
        If no run has the setting, or it is the same in all.
    """
    runs, rows = _unlike(runs)
    labels, pooled = _settings(rows, by)
    first, *others = dict.fromkeys(labels)
    if not others:
        what = f"all runs have the same {by}" if by else "all runs have the same settings"
        raise InvalidInputError(f"{what}, needed are two to compare")
    applications = sorted({key for row in rows for key in row if key.startswith("jct_by_application.")})
    samples = samples_of(rows, labels, [*METRICS, *applications], pooled)
    keyed: dict[str, dict[str, Run]] = {label: {} for label in labels}
    for run, row, label in zip(runs, rows, labels, strict=True):
        keyed[label][repr([row.get(key) for key in pooled])] = run
    found = []
    for other in others:
        changes = {name: change_of(samples, name, (first, other)) for name in (*METRICS, *applications)}
        known = {name: change for name, change in changes.items() if change is not None}
        found.append(Against(first, other, known, _gains(keyed[first], keyed[other])))
    return found


def by_setting(runs: Sequence[Run], by: str | None = None) -> dict[str, list[Result]]:
    """Return the runs of each setting, told apart as `compared` does."""
    runs, rows = _unlike(runs)
    labels, _ = _settings(rows, by)
    return {label: [run.result for run, own in zip(runs, labels, strict=True) if own == label] for label in labels}


def _unlike(runs: Sequence[Run]) -> tuple[list[Run], list[Row]]:
    """Return runs with their rows of a table, of those alike in all only one."""
    found = {repr(row): (run, row) for run, row in zip(runs, every_row_of(frame_of(runs)), strict=True)}
    return [run for run, _ in found.values()], [row for _, row in found.values()]


def _settings(rows: Sequence[Row], by: str | None) -> tuple[list[str], list[str]]:
    """Return the value of a setting in each run, by default of all that count, and those that tell pairs apart."""
    if not by:
        return told_apart(rows), list(REPLICATES)
    keys = list(dict.fromkeys(key for row in rows for key in settings_in(row)))
    if by == "policy":
        return [policy_name(row) for row in rows], [key for key in keys if not key.startswith("policy.")]
    if by not in keys:
        raise InvalidInputError(f"the runs have no setting {by!r}, allowed are policy, {', '.join(sorted(keys))}")
    left_out = {by}
    if by.endswith("._target_"):  # of another kind, a part has other settings too
        left_out |= {key for key in keys if key.startswith(by.removesuffix("_target_"))}
    return [in_words(by, row.get(by)) for row in rows], [key for key in keys if key not in left_out]


def _gains(ours: Mapping[str, Run], theirs: Mapping[str, Run]) -> list[Gain]:
    """Return how much longer jobs take in ours, by the pairs of runs that have a key in common."""
    found = [gain for key in ours if key in theirs for gain in _by_job(ours[key], theirs[key])]
    return sorted(found, key=lambda gain: gain.seconds)


def _by_job(ours: Run, theirs: Run) -> Iterator[Gain]:
    before = {(job.job, job.submit_time): job.jct for job in theirs.result.job_records}
    for job in ours.result.job_records:
        jct = before.get((job.job, job.submit_time))
        if jct is not None and job.jct is not None:
            yield Gain(job.job, ours.name, job.jct - jct)


def as_frame(found: Sequence[Against]) -> pd.DataFrame:
    """Return a row for each other setting and metric: the change as a share of it, its 95 % interval, and the pairs."""
    rows = [
        (each.other, metric, *change.estimate, change.num_units)
        for each in found
        for metric, change in each.changes.items()
    ]
    columns = ["against", "metric", "change", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns).set_index(["against", "metric"])


def as_text(found: Sequence[Against]) -> str:
    """Return comparisons as lines for people."""
    return "\n\n".join("\n".join(_lines(each)) for each in found)


def _lines(found: Against) -> Iterator[str]:
    yield f"{found.setting} against {found.other}"
    if not found.changes:
        yield "  no two runs with the same workload and seed"
        return
    width = max(len(unit_of(metric)[0]) for metric in found.changes)
    for metric, change in found.changes.items():
        yield f"  {unit_of(metric)[0]:<{width}}  {_change(change)}"
    if found.jobs:
        longer = sum(gain.seconds > 0 for gain in found.jobs)
        shorter = f"  {len(found.jobs) - longer} of {len(found.jobs)} jobs take no longer"
        yield f"{shorter}, these lose most:" if longer else shorter
    several = len({gain.run for gain in found.jobs}) > 1
    for gain in found.jobs[: -MOST_JOBS - 1 : -1]:
        if gain.seconds > 0:
            yield f"    {gain.job} by {length(gain.seconds)}{f', in {gain.run}' if several else ''}"


def _change(change: Measured) -> str:
    value, low, high = change.estimate
    said = f"{100 * value:+7.1f} %"
    if low is not None and high is not None:
        said += f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{said}, {change.num_units} pair{'s' * (change.num_units > 1)}".replace("-", "−")
