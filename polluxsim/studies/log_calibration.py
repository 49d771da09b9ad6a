"""Replay a log under policies on clusters, and compare the simulated waits with the recorded waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.logs.trace_table import read_trace
from polluxsim.metrics.outcomes import counts_in_words, how_often, number_of
from polluxsim.run.configurations import quoted
from polluxsim.studies.driver import run_sweep
from polluxsim.studies.replayed_jobs import Replay, in_common, left_out, read_replay
from polluxsim.workloads.selection import AT_START
from polluxsim.workloads.trace import TraceReplay

MOST_NAMES = 3  # largest number of replays that a sentence names

VARIED = {"policy": "--policies", "cluster.gpus_per_node": "--gpus-per-node"}
"""Options for the settings that all replays of a log vary, by setting."""


DOUBTFUL = 0.9  # share of the mean wait in a log: a replay that is off by more does not explain the waits
LEAST_DOUBTFUL = 60.0  # smaller differences of waits do not matter [s]

DEFAULT_GPUS_PER_NODE = 8  # GPUs of each node of the cluster of a log


def refuse_varied(overrides: Sequence[str], varied: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if an override sets what the runs vary. `varied` has the options by setting."""
    for word in overrides:
        if option := varied.get(word.partition("=")[0].lstrip("+")):
            raise InvalidConfigError(f"{word} sets in every run what {option} varies; leave it out")


def refuse_launcher(overrides: Sequence[str], command: str) -> None:
    """Raise InvalidConfigError if an override chooses a launcher of Hydra, which has no effect on a command."""
    for word in overrides:
        if word.lstrip("+~").startswith(("hydra/", "hydra.")):
            raise InvalidConfigError(
                f"{word} has no effect on {command}, which makes its runs in processes of this machine; leave it out"
            )


def refuse_empty(request: object, *names: str) -> None:
    """Raise InvalidConfigError if a list of a request has no value. `names` are the attributes with the lists."""
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
    gpus_per_node: int = DEFAULT_GPUS_PER_NODE  # GPUs of each node
    folder: Path = Path("calibrated")  # for the runs; finished runs in it are reused
    overrides: Sequence[str] = ()  # settings of every run, like `workload.hours=24`
    workers: int | None = None  # number of processes; None: one for each core

    def __post_init__(self) -> None:
        refuse_empty(self, "gpus", "policies")
        refuse_launcher(self.overrides, "log calibrate")
        refuse_varied(self.overrides, {**VARIED, "cluster.num_nodes": "--gpus"})
        for gpus in self.gpus:
            if gpus < 1 or self.gpus_per_node < 1 or gpus % self.gpus_per_node:
                raise InvalidInputError(
                    f"a cluster of {gpus} GPUs does not consist of whole nodes of {self.gpus_per_node} GPUs; "
                    f"give a multiple of {self.gpus_per_node}, or the GPUs of a node with --gpus-per-node"
                )


class Match(NamedTuple):
    """Difference between the waits of one replay and the recorded waits. A wait is all time without GPUs."""

    policy: str
    gpus: int  # of the cluster
    error: float  # mean absolute difference per job [s]
    mean_wait: float  # in the replay [s]
    rank_correlation: float  # Spearman's, of the two waits; NaN if one of them is constant
    engine: Mapping[str, Any]  # the engine settings of the replay
    preemptions: int  # number of times that the policy took the GPUs of one of the jobs, and the job started again


class Calibration(NamedTuple):
    """The result of a calibration."""

    matches: Sequence[Match]  # the nearest first
    recorded: NDArray[np.float64]  # recorded waits of the jobs that are complete in all replays, shape (jobs,) [s]
    left_out: Sequence[str] = ()  # sentences on the jobs that are left out, and why

    def doubts(self) -> Iterator[str]:
        """Yield two sentences if no replay explains the waits in the log.

        The nearest replay is then off by almost as much as a replay without any wait.
        """
        nearest, mean = self.matches[0], float(self.recorded.mean())
        if nearest.error < max(DOUBTFUL * mean, LEAST_DOUBTFUL):
            return
        yield (
            f"no replay explains the waits in the log: {nearest.policy} on {nearest.gpus} GPUs is the nearest, and is "
            f"off by {length(nearest.error)} a job, where the log has waits of {length(mean)} on average; do not rely "
            "on effects of changes"
        )
        yield (
            "likely causes: another number of nodes or other policies, jobs without GPUs on the same nodes, "
            "partitions, limits of users, or nodes that were down"
        )


