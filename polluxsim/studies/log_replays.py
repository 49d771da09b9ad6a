"""Replay a log with other policies, clusters and loads, and compare the simulated waits with the recorded waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import isinf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, allowed_among
from polluxsim.logs.importing import import_trace
from polluxsim.logs.trace_table import read_trace
from polluxsim.metrics.target import read_target
from polluxsim.records.folders import info_of, remove_if_empty
from polluxsim.records.storage import read_run
from polluxsim.run.configurations import entries, quoted
from polluxsim.studies.driver import run_sweep
from polluxsim.workloads.trace import TraceReplay

VARIED = {"policy": "--policies", "cluster.gpus_per_node": "--gpus-per-node"}
"""Options for the settings that all replays of a log vary, by setting."""


def refuse_varied(overrides: Sequence[str], varied: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if an override sets what the runs vary. `varied` has the options by setting."""
    for word in overrides:
        if option := varied.get(word.partition("=")[0].lstrip("+")):
            raise InvalidConfigError(f"{word} sets in every run what {option} varies; leave it out")


def _refuse_empty(request: CalibrateRequest | LogWhatIfRequest, *names: str) -> None:
    if empty := [name for name in names if not len(getattr(request, name))]:
        raise InvalidConfigError(f"{empty[0]} has no value; give at least one")


@dataclass(frozen=True)
class CalibrateRequest:
    """A search for the policy and the cluster size that explain the waits of a log.

    Raises
    ------
    InvalidInputError
        If a cluster does not consist of whole nodes.
    InvalidConfigError
        If an override sets what the replays vary, or nothing is to be tried.
    """

    log: Path  # a log with queueing delays that `polluxsim log import` wrote
    gpus: Sequence[int]  # cluster sizes to try [GPUs], multiples of gpus_per_node
    policies: Sequence[str] = ("fifo", "easy", "conservative", "multifactor")
    gpus_per_node: int = 8  # GPUs of each node
    folder: Path = Path("calibrated")  # for the runs; finished runs in it are reused
    overrides: Sequence[str] = ()  # settings of every run, like `workload.hours=24`
    workers: int | None = None  # number of processes; None: one for each core

    def __post_init__(self) -> None:
        _refuse_empty(self, "gpus", "policies")
        refuse_varied(self.overrides, {**VARIED, "cluster.num_nodes": "--gpus"})
        for gpus in self.gpus:
            if gpus < 1 or self.gpus_per_node < 1 or gpus % self.gpus_per_node:
                raise InvalidInputError(
                    f"a cluster of {gpus} GPUs does not consist of whole nodes of {self.gpus_per_node} GPUs; "
                    f"give a multiple of {self.gpus_per_node}, or the GPUs of a node with --gpus-per-node"
                )


class Match(NamedTuple):
    """Difference between the waits of one replay and the recorded waits."""

    policy: str
    gpus: int  # of the cluster
    error: float  # mean absolute difference per job [s]
    mean_wait: float  # in the replay [s]
    rank_correlation: float  # Spearman's, of the two waits; NaN if one of them is constant
    engine: Mapping[str, Any]  # the engine settings of the replay


class Calibration(NamedTuple):
    """The result of a calibration."""

    matches: Sequence[Match]  # the nearest first
    recorded: NDArray[np.float64]  # recorded waits of the jobs that all replays have, shape (jobs,) [s]


