"""Which policy and cluster explain a log's waits best: the log replayed under each, beside what it recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from polluxsim.errors import InvalidInputError
from polluxsim.logs.trace_table import read_trace
from polluxsim.run.overrides import quoted
from polluxsim.sweeps import run_sweep
from polluxsim.workloads.trace import TraceReplay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Candidates:
    """What may explain a log."""

    policies: Sequence[str]
    gpus: Sequence[int]  # sizes of the cluster [GPUs], whole nodes each
    gpus_per_node: int

    def __post_init__(self) -> None:
        for gpus in self.gpus:
            if gpus < 1 or self.gpus_per_node < 1 or gpus % self.gpus_per_node:
                raise InvalidInputError(f"a cluster of {gpus} GPUs, allowed are whole nodes of {self.gpus_per_node}")


class Match(NamedTuple):
    """How near a replay's waits are to the recorded ones."""

    policy: str
    gpus: int
    error: float  # mean difference of a job's two waits [s]
    mean_wait: float  # in the replay [s]
    rank_correlation: float  # Spearman's, of the two waits; NaN where either is always the same


def calibrate(
    log: Path, candidates: Candidates, folder: Path, extra: Sequence[str] = (), workers: int | None = None
) -> tuple[list[Match], NDArray[np.float64]]:
    """Replay a log under every policy on every cluster; return those nearest to it first, and its waits [s].

    Jobs larger than the smallest cluster are left out of all. Starts cost nothing, as the log's durations hold what
    they cost; rounds are 10 s. The log is as `polluxsim import` writes it, with queueing delays; `extra` are overrides
    of every run, like `workload.hours=24`. Finished runs in the folder are not made again.
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
        found.append(Match(policy, gpus, float(np.abs(ours - waits).mean()), float(ours.mean()), _ranks(ours, waits)))
    return sorted(found, key=lambda match: match.error), waits


def _recorded(log: Path) -> Mapping[str, float]:
    """Return the recorded wait of every job that a replay has, by its name there [s]."""
    rows = read_trace(log)[1]
    jobs = TraceReplay(str(log)).load({}).jobs
    waits = {job.job_id: rows[job.line - 1].queueing_delay for job in jobs if job.line is not None}
    known = {name: wait for name, wait in waits.items() if wait is not None and wait >= 0}
    if not known:
        raise InvalidInputError(f"{log}: no job has a queueing delay, needed is a log that says when jobs began")
    return known


def replay_of(log: Path) -> tuple[str, ...]:
    """Return the overrides of a log's replay: starts cost nothing, as its durations hold what they cost."""
    path = f"workload.path={quoted(str(log.resolve()))}"
    return ("workload=trace", path, "engine.restart_delay=0", "engine.round_interval=10")


def _pairs(run: Path, recorded: Mapping[str, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return simulated and recorded waits of the jobs that have both [s]."""
    table = pq.read_table(run / "jobs.parquet", columns=["job", "queueing_delay"]).to_pydict()
    both = [
        (ours, recorded[job])
        for job, ours in zip(table["job"], table["queueing_delay"], strict=True)
        if ours is not None and job in recorded
    ]
    if not both:
        raise InvalidInputError(f"{run}: no job that began has a recorded wait, needed is one at least")
    ours, theirs = np.array(both, dtype=float).T
    return ours, theirs


def _ranks(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    first, second = pd.Series(ours).rank(), pd.Series(theirs).rank()
    return float(first.corr(second)) if first.nunique() > 1 and second.nunique() > 1 else float("nan")