def calibrate(request: CalibrateRequest) -> Calibration:
    """Replay a log under every policy on every cluster, and return the matches.

    Each replay has all jobs that fit its cluster. The waits are compared over the jobs that complete in all replays.

    Raises
    ------
    InvalidInputError
        If no job of the log has a queueing delay, or none of them completes in every replay.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    log, size = Path(request.log), request.gpus_per_node
    recorded = _recorded(log)
    tried = list(dict.fromkeys(product(request.policies, request.gpus)))
    plan = []
    for policy, gpus in tried:
        varied = (f"policy={policy}", f"cluster.num_nodes={gpus // size}", f"workload.most_gpus={gpus}")
        plan.append((*replay_of(log), *varied, f"cluster.gpus_per_node={size}", *request.overrides))
    frame = run_sweep(plan, Path(request.folder), workers=request.workers)
    folders = map(Path, frame["folder"])
    replays = {key: read_replay(run, key[1]) for key, run in zip(tried, folders, strict=True)}
    complete = in_common(replays.values())
    complete_jobs = set(complete)
    common = [job for job in recorded if job in complete_jobs]
    if not common:
        words = "no job that completes in every replay has a recorded wait; replay a longer part of the log"
        raise InvalidInputError(f"{request.folder}: {words}")
    waits = np.array([recorded[job] for job in common], dtype=float)
    matches = [_match(policy, replays[policy, gpus], common, waits) for policy, gpus in tried]
    named = {f"{policy} on {gpus} GPUs": replays[policy, gpus] for policy, gpus in tried}
    sentences = [*left_out_in_words(log, named, complete)]
    unknown = len(complete) - len(common)
    if unknown:
        sentences.append(f"left out: {number_of(unknown, 'job')} without a recorded wait")
    return Calibration(sorted(matches, key=lambda match: match.error), waits, sentences)


def _match(policy: str, replay: Replay, jobs: Sequence[str], recorded: NDArray[np.float64]) -> Match:
    """Return the match of a replay: its waits of some jobs beside the recorded waits, shape (jobs,) [s]."""
    ours = np.array([replay.waits[job] for job in jobs], dtype=float)
    ranks = [pd.Series(each).rank() for each in (ours, recorded)]
    is_constant = any(each.nunique() == 1 for each in ranks)
    correlation = nan if is_constant else float(ranks[0].corr(ranks[1]))
    error = float(np.abs(ours - recorded).mean())
    mean_wait = float(ours.mean())
    return Match(policy, replay.gpus, error, mean_wait, correlation, replay.engine, replay.num_preemptions(jobs))


def _recorded(log: Path) -> Mapping[str, float]:
    """Return the recorded wait [s] of every job of a replay, by its name in the replay."""
    rows = read_trace(log)[1]  # a job's line is the number of its row, from 1
    jobs = TraceReplay(str(log)).load({}).jobs
    waits = {job.job_id: rows[job.line - 1].queueing_delay for job in jobs if job.line is not None}
    known = {name: wait for name, wait in waits.items() if wait is not None and wait >= 0}
    if not known:
        raise InvalidInputError(f"{log}: no job has a queueing delay; use a log that records when jobs began")
    return known


def left_out_in_words(log: Path, replays: Mapping[str, Replay], common: Sequence[str]) -> Iterator[str]:
    """Yield sentences on the jobs of a log that a comparison leaves out. `replays` are by their names in sentences.

    The comparison is over the jobs that the replays have in common.
    """
    # Jobs that only a smaller cluster cannot run are among the others below, unless they are from before the run.
    largest = max(replays.values(), key=lambda replay: replay.gpus)
    for note in largest.notes:
        yield f"{log.name}: {note}"
    by_note: dict[str, list[str]] = {}
    for name, replay in replays.items():
        for note in replay.notes:
            if note.endswith(AT_START) and note not in largest.notes:
                by_note.setdefault(note, []).append(name)
    for note, names in by_note.items():
        yield f"{log.name}: {note}{_where(names, replays)}"
    yield from _preempted_before(replays)
    everything = set[str]().union(*(replay.sizes for replay in replays.values()))
    others = len(everything) - len(common)
    if not others:
        return
    yield (
        f"compared over jobs that complete in every replay: {len(common):,} of {len(everything):,}; "
        f"left out: {number_of(others, 'other job')}"
    )
    by_reason: dict[str, list[str]] = {}
    for name, replay in replays.items():
        counts = left_out(replay, common, replays.values())
        if counts:
            by_reason.setdefault(counts_in_words(counts), []).append(name)
    for reason, names in by_reason.items():
        yield f"  {reason}{_where(names, replays)}"


def _preempted_before(replays: Mapping[str, Replay]) -> Iterator[str]:
    """Yield a sentence on the preemptions of jobs from before the start of the run, if there are any."""
    by_count: dict[int, list[str]] = {}
    for name, replay in replays.items():
        if replay.preemptions_before:
            by_count.setdefault(replay.preemptions_before, []).append(name)
    if by_count:
        yield "left out: preemptions of jobs from before the start of the run"
    for count, names in by_count.items():
        yield f"  preempted {how_often(count)}{_where(names, replays)}"


def _where(names: Sequence[str], replays: Mapping[str, Replay]) -> str:
    """Return the names of some replays after ", ", or "" for all replays."""
    if len(names) == len(replays):
        return ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f", {'; '.join(names[:MOST_NAMES])}{more}"


def replay_of(log: Path) -> tuple[str, ...]:
    """Return the overrides that replay a log, as `polluxsim run workload=trace` does."""
    return ("workload=trace", f"workload.path={quoted(str(log.resolve()))}")
