"""Replay a log under policies on clusters, and compare the simulated waits with the recorded waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.logs.trace_table import TraceJob, read_info
from polluxsim.metrics.outcomes import counts_in_words, how_often, number_of
from polluxsim.policies.contract.policy import traits_of
from polluxsim.run.configurations import quoted
from polluxsim.run.named_policies import named_policy
from polluxsim.studies.causes import PLANNING, Cause, inferred_user_limit, likely_causes, without_limits
from polluxsim.studies.driver import run_sweep
from polluxsim.studies.log_selection import Owner, part_of
from polluxsim.studies.logged_jobs import recorded_waits
from polluxsim.studies.replayed_jobs import Replay, in_common, left_out, read_replay
from polluxsim.studies.verdicts import Agreement, Grade, ReplayVerdict, agreements
from polluxsim.workloads.selection import AT_START

MOST_NAMES = 3  # largest number of replays that a sentence names

VARIED = {"policy": "--policies", "cluster.gpus_per_node": "--gpus-per-node"}
"""Options for the settings that all replays of a log vary, by setting."""


DEFAULT_GPUS_PER_NODE = 8  # GPUs of each node of the cluster of a log


def refuse_varied(overrides: Sequence[str], varied: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if an override sets what the runs vary. `varied` has the options by setting."""
    for word in overrides:
        setting = word.partition("=")[0].lstrip("+")
        option = varied.get(setting)
        if option:
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
    empty = [name for name in names if not len(getattr(request, name))]
    if empty:
        raise InvalidConfigError(f"{empty[0]} has no value; give at least one")


@dataclass(frozen=True)
class CalibrateRequest:
    """A search for the policy and the cluster size that explain the waits of a log.

    Raises
    ------
    InvalidInputError
        If a cluster does not consist of whole nodes.
    InvalidConfigError
        If an override sets what the replays vary or chooses a launcher, or nothing is to be tried.
    """

    log: Path  # a log with queueing delays that `polluxsim log import` wrote
    # Cluster sizes to try [GPUs], multiples of gpus_per_node. Without any, the nodes that the largest number of GPUs in
    # use at once needs.
    gpus: Sequence[int] = ()
    policies: Sequence[str] = ("fifo", "easy", "conservative", "multifactor")
    gpus_per_node: int = DEFAULT_GPUS_PER_NODE  # GPUs of each node
    folder: Path = Path("calibrated")  # for the runs; finished runs in it are reused
    overrides: Sequence[str] = ()  # settings of every run, like `workload.hours=24`
    workers: int | None = None  # number of processes; None: one for each core
    partition: str | None = None  # partition of the log to replay; None for all jobs
    user: str | None = None  # the waits are compared over the jobs of this user; None for every user
    qos: str | None = None  # the waits are compared over the jobs of this QOS; None for every QOS

    def __post_init__(self) -> None:
        refuse_empty(self, "policies")
        refuse_launcher(self.overrides, "log calibrate")
        refuse_varied(self.overrides, {**VARIED, "cluster.num_nodes": "--gpus"})
        for gpus in self.gpus:
            has_parts_of_nodes = self.gpus_per_node < 1 or gpus % self.gpus_per_node
            if gpus < 1 or has_parts_of_nodes:
                raise InvalidInputError(
                    f"a cluster of {gpus} GPUs does not consist of whole nodes of {self.gpus_per_node} GPUs; "
                    f"give a multiple of {self.gpus_per_node}, or the GPUs of a node with --gpus-per-node"
                )


class Match(NamedTuple):
    """Difference between the waits of one replay and the recorded waits. A wait is all time without GPUs."""

    policy: str
    gpus: int  # of the cluster
    agreement: Agreement  # of the waits of all jobs
    rank_correlation: float  # Spearman's, of the two waits; NaN if one of them is constant
    engine: Mapping[str, Any]  # the engine settings of the replay
    preemptions: int  # number of times that the policy took the GPUs of one of the jobs, and the job started again

    @property
    def error(self) -> float:
        """Return the mean absolute difference of the waits of a job [s]."""
        return self.agreement.error

    @property
    def mean_wait(self) -> float:
        """Return the mean wait in the replay [s]."""
        return self.agreement.replayed


class LimitedMatch(NamedTuple):
    """The nearest replay in which each user holds at most a number of GPUs at once."""

    user_gpus: int  # the limit, which the log hints at [GPUs]
    match: Match


class Calibration(NamedTuple):
    """The result of a calibration."""

    matches: Sequence[Match]  # the nearest first
    recorded: NDArray[np.float64]  # recorded waits of the jobs that are complete in all replays, shape (jobs,) [s]
    verdict: ReplayVerdict  # on the nearest replay
    nearest: Path  # folder of the nearest replay
    left_out: Sequence[str] = ()  # sentences on the jobs that are left out, and why
    cluster: Sequence[str] = ()  # sentences on pooled partitions and inferred GPUs
    anywhere: Match | None = None  # the nearest replay again, with the GPUs of each job anywhere
    limited: LimitedMatch | None = None  # the nearest replay with a limit that the log hints at


