"""Replay a log with other policies, clusters, loads and failures, and say how each change affects the waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
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
from polluxsim.studies.replayed_jobs import MEAN, PERCENTILES, Replay, in_common, left_out, read_replay, statistic

OFF = "off"  # value of `failures` for replays in which no node fails


class Case(NamedTuple):
    """One replay of a what-if of a log."""

    policy: str
    nodes: int  # number of nodes
    load: float  # factor of the arrival rate of the log
    failures: str  # an entry of cluster/failures, or `off`


@dataclass(frozen=True)
class LogWhatIfRequest:
    """A comparison of replays of a log with other nodes, loads, policies and failures.

    Raises
    ------
    InvalidConfigError
        If a percentile or a kind of failures is unknown, an override sets what the replays vary, or nothing is to be
        replayed.
    """

    log: Path  # a file that `polluxsim log import` wrote, or output of sacct
    nodes: Sequence[int]  # numbers of nodes; the first is the number of the recorded cluster
    folder: Path | None = None  # for the runs; finished runs in it are reused; None: with the name of the log
    loads: Sequence[float] = (1.0,)  # factors of the arrival rate
    policies: Sequence[str] = ("fifo", "easy")
    failures: Sequence[str] = (OFF,)  # entries of cluster/failures, or `off`
    percentiles: Sequence[str] = ("p95",)  # of the wait
    gpus_per_node: int = DEFAULT_GPUS_PER_NODE  # GPUs of each node
    overrides: Sequence[str] = ()  # settings of every run

    def __post_init__(self) -> None:
        refuse_empty(self, "nodes", "loads", "policies", "failures", "percentiles")
        refuse_launcher(self.overrides, "log whatif")
        varied = {**VARIED, "cluster.num_nodes": "--nodes", "workload.load_factor": "--load"}
        refuse_varied(self.overrides, {**varied, "cluster/failures": "--failures", "cluster.failures": "--failures"})
        if wrong := [word for word in self.percentiles if word not in PERCENTILES]:
            raise InvalidConfigError(f"--percentile is {wrong[0]!r}, must be one of {', '.join(PERCENTILES)}")
        known = (OFF, *entries("cluster/failures"))
        if wrong := [word for word in self.failures if word not in known]:
            raise InvalidConfigError(f"--failures is {wrong[0]!r}, {allowed_among(wrong[0], known)}")

    @property
    def place(self) -> Path:
        """Return the folder for the runs."""
        return Path(self.folder or Path(self.log).with_name(f"{Path(self.log).stem}-whatif"))


class LogWhatIf(NamedTuple):
    """The result of a what-if of a log. A wait is all time without GPUs, from submission to completion."""

    request: LogWhatIfRequest
    calibration: Calibration  # of the policies on the recorded cluster
    runs: Mapping[Case, Path]
    replays: Mapping[Case, Replay]
    jobs: Sequence[str]  # jobs that complete in every replay; the waits are over them
    waits: Mapping[Case, tuple[float, ...]]  # mean wait and percentiles of the wait [s]; nan without jobs
    dropped: Sequence[str] = ()  # sentences on the rows of the log that its import dropped

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
        yield from self.dropped
        named = {self._name(case): replay for case, replay in self.replays.items()}
        yield from left_out_in_words(Path(self.request.log), named, self.jobs)

    def effects(self) -> Iterator[str]:
        """Yield the effect of each single change on the first percentile, in the case that is nearest to the log."""
        base = Case(self.matches[0].policy, self.request.nodes[0], self.request.loads[0], self.request.failures[0])
        for case in self.replays:
            changed = [name for name in Case._fields if getattr(case, name) != getattr(base, name)]
            if len(changed) != 1:
                continue
            what = _change(changed[0], base, case, self.request.overrides)
            if changed == ["failures"] and case.failures != OFF and not self.replays[case].outages:
                yield f"{what}: no node fails in this replay; try other seeds with seed=1, or a longer log"
            else:
                yield f"{what}: {self._effect(base, case)}"

    def _effect(self, base: Case, case: Case) -> str:
        """Return the change of the wait between two cases, over the jobs that complete in both, with preemptions."""
        pair = [self.replays[base], self.replays[case]]
        jobs = in_common(pair)
        percentile = self.request.percentiles[0]
        if not jobs:
            return f"no job completes in both replays, so the waits cannot be compared{_others(pair, jobs)}"
        before, after = (statistic(percentile, replay.waits, jobs) for replay in pair)
        effect = f"{wait_effect(before, after, percentile)}{_others(pair, jobs)}"
        if any(replay.num_preemptions(jobs) or replay.preemptions_before for replay in pair):
            jct_before, jct_after = (length(statistic(MEAN, replay.jcts, jobs)) for replay in pair)
            is_equal = jct_before == jct_after
            jct = f"mean JCT stays at {jct_after}" if is_equal else f"mean JCT from {jct_before} to {jct_after}"
            effect += f"; {jct}; {_preemptions(self.replays[base], self.replays[case], jobs)}"
        return effect

    def _name(self, case: Case) -> str:
        """Return a case in words, without what all cases share."""
        words = [f"{case.policy} on {case.nodes} node{'s' * (case.nodes != 1)}"]
        if len(set(self.request.loads)) > 1:
            words.append(f"load {case.load:g}")
        if len(set(self.request.failures)) > 1:
            words.append(f"failures {case.failures}")
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
    return f"failures as in {name}" + (f" with {', '.join(settings)}" if settings else "")


def _change(name: str, base: Case, case: Case, overrides: Sequence[str]) -> str:
    """Return the change of one field between two cases, in words."""
    if name == "nodes":
        more = case.nodes - base.nodes
        return f"{abs(more)} {'more' if more > 0 else 'fewer'} node{'' if abs(more) == 1 else 's'}"
    if name == "load":
        return f"{case.load / base.load:g} times the load"
    if name == "policy":
        return f"{case.policy} in place of {base.policy}"
    return failures_in_words(case.failures, overrides)


def wait_effect(before: float, after: float, percentile: str) -> str:
    """Return the change of a percentile of the wait [s] in words. Waits that print alike have no change.

    >>> wait_effect(36000.0, 7200.0, "p95"), wait_effect(36000.0, 36001.0, "p95")
    ('cuts the p95 wait from 10 h to 2 h', 'leaves the p95 wait at 10 h')
    """
    if length(before) == length(after):
        return f"leaves the {percentile} wait at {length(after)}"
    does = "cuts" if after < before else "raises"
    return f"{does} the {percentile} wait from {length(before)} to {length(after)}"


def _others(pair: Sequence[Replay], jobs: Sequence[str]) -> str:
    """Return the number of jobs that a comparison of two replays leaves out, after ", over the …"; "" if it is 0."""
    everything = set[str]().union(*(replay.sizes for replay in pair))
    others = len(everything) - len(jobs)
    if not others:
        return ""
    reasons = [counts_in_words(left_out(replay, jobs, pair)) for replay in pair]
    before, after = (reason or "all complete" for reason in reasons)
    number = number_of(others, "other job")
    return f", over jobs that complete in both: {len(jobs):,} ({number}: before, {before}; after, {after})"


def _preemptions(before: Replay, after: Replay, jobs: Sequence[str]) -> str:
    """Return how often some jobs are preempted before and after a change, and the jobs from before the run."""
    count = after.num_preemptions(jobs)
    a_job = f" ({count / len(jobs):.2g} times a job)" if count else ""
    words = f"jobs are preempted {how_often(count)}{a_job}, before {how_often(before.num_preemptions(jobs))}"
    if before.preemptions_before or after.preemptions_before:
        old, new = (how_often(replay.preemptions_before) for replay in (before, after))
        words += f"; jobs from before the start of the run are preempted {new}, before {old}"
    return words


def log_whatif(request: LogWhatIfRequest) -> LogWhatIf:
    """Find the policy that explains the waits of a log, replay the log in every case, and return the waits.

    Each replay has all jobs that fit its cluster. The waits are over the jobs that complete in all replays.

    Raises
    ------
    InvalidInputError
        If the log is unreadable, or no job of it has a queueing delay.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    size, folder = request.gpus_per_node, request.place
    log, dropped = _imported(Path(request.log), folder)
    without_failures = _without_failures(request.overrides)
    present = CalibrateRequest(
        log, [request.nodes[0] * size], request.policies, size, folder / "as-it-was", without_failures
    )
    calibration = calibrate(present)
    varied = product(request.policies, request.nodes, request.loads, request.failures)
    cases = [Case(*case) for case in dict.fromkeys(varied)]
    same = (*replay_of(log), f"cluster.gpus_per_node={size}")
    runs = dict(zip(cases, _replayed(same, cases, request, folder / "runs"), strict=True))
    replays = {case: read_replay(run, size * case.nodes) for case, run in runs.items()}
    jobs = in_common(replays.values())
    names = (MEAN, *request.percentiles)
    waits = {case: tuple(statistic(name, replay.waits, jobs) for name in names) for case, replay in replays.items()}
    return LogWhatIf(request, calibration, runs, replays, jobs, waits, dropped)


