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
    """What bounds are wanted.

    Raise InvalidConfigError if a metric has no bound, or the time limit is not above 0.
    """

    metrics: Collection[str] = METRICS
    time_limit: float = TIME_LIMIT  # longest search for prices, for each world [s]
    at_rounds: bool = False  # whether also schedules in which jobs start at rounds only are bounded

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise InvalidConfigError(f"metric {name!r} has no bound, {allowed_among(name, METRICS)}")
        if not self.time_limit > 0:
            raise InvalidConfigError(f"time_limit is {self.time_limit!r}, must be a number of seconds above 0")


class _World(NamedTuple):
    """Runs with equal jobs and nodes, and their scenario."""

    scenario: Scenario
    runs: list[int]  # places of the runs


def bounds_of_runs(
    runs: Sequence[Run], request: BoundRequest, begins: Callable[[int, int], object] = lambda number, count: None
) -> list[RunBound]:
    """Return the bounds of each run.

    `begins` is called with the number of a world and the number of all worlds before the search for its prices.
    Raise InvalidInputError if the jobs of a run cannot be loaded again.
    """
    worlds = _worlds(runs)
    bounds: dict[int, RunBound] = {}
    for number, world in enumerate(worlds, start=1):
        begins(number, len(worlds))
        shared = _bound_of_world(world.scenario, [runs[place] for place in world.runs], request)
        for place in world.runs:
            bounds[place] = replace(shared, values=_values(runs[place], request.metrics))
    return [bounds[place] for place in range(len(runs))]


def store(run: Run, bound: RunBound) -> None:
    """Store bounds in the folder of a run, beside those of other metrics."""
    if run.folder is None:
        return
    before = stored_bound(run.folder, run.info)
    store_bound(run.folder, run.info, bound if before is None else bound.merged(before))


def _worlds(runs: Sequence[Run]) -> list[_World]:
    """Return the runs by their worlds: equal settings apart from the policy, and the same jobs in the metrics."""
    worlds: dict[str, _World] = {}
    for place, run in enumerate(runs):
        scenario = scenario_of(run)
        settings = {name: part for name, part in (run.info.get("config") or {}).items() if name not in WITHOUT_EFFECT}
        jobs = [_facts(job) for job in run.result.job_records if job.is_counted]
        # The nodes of a fork are its own.
        key = json.dumps([settings, jobs, place if DESCENT in run.info else None], sort_keys=True, default=str)
        worlds.setdefault(key, _World(scenario, [])).runs.append(place)
    return list(worlds.values())


def _facts(job: JobRecord) -> tuple[str, str]:
    """Return the name of a job, and its status if it is in the means."""
    return job.job, str(job.status) if job.status in (Status.COMPLETED, Status.CUT_OFF) else ""


def _bound_of_world(scenario: Scenario, runs: Sequence[Run], request: BoundRequest) -> RunBound:
    """Return the bounds that runs share, without their values."""
    # The runs have the same outages, but a run does not record those after its end.
    until = min(run.result.end_time for run in runs)
    world = bounded_world(scenario, runs[0].result, until)
    if world.problem is None:
        return RunBound({}, sentences=world.sentences)
    sentences = list(world.sentences)
    if not sentences and any(map(_can_grow, world.problem.jobs)):
        sentences.append(LOOSE)
    metrics = bounds_of(world.problem, request.metrics, request.time_limit)
    at_rounds: Mapping[str, MetricBound] = {}
    if request.at_rounds and scenario.settings.ask_at_failures:
        sentences.append("Jobs may start between rounds, after failures, so that there is no bound at rounds.")
    elif request.at_rounds:
        later = starting_at_rounds(world.problem, scenario.settings.round_interval)
        at_rounds = bounds_of(later, request.metrics, request.time_limit)
    return RunBound(metrics, at_rounds, tuple(sentences))


def _can_grow(job: JobLimits) -> bool:
    """Return whether a job has several speeds on a pool: it grows, or chooses its batch size."""
    pools = {mode.pool for mode in job.measures[0].modes}
    return len(job.measures) > 1 or len(job.measures[0].modes) > len(pools)


def _values(run: Run, metrics: Collection[str]) -> dict[str, float]:
    """Return the metrics of a run by name, those that it has."""
    summary = summarise(run.result)
    values = {}
    for name in METRICS:
        value = getattr(summary, name, None)
        if name in metrics and value is not None:
            values[name] = float(value)
    return values


def scenario_of(run: Run) -> Scenario:
    """Return the jobs, profiles, nodes and settings of a run. No class of its policy is loaded.

    Raise InvalidInputError if they are not those of the run any more, or cannot be built from its settings.
    """
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
    return Workload(tuple(sorted([*workload.jobs, *added], key=lambda job: job.submit_time)))


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
    """Raise InvalidInputError if the jobs of a run are not those of its workload."""
    submissions = {job.job_id: job.submit_time for job in workload.jobs}
    for record in run.result.job_records:
        submitted = submissions.get(record.job)
        if submitted is None or not (record.after or coincide(submitted, record.submit_time)):
            raise InvalidInputError(
                f"{run.name}/{RUN_FILE}: the settings describe other jobs than the run had (job {record.job!r}), "
                "because files or polluxsim have changed since; make the run again"
            )
