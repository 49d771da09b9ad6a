"""Replay a log with other policies, clusters, loads and failures, and say how each change affects the waits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError, allowed_among
from polluxsim.logs.importing import import_trace
from polluxsim.metrics.outcomes import counts_in_words, how_often, number_of
from polluxsim.records.folders import remove_if_empty
from polluxsim.run.configurations import entries
from polluxsim.statistics.blocks import Blocks
from polluxsim.statistics.estimates import Estimate
from polluxsim.studies.driver import run_sweep
from polluxsim.studies.log_calibration import (
    DEFAULT_GPUS_PER_NODE,
    VARIED,
    CalibrateRequest,
    Calibration,
    Match,
    calibrate,
    left_out_in_words,
    refuse_empty,
    refuse_launcher,
    refuse_varied,
    replay_of,
)
from polluxsim.studies.log_selection import Owner, part_of
from polluxsim.studies.replayed_jobs import MEAN, PERCENTILES, Replay, in_common, left_out, read_replay, statistic

USER_GPUS = "engine.limits.all.user_gpus"  # setting that `LogWhatIfRequest.user_gpus` varies

OFF = "off"  # value of `failures` for replays in which no node fails


class Case(NamedTuple):
    """One replay of a what-if of a log."""

    policy: str
    nodes: int  # number of nodes
    load: float  # factor of the arrival rate of the log
    failures: str  # an entry of cluster/failures, or `off`
    user_gpus: int | None = None  # most GPUs that each user may hold at once; None for the limits of all runs


class SettingChange(NamedTuple):
    """The effect of a single change on a percentile of the wait. The values are nan without jobs."""

    what: str  # the change in words, like "1 more node"
    base: Case  # nearest to the log
    case: Case
    jobs: Sequence[str]  # jobs of the owner that complete in both cases
    before: Estimate  # the wait in the base [s]
    after: Estimate  # the wait in the case [s]
    ratio: Estimate  # of the wait after to the wait before [1]


@dataclass(frozen=True)
class LogWhatIfRequest:
    """A comparison of replays of a log with other nodes, loads, policies and failures.

    Raises
    ------
    InvalidConfigError
        If a percentile or a kind of failures is unknown, an override sets what the replays vary or chooses a launcher,
        or nothing is to be replayed.
    """

    log: Path  # a file that `polluxsim log import` wrote, or output of sacct
    # Numbers of nodes; the first is the number of the recorded cluster. Without any, the nodes that the largest number
    # of GPUs in use at once needs, and `extra` more.
    nodes: Sequence[int] = ()
    extra: Sequence[int] = (1,)  # additional nodes to try if `nodes` is empty
    folder: Path | None = None  # for the runs; finished runs in it are reused; None: with the name of the log
    loads: Sequence[float] = (1.0,)  # factors of the arrival rate
    policies: Sequence[str] = ("fifo", "easy")
    failures: Sequence[str] = (OFF,)  # entries of cluster/failures, or `off`
    user_gpus: Sequence[int] = ()  # limits on the GPUs of each user to try, besides the limits of all runs [GPUs]
    percentiles: Sequence[str] = ("p95",)  # of the wait
    gpus_per_node: int = DEFAULT_GPUS_PER_NODE  # GPUs of each node
    overrides: Sequence[str] = ()  # settings of every run
    partition: str | None = None  # partition of the log to replay, on nodes of its own; None for all jobs
    user: str | None = None  # the waits are over the jobs of this user; None for every user
    qos: str | None = None  # the waits are over the jobs of this QOS; None for every QOS

    def __post_init__(self) -> None:
        refuse_empty(self, "loads", "policies", "failures", "percentiles")
        refuse_launcher(self.overrides, "log whatif")
        varied = {**VARIED, "cluster.num_nodes": "--nodes", "workload.load_factor": "--load"}
        refuse_varied(self.overrides, {**varied, "cluster/failures": "--failures", "cluster.failures": "--failures"})
        wrong = [word for word in self.percentiles if word not in PERCENTILES]
        if wrong:
            raise InvalidConfigError(f"--percentile is {wrong[0]!r}, must be one of {', '.join(PERCENTILES)}")
        choices = (OFF, *entries("cluster/failures"))
        wrong = [word for word in self.failures if word not in choices]
        if wrong:
            raise InvalidConfigError(f"--failures is {wrong[0]!r}, {allowed_among(wrong[0], choices)}")

    @property
    def place(self) -> Path:
        """Return the folder for the runs."""
        return Path(self.folder or Path(self.log).with_name(f"{Path(self.log).stem}-whatif"))


class LogWhatIf(NamedTuple):
    """The result of a what-if of a log. A wait is all time without GPUs, from submission to completion.

    If no replay explains the waits in the log, no case is replayed, and `runs`, `replays`, `jobs` and `waits` are
    empty.
    """

    request: LogWhatIfRequest
    calibration: Calibration  # of the policies on the recorded cluster
    runs: Mapping[Case, Path]
    replays: Mapping[Case, Replay]
    jobs: Sequence[str]  # jobs of the owner that complete in every replay; the waits are over them
    waits: Mapping[Case, tuple[float, ...]]  # mean wait and percentiles of the wait [s]; nan without jobs
    submitted: Mapping[str, float]  # submission of each job of the log, by name [s]
    owned: Collection[str]  # jobs of the log that the answer is about: those of the user and QOS of the request
    cluster: Sequence[str] = ()  # sentences on pooled partitions and inferred nodes

    @property
    def matches(self) -> Sequence[Match]:
        """Return the policies on the recorded cluster, the nearest to the log first."""
        return self.calibration.matches

    @property
    def recorded(self) -> NDArray[np.float64]:
        """Return the recorded waits, shape (jobs,) [s]."""
        return self.calibration.recorded

    def left_out(self) -> Iterator[str]:
        """Yield sentences on the jobs that the waits leave out, and why."""
        if not self.replays:
            return
        replays_by_name = {self.name_of(case): replay for case, replay in self.replays.items()}
        yield from left_out_in_words(Path(self.request.log), replays_by_name, self.jobs)

    def changes(self) -> list[SettingChange]:
        """Return the effect of each single change on the first percentile, from the case that is nearest to the log.

        There are none if the replay does not explain the waits in the log.
        """
        request = self.request
        base = Case(self.matches[0].policy, request.nodes[0], request.loads[0], request.failures[0])
        changes = []
        for case in self.replays:
            changed = [name for name in Case._fields if getattr(case, name) != getattr(base, name)]
            # The effects of two changes at once could not be told apart.
            if len(changed) == 1:
                words = _change(changed[0], base, case, self.request.overrides)
                changes.append(self._changed(words, base, case))
        return changes

    def _changed(self, words: str, base: Case, case: Case) -> SettingChange:
        """Return the effect of a change between two cases, over the jobs of the owner that complete in both."""
        # Over the jobs of both cases only: a third case that drops jobs must not change this effect.
        base_waits = self.replays[base].waits
        case_waits = self.replays[case].waits
        jobs = [job for job in in_common((self.replays[base], self.replays[case])) if job in self.owned]
        if not jobs:
            unknown = Estimate(nan, None, None)
            return SettingChange(words, base, case, jobs, unknown, unknown, unknown)
        percentile = self.request.percentiles[0]
        blocks = Blocks([self.submitted[job] for job in jobs])
        before = statistic(percentile, base_waits, jobs)
        after = statistic(percentile, case_waits, jobs)
        # Both have the same resamples, so that a busy day makes both waits long, and their ratio stays.
        resampled_before = blocks.of_resamples([base_waits[job] for job in jobs], percentile)
        resampled_after = blocks.of_resamples([case_waits[job] for job in jobs], percentile)
        ratio = blocks.ratio((before, after), (resampled_before, resampled_after))
        return SettingChange(
            words,
            base,
            case,
            jobs,
            blocks.interval(before, resampled_before),
            blocks.interval(after, resampled_after),
            ratio,
        )

    def effects(self) -> Iterator[str]:
        """Yield a sentence for each change of `changes`, with its interval."""
        for change in self.changes():
            has_failures = change.case.failures not in (change.base.failures, OFF)
            if has_failures and not self.replays[change.case].outages:
                yield f"{change.what}: no node fails in this replay; try other seeds with seed=1, or a longer log"
            else:
                yield f"{change.what}: {self._effect(change)}"

    def no_interval(self) -> str:
        """Return the reason why the effects have no intervals; "" if they have some, or if there are no effects."""
        if not self.jobs:
            return ""
        return Blocks([self.submitted[job] for job in self.jobs]).why_no_interval()

    def _effect(self, change: SettingChange) -> str:
        """Return the effect of a change in words, with the jobs that it leaves out, and preemptions."""
        before = self.replays[change.base]
        after = self.replays[change.case]
        jobs = change.jobs
        left_out_jobs = _others(before, after)
        if not jobs:
            return f"no job completes in both replays, so the waits cannot be compared{left_out_jobs}"
        percentile = self.request.percentiles[0]
        interval = interval_in_words(change.after, change.ratio)
        effect = wait_effect(change.before.value, change.after.value, percentile)
        if interval:
            effect += f" ({interval})"
        effect += left_out_jobs
        # A preempted job has a short wait before its first GPU, and may still complete late.
        if _has_preemptions(before, jobs) or _has_preemptions(after, jobs):
            jct_before = length(statistic(MEAN, before.jcts, jobs))
            jct_after = length(statistic(MEAN, after.jcts, jobs))
            jct = f"mean JCT from {jct_before} to {jct_after}"
            if jct_before == jct_after:
                jct = f"mean JCT stays at {jct_after}"
            effect += f"; {jct}; {_preemptions(before, after, jobs)}"
        return effect

    def name_of(self, case: Case) -> str:
        """Return a case in words: its policy and nodes, and the other values in which cases differ."""
        noun = "node" if case.nodes == 1 else "nodes"
        words = [f"{case.policy} on {case.nodes} {noun}"]
        if len(set(self.request.loads)) > 1:
            words.append(f"load {case.load:g}")
        if len(set(self.request.failures)) > 1:
            words.append(f"failures {case.failures}")
        if case.user_gpus is not None:
            words.append(f"with {case.user_gpus} GPUs of a user")
        return " ".join(words)


def failures_in_words(name: str, overrides: Sequence[str]) -> str:
    """Return a description of the failures of replays: their entry, and the settings that the user changed in it.

    >>> failures_in_words("rsc-1", ["cluster.failures.rate=40", "seed=1"])
    'failures as in rsc-1 with rate=40'
    """
    if name == OFF:
        return "no failures"
    prefix = "cluster.failures."
    changed = [word.lstrip("+") for word in overrides]
    settings = [word.removeprefix(prefix) for word in changed if word.startswith(prefix)]
    if not settings:
        return f"failures as in {name}"
    return f"failures as in {name} with {', '.join(settings)}"


def _change(name: str, base: Case, case: Case, overrides: Sequence[str]) -> str:
    """Return the change of one field between two cases, in words."""
    if name == "nodes":
        difference = case.nodes - base.nodes
        comparative = "more" if difference > 0 else "fewer"
        noun = "node" if abs(difference) == 1 else "nodes"
        return f"{abs(difference)} {comparative} {noun}"
    if name == "load":
        return f"{case.load / base.load:g} times the load"
    if name == "policy":
        return f"{case.policy} in place of {base.policy}"
    if name == "user_gpus":
        return f"at most {case.user_gpus} GPUs of each user"
    return failures_in_words(case.failures, overrides)


def wait_effect(before: float, after: float, percentile: str) -> str:
    """Return the change of a percentile of the wait [s] in words. Waits that print alike have no change.

    >>> wait_effect(36000.0, 7200.0, "p95"), wait_effect(36000.0, 36001.0, "p95")
    ('cuts the p95 wait from 10 h to 2 h', 'leaves the p95 wait at 10 h')
    """
    if length(before) == length(after):
        return f"leaves the {percentile} wait at {length(after)}"
    verb = "cuts" if after < before else "raises"
    return f"{verb} the {percentile} wait from {length(before)} to {length(after)}"


def interval_in_words(wait: Estimate, ratio: Estimate) -> str:
    """Return the 95 % interval of a wait [s] after a change, and of its ratio to the wait before, in words.

    Return "" if one of them has no interval. If both ends of the ratio are 1, the sentence leaves the ratio out.

    >>> interval_in_words(Estimate(7200.0, 3600.0, 14400.0), Estimate(0.2, 0.1, 0.4))
    '95 % interval 60 min to 4 h, 10 to 40 % of the wait before'
    """
    if wait.low is None or wait.high is None or ratio.low is None or ratio.high is None:
        return ""
    words = f"95 % interval {length(wait.low)} to {length(wait.high)}"
    if ratio.low == ratio.high == 1.0:
        return words
    words += f", {100 * ratio.low:.0f} to {100 * ratio.high:.0f} % of the wait before"
    if ratio.low <= 1.0 <= ratio.high:
        words += "; the change may be chance"
    return words


def _others(before: Replay, after: Replay) -> str:
    """Return words on the jobs that a comparison of two replays leaves out, and why; "" if it leaves out none."""
    pair = (before, after)
    jobs = in_common(pair)
    num_others = len(before.sizes.keys() | after.sizes.keys()) - len(jobs)
    if not num_others:
        return ""
    number = number_of(num_others, "other job")
    reasons_before = counts_in_words(left_out(before, jobs, pair)) or "all complete"
    reasons_after = counts_in_words(left_out(after, jobs, pair)) or "all complete"
    reasons = f"before, {reasons_before}; after, {reasons_after}"
    return f", over jobs that complete in both: {len(jobs):,} ({number}: {reasons})"


def _has_preemptions(replay: Replay, jobs: Sequence[str]) -> bool:
    """Return whether some of the jobs, or jobs from before the run, are preempted in a replay."""
    return bool(replay.num_preemptions(jobs) or replay.preemptions_before)


def _preemptions(before: Replay, after: Replay, jobs: Sequence[str]) -> str:
    """Return how often some jobs are preempted before and after a change, and the jobs from before the run."""
    count = after.num_preemptions(jobs)
    words = f"jobs are preempted {how_often(count)}"
    if count:
        words += f" ({count / len(jobs):.2g} times a job)"
    words += f", before {how_often(before.num_preemptions(jobs))}"
    if before.preemptions_before or after.preemptions_before:
        words += (
            f"; jobs from before the start of the run are preempted {how_often(after.preemptions_before)}, "
            f"before {how_often(before.preemptions_before)}"
        )
    return words


def log_whatif(request: LogWhatIfRequest) -> LogWhatIf:
    """Find the policy that explains the waits of a log, replay the log in every case, and return the waits.

    Each replay has all jobs that fit its cluster. The waits are over the jobs that complete in all replays. If no
    policy explains the waits, only the recorded cluster is replayed.

    Raises
    ------
    InvalidInputError
        If the log is unreadable, or no job of it has a queueing delay.
    InvalidConfigError
        If no job has the user, the QOS or the partition of the request.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    gpus_per_node = request.gpus_per_node
    folder = request.place
    part = part_of(imported(Path(request.log), folder), request.partition, folder)
    log = part.log
    sentences = list(part.sentences)
    if not request.nodes:
        nodes, inferred = part.nodes(gpus_per_node)
        request = replace(request, nodes=[nodes + more for more in (0, *request.extra)])
        sentences.append(f"{inferred}; --nodes gives another number")
    owner = Owner(request.user, request.qos)
    owner.check(part.jobs.values(), request.partition)
    owned = {name for name, job in part.jobs.items() if owner.has(job)}
    submitted = {name: job.submit_time for name, job in part.jobs.items()}
    present = CalibrateRequest(
        log,
        [request.nodes[0] * gpus_per_node],
        request.policies,
        gpus_per_node,
        folder / "as-it-was",
        _without_failures(request.overrides),  # the log contains the failures that happened
        user=request.user,
        qos=request.qos,
    )
    calibration = calibrate(present)
    # Without an explanation of the past waits, effects of changes would be numbers without meaning.
    if not calibration.verdict.is_credible:
        return LogWhatIf(request, calibration, {}, {}, [], {}, submitted, owned, sentences)
    cases = _cases(request)
    common_overrides = (*replay_of(log), f"cluster.gpus_per_node={gpus_per_node}")
    folders = _replayed(common_overrides, cases, request, folder / "runs")
    runs = dict(zip(cases, folders, strict=True))
    replays = {case: read_replay(run, gpus_per_node * case.nodes) for case, run in runs.items()}
    jobs = [job for job in in_common(replays.values()) if job in owned]
    names = (MEAN, *request.percentiles)
    waits = {}
    for case, replay in replays.items():
        waits[case] = tuple(statistic(name, replay.waits, jobs) for name in names)
    return LogWhatIf(request, calibration, runs, replays, jobs, waits, submitted, owned, sentences)