def calibrate(request: CalibrateRequest) -> Calibration:
    """Replay a log under every policy on every cluster, and return the matches.

    Jobs larger than the smallest cluster are left out of all replays.

    Raises
    ------
    InvalidInputError
        If no job of the log has a queueing delay, or none of them begins in every replay.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    log, size = Path(request.log), request.gpus_per_node
    recorded = _recorded(log)
    tried = list(dict.fromkeys(product(request.policies, request.gpus)))
    replay = (*replay_of(log), f"workload.most_gpus={min(request.gpus)}")
    same = (f"cluster.gpus_per_node={size}", *request.overrides)
    plan = [(*replay, f"policy={policy}", f"cluster.num_nodes={gpus // size}", *same) for policy, gpus in tried]
    frame = run_sweep(plan, Path(request.folder), workers=request.workers)
    found, runs = list[Match](), list(map(Path, frame["folder"]))
    simulated = [_waits(run) for run in runs]
    common = [job for job in recorded if all(job in waits for waits in simulated)]
    if not common:
        words = "no job that began in every replay has a recorded wait; replay a longer part of the log"
        raise InvalidInputError(f"{request.folder}: {words}")
    waits = np.array([recorded[job] for job in common], dtype=float)
    for (policy, gpus), run, of_jobs in zip(tried, runs, simulated, strict=True):
        ours = np.array([of_jobs[job] for job in common], dtype=float)
        error, engine = float(np.abs(ours - waits).mean()), info_of(run)["config"]["engine"]
        ranks = [pd.Series(each).rank() for each in (ours, waits)]
        is_constant = any(each.nunique() == 1 for each in ranks)
        correlation = nan if is_constant else float(ranks[0].corr(ranks[1]))
        found.append(Match(policy, gpus, error, float(ours.mean()), correlation, engine))
    return Calibration(sorted(found, key=lambda match: match.error), waits)


def _recorded(log: Path) -> Mapping[str, float]:
    """Return the recorded wait [s] of every job of a replay, by its name in the replay."""
    rows = read_trace(log)[1]  # a job's line is the number of its row, from 1
    jobs = TraceReplay(str(log)).load({}).jobs
    waits = {job.job_id: rows[job.line - 1].queueing_delay for job in jobs if job.line is not None}
    known = {name: wait for name, wait in waits.items() if wait is not None and wait >= 0}
    if not known:
        raise InvalidInputError(f"{log}: no job has a queueing delay; use a log that records when jobs began")
    return known


def replay_of(log: Path) -> tuple[str, ...]:
    """Return the overrides that replay a log, as `polluxsim run workload=trace` does."""
    return ("workload=trace", f"workload.path={quoted(str(log.resolve()))}")


def _waits(run: Path) -> Mapping[str, float]:
    """Return the simulated wait [s] of every job that began, by its name."""
    with (run / "jobs.parquet").open("rb") as file:
        table = pq.read_table(file, columns=["job", "queueing_delay"]).to_pydict()
    waits = zip(table["job"], table["queueing_delay"], strict=True)
    return {job: wait for job, wait in waits if wait is not None}


PERCENTILES = ("p50", "p90", "p95", "p99")  # of the wait

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
    gpus_per_node: int = 8  # GPUs of each node
    overrides: Sequence[str] = ()  # settings of every run

    def __post_init__(self) -> None:
        _refuse_empty(self, "nodes", "loads", "policies", "failures", "percentiles")
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
    """The result of a what-if of a log."""

    request: LogWhatIfRequest
    matches: Sequence[Match]  # the policies on the recorded cluster, the nearest to the log first
    recorded: NDArray[np.float64]  # recorded waits, shape (jobs,) [s]
    runs: Mapping[Case, Path]
    waits: Mapping[Case, tuple[float, ...]]  # mean wait and percentiles of the wait [s]
    outages: Mapping[Case, int]  # number of outages of nodes

    def effects(self) -> Iterator[str]:
        """Yield the effect of each single change on the first percentile, in the case that is nearest to the log."""
        percentile = self.request.percentiles[0]
        base = Case(self.matches[0].policy, self.request.nodes[0], self.request.loads[0], self.request.failures[0])
        before = self.waits[base][1]
        for case, (_, after, *_) in self.waits.items():
            changed = [name for name in Case._fields if getattr(case, name) != getattr(base, name)]
            if len(changed) != 1:
                continue
            more = case.nodes - base.nodes
            what = {
                "nodes": f"{abs(more)} {'more' if more > 0 else 'fewer'} node{'' if abs(more) == 1 else 's'}",
                "load": f"{case.load / base.load:g} times the load",
                "policy": f"{case.policy} in place of {base.policy}",
                "failures": "no failures" if case.failures == OFF else f"failures as in {case.failures}",
            }[changed[0]]
            if changed == ["failures"] and case.failures != OFF and not self.outages[case]:
                yield f"{what}: no node fails in this replay; try other seeds with seed=1, or a longer log"
            elif after == before:
                yield f"{what}: leaves the {percentile} wait at {wait_in_words(after)}"
            else:
                does = "cuts" if after < before else "raises"
                ends = f"from {wait_in_words(before)} to {wait_in_words(after)}"
                yield f"{what}: {does} the {percentile} wait {ends}"


def wait_in_words(seconds: float) -> str:
    """Return a wait as text; it is infinite if jobs are left at the end of the run, or were rejected."""
    return "∞ (jobs left)" if isinf(seconds) else length(seconds)


def log_whatif(request: LogWhatIfRequest) -> LogWhatIf:
    """Find the policy that explains the waits of a log, replay the log in every case, and return the waits.

    Jobs larger than the smallest cluster are left out of the cases, jobs larger than the recorded one out of the search
    for the policy.

    Raises
    ------
    InvalidInputError
        If the log is unreadable, or no job of it has a queueing delay.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    size, folder = request.gpus_per_node, request.place
    log = _imported(Path(request.log), folder)
    without_failures = _without_failures(request.overrides)
    present = CalibrateRequest(
        log, [request.nodes[0] * size], request.policies, size, folder / "as-it-was", without_failures
    )
    matches, recorded = calibrate(present)
    varied = product(request.policies, request.nodes, request.loads, request.failures)
    cases = [Case(*case) for case in dict.fromkeys(varied)]
    same = (*replay_of(log), f"workload.most_gpus={size * min(request.nodes)}", f"cluster.gpus_per_node={size}")
    runs = dict(zip(cases, _replayed(same, cases, request.overrides, folder / "runs"), strict=True))
    # A target computes its metric; the bound does not matter.
    targets = [read_target(f"{what} wait < 1h") for what in ("mean", *request.percentiles)]
    results = {case: read_run(run).result for case, run in runs.items()}
    waits = {case: tuple(target.value(result) for target in targets) for case, result in results.items()}
    outages = {case: len(result.outage_records) for case, result in results.items()}
    return LogWhatIf(request, matches, recorded, runs, waits, outages)