def _imported(source: Path, folder: Path) -> tuple[Path, list[str]]:
    """Return a log as written by `polluxsim log import`, and sentences on the rows that the import dropped.

    Output of sacct is imported first.
    """
    if source.suffix == ".parquet":
        return source, []
    folder.mkdir(parents=True, exist_ok=True)
    try:
        report = import_trace("slurm", source, folder / "log.parquet")
    finally:
        remove_if_empty(folder)
    tallies = (*report.dropped, *report.bad)
    return folder / "log.parquet", [
        f"{source.name}: {number_of(row.count, 'row')} dropped: {row.reason}" for row in tallies
    ]


def _without_failures(names: Sequence[str]) -> list[str]:
    """Return the overrides of replays in which no node fails."""
    return [name for name in names if not name.startswith(("cluster.failures.", "cluster/repairs", "cluster.repairs"))]


def _replayed(same: Sequence[str], cases: Sequence[Case], request: LogWhatIfRequest, folder: Path) -> list[Path]:
    """Replay a log in every case, and return the runs. All runs have the overrides `same`."""
    plan = []
    for case in cases:
        overrides = [
            *same,
            f"policy={case.policy}",
            f"cluster.num_nodes={case.nodes}",
            f"workload.load_factor={case.load}",
            f"workload.most_gpus={case.nodes * request.gpus_per_node}",
        ]
        if case.failures == OFF:
            overrides += _without_failures(request.overrides)
        else:
            overrides += [f"cluster/failures={case.failures}", *request.overrides]
        plan.append(overrides)
    return list(map(Path, run_sweep(plan, folder)["folder"]))