def calibrate(request: CalibrateRequest) -> Calibration:
    """Replay a log under every policy on every cluster, and return how well each replay matches the recorded waits.

    Each replay has all jobs that fit its cluster. The waits are compared over the jobs that complete in all replays.

    Raises
    ------
    InvalidInputError
        If no job of the log has a queueing delay, or none of them completes in every replay.
    InvalidConfigError
        If no job has the user, the QOS or the partition of the request.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    part = part_of(Path(request.log), request.partition, Path(request.folder))
    log = part.log
    jobs = part.jobs
    cluster = list(part.sentences)
    sizes = list(request.gpus)
    if not sizes:
        nodes, inferred = part.nodes(request.gpus_per_node)
        sizes.append(nodes * request.gpus_per_node)
        cluster.append(f"{inferred}; --gpus gives other numbers")
    # Checked before the replays, which may take hours.
    owner = Owner(request.user, request.qos)
    owner.check(jobs.values(), request.partition)
    owned = {name: job for name, job in jobs.items() if owner.has(job)}
    recorded = recorded_waits(log, owned)
    plan = _plan(request, log, sizes)
    frame = run_sweep(list(plan.values()), Path(request.folder), workers=request.workers)
    folders = dict(zip(plan, map(Path, frame["folder"]), strict=True))
    replays = {choice: read_replay(folder, choice.gpus) for choice, folder in folders.items()}
    complete = in_common(replays.values())
    waits = _of_jobs(recorded, complete)
    if not waits:
        words = "no job that completes in every replay has a recorded wait; replay a longer part of the log"
        raise InvalidInputError(f"{request.folder}: {words}")
    matches = [_match(choice.policy, replay, jobs, waits) for choice, replay in replays.items()]
    # By the share of the waits in periods, because the waits of single jobs change under the right policy too.
    matches.sort(key=lambda match: (-match.agreement.explained, match.error))
    replays_by_name = {f"{choice.policy} on {choice.gpus} GPUs": replay for choice, replay in replays.items()}
    sentences = [*rows_left_out(log), *left_out_in_words(log, replays_by_name, complete)]
    num_unknown = sum(job in owned for job in complete) - len(waits)
    if num_unknown:
        sentences.append(f"left out: {number_of(num_unknown, 'job')} without a recorded wait")
    nearest = matches[0]
    nearest_key = PolicyOnCluster(nearest.policy, nearest.gpus)
    verdict = _verdict(log, nearest, replays[nearest_key], jobs, waits)
    anywhere = _anywhere(request, plan[nearest_key], nearest, jobs, waits)
    limited = None
    if not verdict.is_credible:  # a limit may be the cause that is missing
        same_size = {choice.policy: words for choice, words in plan.items() if choice.gpus == nearest.gpus}
        limited = _limited(request, same_size, nearest.gpus, jobs, waits)
    return Calibration(
        matches=matches,
        recorded=np.array(list(waits.values()), dtype=float),
        verdict=verdict,
        nearest=folders[nearest_key],
        left_out=sentences,
        cluster=cluster,
        anywhere=anywhere,
        limited=limited,
    )


class PolicyOnCluster(NamedTuple):
    """A policy on a cluster that a calibration tries."""

    policy: str
    gpus: int  # of the cluster


def _plan(request: CalibrateRequest, log: Path, sizes: Sequence[int]) -> dict[PolicyOnCluster, Sequence[str]]:
    """Return the overrides of each replay, in the order of the policies. `sizes` are those of the clusters [GPUs].

    A policy or a size that the user gave twice has one replay.
    """
    plan: dict[PolicyOnCluster, Sequence[str]] = {}
    for policy, gpus in product(request.policies, sizes):
        plan[PolicyOnCluster(policy, gpus)] = (
            *replay_of(log),
            f"policy={policy}",
            f"cluster.num_nodes={gpus // request.gpus_per_node}",
            f"workload.most_gpus={gpus}",  # a job that does not fit the cluster would end the replay
            f"cluster.gpus_per_node={request.gpus_per_node}",
            *request.overrides,
        )
    return plan


def _anywhere(
    request: CalibrateRequest,
    words: Sequence[str],
    nearest: Match,
    jobs: Mapping[str, TraceJob],
    recorded: Mapping[str, float],
) -> Match | None:
    """Replay the log again with the GPUs of each job anywhere, and return the match.

    Return None if the GPUs were anywhere before, or no job with a recorded wait completes.

    `words` are the settings of the nearest replay.
    """
    if nearest.engine.get("placement") != "consolidated":
        return None
    frame = run_sweep([(*words, "engine.placement=anywhere")], Path(request.folder) / "anywhere", workers=1)
    replay = read_replay(Path(frame["folder"][0]), nearest.gpus)
    waits = _of_jobs(recorded, in_common([replay]))
    if not waits:
        return None
    return _match(nearest.policy, replay, jobs, waits)


def _limited(
    request: CalibrateRequest,
    plan: Mapping[str, Sequence[str]],
    gpus: int,
    jobs: Mapping[str, TraceJob],
    recorded: Mapping[str, float],
) -> LimitedMatch | None:
    """Replay the log again with the limit on the GPUs of each user that the log hints at; return the nearest replay.

    Return None if the log hints at no limit, if no policy obeys limits, if a setting of the request states limits, or
    if no job with a recorded wait completes.
    `plan` has the settings of the replays by policy, all on a cluster of this size [GPUs].
    """
    limit = inferred_user_limit(list(jobs.values()), gpus)
    policies = [policy for policy in plan if traits_of(named_policy(policy).make()).obeys_limits]
    states_limits = any(word.lstrip("+").startswith("engine.limits") for word in request.overrides)
    if limit is None or states_limits or not policies:
        return None
    settings = []
    for policy in policies:
        settings.append((*plan[policy], f"engine.limits.all.user_gpus={limit}"))
    frame = run_sweep(settings, Path(request.folder) / "limited", workers=request.workers)
    matches = []
    for policy, folder in zip(policies, frame["folder"], strict=True):
        replay = read_replay(Path(folder), gpus)
        waits = _of_jobs(recorded, in_common([replay]))
        if waits:
            matches.append(_match(policy, replay, jobs, waits))
    if not matches:
        return None
    return LimitedMatch(limit, max(matches, key=lambda match: match.agreement.explained))


def _of_jobs(recorded: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return the recorded waits [s] of some jobs that have one, in the order of the log."""
    chosen = set(names)
    return {job: wait for job, wait in recorded.items() if job in chosen}


