"""Replay a log under several policies and clusters, and compare the simulated waits with the recorded waits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.trace_table import read_trace
from polluxsim.records.folders import info_of
from polluxsim.run.configurations import quoted
from polluxsim.studies.driver import run_sweep
from polluxsim.workloads.trace import TraceReplay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Candidates:
    """Policies and cluster sizes that may explain the waits of a log."""

    policies: Sequence[str]
    gpus: Sequence[int]  # cluster sizes [GPUs], multiples of gpus_per_node
    gpus_per_node: int

    def __post_init__(self) -> None:
        for gpus in self.gpus:
            if gpus < 1 or self.gpus_per_node < 1 or gpus % self.gpus_per_node:
                raise InvalidInputError(
                    f"a cluster of {gpus} GPUs does not consist of whole nodes of {self.gpus_per_node} GPUs; "
                    "give a multiple, or other GPUs per node"
                )


class Match(NamedTuple):
    """Difference between the waits of one replay and the recorded waits."""

    policy: str
    gpus: int
    error: float  # mean absolute difference per job [s]
    mean_wait: float  # in the replay [s]
    rank_correlation: float  # Spearman's, of the two waits; NaN if one of them is constant
    engine: Mapping[str, Any]  # the engine settings of the replay


def calibrate(
    log: Path, candidates: Candidates, folder: Path, extra: Sequence[str] = (), workers: int | None = None
) -> tuple[list[Match], NDArray[np.float64]]:
    """Replay a log under every policy on every cluster; return the matches, nearest first, and the log's waits [s].

    Jobs larger than the smallest cluster are left out of all replays. `log` is a file that `polluxsim import` wrote,
    with queueing delays. `extra` are overrides of every run, like `workload.hours=24`. Finished runs in `folder` are
    reused.
    """
    recorded = _recorded(log)
    tried = [(policy, gpus) for policy in candidates.policies for gpus in candidates.gpus]
    size = candidates.gpus_per_node
    replay = (*replay_of(log), f"workload.most_gpus={min(candidates.gpus)}")
    same = (f"cluster.gpus_per_node={size}", *extra)
    plan = [(*replay, f"policy={policy}", f"cluster.num_nodes={gpus // size}", *same) for policy, gpus in tried]
    frame = run_sweep(plan, folder, workers=workers)
    found, waits = list[Match](), np.empty(0)
    for (policy, gpus), run in zip(tried, frame["folder"], strict=True):
        ours, waits = _pairs(Path(run), recorded)
        error, engine = float(np.abs(ours - waits).mean()), info_of(Path(run))["config"]["engine"]
        found.append(Match(policy, gpus, error, float(ours.mean()), _rank_correlation(ours, waits), engine))
    return sorted(found, key=lambda match: match.error), waits


def _recorded(log: Path) -> Mapping[str, float]:
    """Return the recorded wait of every job of a replay, by the job's name in the replay [s]."""
    rows = read_trace(log)[1]
    jobs = TraceReplay(str(log)).load({}).jobs
    waits = {job.job_id: rows[job.line - 1].queueing_delay for job in jobs if job.line is not None}
    known = {name: wait for name, wait in waits.items() if wait is not None and wait >= 0}
    if not known:
        raise InvalidInputError(f"{log}: no job has a queueing delay; use a log that records when jobs began")
    return known


def replay_of(log: Path) -> tuple[str, ...]:
    """Return the overrides that replay a log, as `polluxsim run workload=trace` does."""
    return ("workload=trace", f"workload.path={quoted(str(log.resolve()))}")


def _pairs(run: Path, recorded: Mapping[str, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the simulated and the recorded waits of the jobs that have both [s]."""
    table = pq.read_table(run / "jobs.parquet", columns=["job", "queueing_delay"]).to_pydict()
    both = [
        (ours, recorded[job])
        for job, ours in zip(table["job"], table["queueing_delay"], strict=True)
        if ours is not None and job in recorded
    ]
    if not both:
        raise InvalidInputError(f"{run}: no job that began has a recorded wait; replay a longer part of the log")
    ours, theirs = np.array(both, dtype=float).T
    return ours, theirs


def _rank_correlation(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    first, second = pd.Series(ours).rank(), pd.Series(theirs).rank()
    return float(first.corr(second)) if first.nunique() > 1 and second.nunique() > 1 else float("nan")