def _imported(source: Path, folder: Path) -> Path:
    """Return a log as written by `polluxsim log import`. Output of sacct is imported first."""
    if source.suffix == ".parquet":
        return source
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import_trace("slurm", source, folder / "log.parquet")
    finally:
        remove_if_empty(folder)
    return folder / "log.parquet"


def _without_failures(names: Sequence[str]) -> list[str]:
    """Return the overrides of replays in which no node fails."""
    return [name for name in names if not name.startswith(("cluster.failures.", "cluster/repairs", "cluster.repairs"))]


def _replayed(same: Sequence[str], cases: Sequence[Case], extra: Sequence[str], folder: Path) -> list[Path]:
    """Replay a log in every case, and return the runs. All runs have the overrides `same`."""
    plan = [
        (*same, f"policy={case.policy}", f"cluster.num_nodes={case.nodes}", f"workload.load_factor={case.load}",
         *(_without_failures(extra) if case.failures == OFF else [f"cluster/failures={case.failures}", *extra]))
        for case in cases
    ]  # fmt: skip
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
            for levels in reversals(curve, easier_upwards=is_easier_upwards).items():
                easier, harder = (
                    f"{wait_in_words(curve[level])} with {f'{level:g} nodes' if axis == 'nodes' else f'load {level:g}'}"
                    for level in levels  # the easier level, and the next harder one
                )
                yield f"not monotone: {rest.policy}, {same}: the {percentile} wait is {easier} and {harder}"


def reversals(curve: Mapping[float, float], *, easier_upwards: bool) -> dict[float, float]:
    """Return the levels with a greater, which means worse, value than the next harder level, each with this level.

    >>> reversals({43: 9.0, 44: 5.0, 45: 7.0}, easier_upwards=True)
    {45: 44}
    """
    harder_first = sorted(curve, reverse=not easier_upwards)
    return {easier: harder for harder, easier in pairwise(harder_first) if curve[easier] > curve[harder]}
