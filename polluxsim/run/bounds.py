"""Bounds on the best possible schedule of finished runs. Runs of one world share their bounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, allowed_among
from polluxsim.common.instants import coincide
from polluxsim.engine.scenario import Scenario
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.view import Traits
from polluxsim.records.bounds import MetricBound, RunBound, store_bound, stored_bound
from polluxsim.records.results import JobRecord, Status
from polluxsim.records.storage import RUN_FILE, Run
from polluxsim.run.building import build
from polluxsim.run.claim import DESCENT
from polluxsim.run.forks import BEFORE, spec_of
from polluxsim.run.inputs import load_inputs
from polluxsim.run.limits_of_jobs import bounded_world, starting_at_rounds
from polluxsim.run.located import LocatedPaths
from polluxsim.run.spec import RunSpec
from polluxsim.statistics.bounds.bounding import METRICS, TIME_LIMIT, bounds_of
from polluxsim.statistics.bounds.problem import JobLimits
from polluxsim.workloads.workload import Job, Workload

ANY_POLICY = {"_target_": "polluxsim.policies.ordered.classic.Fifo"}
"""Policy in the settings from which jobs and nodes are built: bounds do not depend on the policy."""

WITHOUT_EFFECT = ("policy",)  # parts of the settings that change no bound

LOOSE = "Jobs that grow or choose their batch size have a loose bound: the best possible schedule may be far above it."


@dataclass(frozen=True)
class BoundRequest:
    """The bounds that a caller asks for.

    Raise InvalidConfigError if a metric has no bound, or the time limit is not above 0.
    """

    metrics: Collection[str] = METRICS
    time_limit: float = TIME_LIMIT  # limit of a search for prices, of which a world may need several [s]
    at_rounds: bool = False  # whether also schedules in which jobs start at rounds only are bounded

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise InvalidConfigError(f"metric {name!r} has no bound, {allowed_among(name, METRICS)}")
        if not self.time_limit > 0:  # also refuses NaN, which no comparison is true for
            raise InvalidConfigError(f"time_limit is {self.time_limit!r}, must be a number of seconds above 0")


class _World(NamedTuple):
    """Runs with equal jobs and nodes, and their scenario."""

    scenario: Scenario
    runs: list[int]  # places of the runs


def bounds_of_runs(
    runs: Sequence[Run], request: BoundRequest, begins: Callable[[int, int], object] = lambda number, count: None
) -> list[RunBound]:
    """Return the bounds of each run, in the order of the runs.

    `begins` is called before the bounds of each world are computed, with the number of the world (from 1) and the
    number of worlds. Raise the errors of `scenario_of` if a run cannot be loaded again.
    """
    worlds = _worlds(runs)
    bounds: dict[int, RunBound] = {}
    for number, world in enumerate(worlds, start=1):
        begins(number, len(worlds))
        shared = _bound_of_world(world.scenario, [runs[place] for place in world.runs], request)
        for place in world.runs:
            # Runs of one world differ in their policy, so each has its own values beside the shared bounds.
            bounds[place] = replace(shared, values=_values(runs[place], request.metrics))
    return [bounds[place] for place in range(len(runs))]


def store(run: Run, bound: RunBound) -> None:
    """Store bounds in the folder of a run, beside the stored bounds of other metrics. Do nothing without a folder."""
    if run.folder is None:
        return
    before = stored_bound(run.folder, run.info)
    if before is not None:
        bound = bound.merged(before)
    store_bound(run.folder, run.info, bound)


def _worlds(runs: Sequence[Run]) -> list[_World]:
    """Return the worlds of runs. Each fork is a world of its own.

    Other runs share a world if their settings, apart from the policy, and the jobs in their metrics are equal.
    """
    worlds: dict[str, _World] = {}
    for place, run in enumerate(runs):
        # Each run is loaded, even if its world is known, because this checks that its files have not changed.
        scenario = scenario_of(run)
        settings = {name: part for name, part in (run.info.get("config") or {}).items() if name not in WITHOUT_EFFECT}
        jobs = [_facts(job) for job in run.result.job_records if job.is_counted]
        # A fork may have other nodes and jobs than its settings state, so it shares its world with no run.
        own_number = place if DESCENT in run.info else None
        key = json.dumps([settings, jobs, own_number], sort_keys=True, default=str)
        worlds.setdefault(key, _World(scenario, [])).runs.append(place)
    return list(worlds.values())


def _facts(job: JobRecord) -> tuple[str, str]:
    """Return the name of a job, and its status if the means include the job; "" for other jobs."""
    if job.status in (Status.COMPLETED, Status.CUT_OFF):
        return job.job, str(job.status)
    return job.job, ""


def _bound_of_world(scenario: Scenario, runs: Sequence[Run], request: BoundRequest) -> RunBound:
    """Return the bounds that the runs of a world share, without the metrics of the runs."""
    # The runs have the same outages, but a run does not record those after its end.
    until = min(run.result.end_time for run in runs)
    world = bounded_world(scenario, runs[0].result, until)
    if world.problem is None:
        return RunBound({}, sentences=world.sentences)
    sentences = list(world.sentences)
    # With a sentence, only the shortest times are bounded: the jobs have no measures, and no bound is loose.
    if not sentences and any(map(_can_grow, world.problem.jobs)):
        sentences.append(LOOSE)
    metrics = bounds_of(world.problem, request.metrics, request.time_limit)
    at_rounds: Mapping[str, MetricBound] = {}
    if request.at_rounds:
        if scenario.settings.ask_at_failures:
            sentences.append("Jobs may start between rounds, after failures, so that there is no bound at rounds.")
        else:
            later = starting_at_rounds(world.problem, scenario.settings.round_interval)
            at_rounds = bounds_of(later, request.metrics, request.time_limit)
    return RunBound(metrics, at_rounds, tuple(sentences))


def _can_grow(job: JobLimits) -> bool:
    """Return whether a job with measures can run in several ways on a pool, or progresses unevenly over its epochs.

    The job then has several speeds: it grows, or its batch size changes.
    """
    pools = {mode.pool for mode in job.measures[0].modes}
    return len(job.measures) > 1 or len(job.measures[0].modes) > len(pools)


def _values(run: Run, metrics: Collection[str]) -> dict[str, float]:
    """Return the values of those `metrics` that have bounds and that the run has, by name."""
    summary = summarise(run.result)
    values = {}
    for name in METRICS:
        value = getattr(summary, name, None)
        if name in metrics and value is not None:
            values[name] = float(value)
    return values


def scenario_of(run: Run) -> Scenario:
    """Return the jobs, profiles, nodes and settings of a run. No class of its policy is loaded.

    Raise InvalidInputError if the run had other jobs or its settings are damaged, and InvalidConfigError if a part
    cannot be built from its settings.
    """
    # A policy may be a class of the user, which is code. The bounds do not need it, so it is not loaded.
    spec = spec_of(replace(run, info=_without_policy(run.info)))
    paths = LocatedPaths([spec.config, *(edit.settings for edit in spec.edits)], run.folder)
    config = paths.locate(spec.config)
    profiles, workload = load_inputs(RunSpec(config))
    clusters = [build(config, "cluster")]
    for edit in spec.edits:
        workload = _with_added(workload, edit.added)
        if "cluster" in edit.settings:
            clusters.append(build(paths.locate(edit.settings), "cluster"))
    # A fork adds nodes at the end, and nodes that it drops are down. So the largest cluster has all nodes.
    cluster = max(clusters, key=lambda one: one.num_nodes)
    agent = build(config, "agent") if config.get("agent") else None
    traits = Traits(adaptive=True, obeys_limits=True)
    scenario = Scenario(workload, profiles, cluster, build(config, "engine"), traits, batch_rule=agent)
    _check_jobs(run, workload)
    return scenario


def _with_added(workload: Workload, added: Sequence[Job]) -> Workload:
    """Return a workload with additional jobs, in order of submission."""
    if not added:
        return workload
    jobs = [*workload.jobs, *added]
    # The sort is stable: at equal times, the jobs of the workload come before the added ones, as in the run.
    jobs.sort(key=lambda job: job.submit_time)
    return Workload(tuple(jobs))


def _without_policy(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json with another policy, also for the ancestors of a fork."""
    changed = dict(info)
    if isinstance(info.get("config"), dict):
        changed["config"] = {**info["config"], "policy": ANY_POLICY}
    descent = info.get(DESCENT)
    if isinstance(descent, dict) and isinstance(descent.get(BEFORE), dict):
        changed[DESCENT] = {**descent, BEFORE: _without_policy(descent[BEFORE])}
    return changed


def _check_jobs(run: Run, workload: Workload) -> None:
    """Raise InvalidInputError if the workload lacks a job of a run, or submits it at another time."""
    submissions = {job.job_id: job.submit_time for job in workload.jobs}
    for record in run.result.job_records:
        submitted = submissions.get(record.job)
        # The policy influences when a job that waits for other jobs is submitted, so its time is not compared.
        is_same_time = submitted is not None and (bool(record.after) or coincide(submitted, record.submit_time))
        if not is_same_time:
            raise InvalidInputError(
                f"{run.name}/{RUN_FILE}: the settings describe other jobs than the run had (job {record.job!r}), "
                "because files or polluxsim have changed since; make the run again"
            )