def not_monotone(waits: Mapping[Case, Sequence[float]], percentile: str) -> Iterator[str]:
    """Yield a line for each case that is worse than the next case with fewer nodes or a higher load."""
    several = len({case.failures for case in waits}) > 1
    for axis, is_easier_upwards in (("nodes", True), ("load", False)):
        curves: dict[Case, dict[float, float]] = {}
        for case, times in waits.items():
            rest = case._replace(nodes=0) if axis == "nodes" else case._replace(load=0)
            curves.setdefault(rest, {})[getattr(case, axis)] = times[1]
        for rest, curve in curves.items():
            same = f"load {rest.load:g}" if axis == "nodes" else f"{rest.nodes} nodes"
            same += f", failures {rest.failures}" * several
            for easier, harder in reversals(curve, easier_upwards=is_easier_upwards).items():
                waits_in_words = [length(curve[level]) for level in (easier, harder)]
                if waits_in_words[0] == waits_in_words[1]:
                    continue
                levels = [f"{level:g} nodes" if axis == "nodes" else f"load {level:g}" for level in (easier, harder)]
                pairs = " and ".join(f"{wait} with {at}" for wait, at in zip(waits_in_words, levels, strict=True))
                yield f"not monotone: {rest.policy}, {same}: the {percentile} wait is {pairs}"


def reversals(curve: Mapping[float, float], *, easier_upwards: bool) -> dict[float, float]:
    """Return the levels with a greater, which means worse, value than the next harder level, each with this level.

    >>> reversals({43: 9.0, 44: 5.0, 45: 7.0}, easier_upwards=True)
    {45: 44}
    """
    harder_first = sorted(curve, reverse=not easier_upwards)
    return {easier: harder for harder, easier in pairwise(harder_first) if curve[easier] > curve[harder]}