def _match(policy: str, replay: Replay, jobs: Mapping[str, TraceJob], recorded: Mapping[str, float]) -> Match:
    """Return the match of a replay: its waits beside the recorded waits of some jobs [s]."""
    replayed_ranks = pd.Series([replay.waits[job] for job in recorded]).rank()
    recorded_ranks = pd.Series(list(recorded.values())).rank()
    is_constant = replayed_ranks.nunique() == 1 or recorded_ranks.nunique() == 1
    correlation = nan
    if not is_constant:  # constant ranks have no deviation to divide by
        correlation = float(replayed_ranks.corr(recorded_ranks))
    whole, _, _ = agreements(jobs, recorded, replay.waits)
    return Match(policy, replay.gpus, whole, correlation, replay.engine, replay.num_preemptions(recorded))


def _verdict(
    log: Path, nearest: Match, replay: Replay, jobs: Mapping[str, TraceJob], recorded: Mapping[str, float]
) -> ReplayVerdict:
    """Return the verdict on the nearest replay. Only if it explains little, the causes that the log shows are named."""
    whole, by_partition, by_size = agreements(jobs, recorded, replay.waits)
    replayed = [jobs[name] for name in replay.sizes if name in jobs]
    num_without_limit = sum(not job.time_limit for job in replayed)
    # A policy with settings is written like easy(…).
    policy_without_settings = nearest.policy.partition("(")[0]
    notes = []
    if num_without_limit and policy_without_settings in PLANNING:
        notes.append(without_limits(num_without_limit, len(replayed), nearest.policy))
    causes: list[Cause] = []
    if whole.grade is Grade.LITTLE:
        causes = likely_causes(list(jobs.values()), nearest.gpus, read_info(log).num_left_out)
    return ReplayVerdict(nearest.policy, nearest.gpus, whole, by_partition, by_size, causes, notes)


def rows_left_out(log: Path) -> Iterator[str]:
    """Yield a sentence for each reason for which the import of a log left out rows."""
    info = read_info(log)
    for reason, count in info.num_left_out.items():
        yield f"{info.source}: {number_of(count, 'row')} dropped: {reason}"


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
    everything = set(chain.from_iterable(replay.sizes for replay in replays.values()))
    num_others = len(everything) - len(common)
    if not num_others:
        return
    yield (
        f"compared over jobs that complete in every replay: {len(common):,} of {len(everything):,}; "
        f"left out: {number_of(num_others, 'other job')}"
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
    """Return the names of the first few of some replays after ", ", or "" for all replays."""
    if len(names) == len(replays):
        return ""
    words = f", {'; '.join(names[:MOST_NAMES])}"
    num_others = len(names) - MOST_NAMES
    if num_others > 0:
        words += f" and {num_others} more"
    return words


def replay_of(log: Path) -> tuple[str, ...]:
    """Return the overrides that replay a log, as `polluxsim run workload=trace` does."""
    return ("workload=trace", f"workload.path={quoted(str(log.resolve()))}")