def _cases(request: LogWhatIfRequest) -> list[Case]:
    """Return every combination of the values of a request, each once."""
    # None goes first, so that the base of the comparison has the limits of all runs.
    limits = (None, *request.user_gpus)
    values = product(request.policies, request.nodes, request.loads, request.failures, limits)
    return [Case(*values_of_case) for values_of_case in dict.fromkeys(values)]


def imported(source: Path, folder: Path) -> Path:
    """Return a log as written by `polluxsim log import`. Output of sacct is imported into a folder first.

    Raise InvalidInputError if it cannot be imported.
    """
    if source.suffix == ".parquet":
        return source
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import_trace("slurm", source, folder / "log.parquet")
    finally:
        # A log that is refused must not leave an empty folder behind.
        remove_if_empty(folder)
    return folder / "log.parquet"


def _without_failures(names: Sequence[str]) -> list[str]:
    """Return overrides without those of failures and repairs, for replays in which no node fails."""
    return [name for name in names if not name.startswith(("cluster.failures.", "cluster/repairs", "cluster.repairs"))]


def _replayed(
    common_overrides: Sequence[str], cases: Sequence[Case], request: LogWhatIfRequest, folder: Path
) -> list[Path]:
    """Replay a log in every case, and return the folders of the runs. All runs have the common overrides."""
    plan = []
    for case in cases:
        most_gpus = case.nodes * request.gpus_per_node
        if case.user_gpus is not None:
            most_gpus = min(most_gpus, case.user_gpus)  # a larger job could never start
        overrides = [
            *common_overrides,
            f"policy={case.policy}",
            f"cluster.num_nodes={case.nodes}",
            f"workload.load_factor={case.load}",
            f"workload.most_gpus={most_gpus}",
        ]
        if case.failures == OFF:
            overrides += _without_failures(request.overrides)
        else:
            overrides += [f"cluster/failures={case.failures}", *request.overrides]
        if case.user_gpus is not None:
            # The limit of the case replaces the limit of all runs.
            overrides = [word for word in overrides if _setting(word) != USER_GPUS]
            overrides.append(f"{USER_GPUS}={case.user_gpus}")
        plan.append(overrides)
    frame = run_sweep(plan, folder)
    return [Path(name) for name in frame["folder"]]


def _setting(override: str) -> str:
    """Return the name of the setting of an override.

    >>> _setting("+engine.seed=1")
    'engine.seed'
    """
    return override.lstrip("+").partition("=")[0]
