"""Runs and forks for the tests of the engine. Only this module names classes of the engine that may be renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from math import inf
from random import Random
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from kinds import World, world

from polluxsim.engine.clock import uniforms
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.placements import Allocation
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.records.results import Result
from polluxsim.workloads.workload import Job

__all__ = [
    "CHANGES", "IDENTITIES", "READINGS", "Change", "Point", "changes_of_the_past", "differences", "drive", "finish",
    "fork", "names_of", "new_job", "points", "records", "start", "uniforms", "whole_run",
]  # fmt: skip

Make: TypeAlias = Callable[["Point"], "Change | None"]
"""Return a change of a run, or None if it is impossible in this run."""

TABLES = ("job", "round", "allocation", "reason", "outage", "checkpoint", "sharing", "host")
"""Tables of records of a result."""


def whole_run(world: World) -> Result:
    """Return the result of a run without a fork."""
    policy = world.policy()
    return finish(start(world, policy), policy)


def start(world: World, policy: Policy, seed: int = 1) -> Simulation:
    """Return a run at its beginning."""
    parts = world.workload, world.profiles, world.cluster, world.settings
    return Simulation(Scenario.under(policy, *parts), seed)


def drive(run: Simulation, policy: Policy, before: float = inf) -> None:
    """Simulate up to the events at a time [s]."""
    while (view := run.view or run.advance(before=before)) is not None:
        run.commit(policy.allocate(view, run.rng))


def finish(run: Simulation, policy: Policy) -> Result:
    """Simulate up to the end and return the result."""
    drive(run, policy)
    return run.result()


def fork(run: Simulation, time: float, scenario: Scenario | None = None, **changes: Any) -> None:
    """Change a run at a time [s]: after the ends of epochs at this time, before its round."""
    run.fork(Fork(time, scenario or run.scenario, **changes))


class Change(NamedTuple):
    """A fork: its fields, its scenario, and a function that returns the policy from then on, given the present one.

    Without `fields`, the run is not forked, and only the policy changes.
    """

    fields: dict[str, Any] | None = None
    scenario: Scenario | None = None
    policy: Callable[[Policy], Policy] | None = None


class Point(NamedTuple):
    """A run just before a time [s], and the result of the run if it is not changed then."""

    name: str
    time: float
    whole: Result
    run: Simulation
    policy: Policy
    rng: Random

    def changed(self, change: Change) -> tuple[Simulation, Policy]:
        """Return a changed copy of the run, and its policy."""
        run, policy = deepcopy((self.run, self.policy))
        if change.fields is not None:
            fork(run, self.time, change.scenario, **change.fields)
        return run, policy if change.policy is None else change.policy(policy)

    def result_of(self, change: Change) -> Result:
        """Return the result of the run after a change."""
        return finish(*self.changed(change))

    def after(self, change: Change) -> Point | None:
        """Return the changed run at a later time; None if it ends before."""
        whole, (run, policy) = self.result_of(change), self.changed(change)
        time = self.rng.uniform(self.time, last_end(whole))
        if time <= self.time:
            return None
        drive(run, policy, before=time)
        return Point(f"{self.name} changed at {self.time:.3f} s", time, whole, run, policy, self.rng)

    @property
    def cluster(self) -> Cluster:
        """Return the cluster of the run."""
        return self.run.scenario.cluster

    @property
    def active(self) -> list[Job]:
        """Return the active jobs in order of submission. Some may end now."""
        return [job for job, _ in self.run.active(self.time)]

    @property
    def ended(self) -> list[str]:
        """Return the jobs that have ended before now or complete now."""
        return [
            job.job
            for job in self.whole.job_records
            if job.end_time is not None and (job.end_time < self.time or job.completion_time == self.time)
        ]

    @property
    def coming(self) -> list[str]:
        """Return the jobs that are still to be submitted."""
        seen = {job.job_id for job in self.active} | {*self.ended}
        return [name for name in self.run.known if name not in seen]

    def with_cluster(self, cluster: Cluster) -> Scenario:
        """Return the scenario of the run on another cluster."""
        return replace(self.run.scenario, cluster=cluster)

    def under(self, policy: Policy) -> Scenario:
        """Return the scenario of the run under another policy."""
        old = self.run.scenario
        return Scenario.under(policy, old.workload, old.profiles, old.cluster, old.settings, old.batch_rule)


def last_end(result: Result) -> float:
    """Return when the last job of a result ended, plus a second, or when the run ended before that [s]."""
    return min(result.end_time, max(job.end_time or 0.0 for job in result.job_records) + 1.0)


@lru_cache(maxsize=64)
def _whole(kind: str, number: int) -> tuple[World, Result]:
    drawn = world(kind, number)
    return drawn, whole_run(drawn)


def points(kind: str, number: int, count: int = 2) -> Iterator[Point]:
    """Yield a drawn run just before random times. A third of the times are ends of jobs, and a third are rounds."""
    drawn, whole = _whole(kind, number)
    rng = Random(f"points {kind} {number}")
    end = last_end(whole)
    ends = [job.end_time for job in whole.job_records if job.end_time and job.end_time < whole.end_time] or [end / 2]
    interval = drawn.settings.round_interval
    times = [rng.uniform(0.0, end), rng.choice(ends), interval * max(1, int(rng.uniform(0.0, end) / interval))]
    times = [times[(number + index) % 3] if index < 3 else rng.uniform(0.0, end) for index in range(count)]
    policy = drawn.policy()
    run = start(drawn, policy)
    for time in sorted(times):
        drive(run, policy, before=time)
        if time < whole.end_time:
            yield Point(drawn.name, time, whole, *deepcopy((run, policy)), Random(f"{kind} {number} {time}"))


def larger(cluster: Cluster) -> Cluster:
    """Return a cluster with one more node, like the last one."""
    parts: dict[str, Any] = {"gpus_per_node": (*cluster.gpus_per_node, *cluster.gpus_per_node[-1:])}
    parts["node_types"] = NodeTypes((*cluster.node_types, *cluster.node_types[-1:]))
    return replace(cluster, **parts, hosts=(*cluster.hosts, *cluster.hosts[-1:]))


# Identities: changes that change nothing.


def nothing(point: Point) -> Change:
    return Change({})


def alter_jobs_to_themselves(point: Point) -> Change:
    return Change({"altered": tuple(replace(job) for job in point.active)})


def add_and_drop_a_node(point: Point) -> Change | None:
    if point.cluster.least_nodes is not None:
        return None
    return Change({"lost_nodes": (point.cluster.num_nodes,)}, point.with_cluster(larger(point.cluster)))


class InFull:
    """A policy whose decisions name all GPUs that jobs keep, in reverse order."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        decision = self.policy.allocate(view, rng)
        decision = decision if isinstance(decision, Decision) else Decision(decision)
        allocation, shared = dict(decision.allocation), dict(decision.shared)
        for job in view.running:
            name, numbered = job.job_id, view.sharing.held.get(job.job_id)
            keeps = decision.others_keep and name not in allocation and name not in shared
            if numbered is None and (keeps or set(allocation.get(name, ())) == set(job.placement)):
                allocation[name] = job.placement[::-1]
            if numbered is not None and (keeps or set(shared.get(name, ())) == set(numbered)):
                shared[name] = numbered[::-1]
        return replace(decision, allocation=allocation, shared=shared)


def place_jobs_where_they_are(point: Point) -> Change:
    return Change(policy=InFull)


def replace_the_policy_by_a_copy(point: Point) -> Change:
    return Change({}, point.under(point.policy))


def leave_out_jobs_that_ended(point: Point) -> Change | None:
    return Change({"without": tuple(point.ended)}) if point.ended else None


def all_of_these_at_once(point: Point) -> Change:
    nodes = add_and_drop_a_node(point) or Change({})
    fields = {**(nodes.fields or {}), "without": tuple(point.ended)}
    return nodes._replace(fields=fields | (alter_jobs_to_themselves(point).fields or {}), policy=InFull)


IDENTITIES: dict[str, Make] = {
    each.__name__: each
    for each in (
        nothing,
        alter_jobs_to_themselves,
        add_and_drop_a_node,
        place_jobs_where_they_are,
        replace_the_policy_by_a_copy,
        leave_out_jobs_that_ended,
        all_of_these_at_once,
    )
}


# Other changes.


def another_policy(point: Point) -> Change:
    policy = Srtf() if isinstance(point.policy, Fifo) else Fifo()
    return Change({"has_new_policy": True}, point.under(policy), lambda _: deepcopy(policy))


def add_a_node(point: Point) -> Change | None:
    return None if point.cluster.least_nodes is not None else Change({}, point.with_cluster(larger(point.cluster)))


def drop_a_node(point: Point) -> Change | None:
    """Drop a node that is not the last node of its GPU type, because some policies need each type."""
    cluster = point.cluster
    nodes = [node for group in cluster.node_types.nodes.values() if len(group) > 1 for node in group]
    if not cluster.node_types:
        nodes = list(range(cluster.num_nodes)) if cluster.num_nodes > 1 else []
    return Change({"lost_nodes": (point.rng.choice(nodes),)}) if nodes and cluster.least_nodes is None else None


def leave_out_an_active_job(point: Point) -> Change | None:
    return Change({"without": (point.rng.choice(point.active).job_id,)}) if point.active else None


def leave_out_a_coming_job(point: Point) -> Change | None:
    return Change({"without": (point.coming[0],)}) if point.coming else None


def new_job(point: Point) -> Job:
    """Return a job that no other job is like, submitted soon after the fork."""
    pattern = point.run.scenario.workload.jobs[0]
    changes: dict[str, Any] = {"job_id": "added", "submit_time": point.time + 100.1, "after": ()}
    return replace(pattern, **changes, deadline=None, cancel_time=None)


def add_a_job(point: Point) -> Change:
    return Change({"added": (new_job(point),)})


def alter_a_duration(point: Point) -> Change | None:
    rigid = [(job, job.duration) for job in point.active if job.duration is not None]
    if not rigid:
        return None
    job, duration = point.rng.choice(rigid)
    return Change({"altered": (replace(job, duration=2 * duration),)})


def let_a_job_overtake(point: Point) -> Change | None:
    ending = {job.job for job in point.whole.job_records if job.end_time == point.time}
    names = [job.job_id for job in point.active if job.job_id not in ending]
    return Change({"overtaken": ((names[-1], names[0]),)}) if len(names) > 1 else None


def draw_other_failures(point: Point) -> Change:
    return Change({"chance": 5, "seed": 6})


CHANGES: dict[str, Make] = {
    each.__name__: each
    for each in (
        another_policy,
        add_a_node,
        drop_a_node,
        leave_out_an_active_job,
        leave_out_a_coming_job,
        add_a_job,
        alter_a_duration,
        let_a_job_overtake,
        draw_other_failures,
    )
}


READINGS: dict[str, Callable[[Simulation], object]] = {
    "num_ended": lambda run: run.num_ended,
    "mean_jct": lambda run: run.mean_jct,
    "known": lambda run: run.known,
    "gpu_seconds": lambda run: run.gpu_seconds,
}
"""What can be read of a run at any time."""


# Comparison of results.


def records(result: Result, table: str) -> list[str]:
    """Return all fields of the records of a table with all digits, in their order."""
    return [repr(tuple(record)) for record in getattr(result, f"{table}_records")]


def differences(whole: Result, other: Result) -> list[str]:
    """Return the first difference in each part of two results. Wall-clock times are not compared."""
    found = []
    for table in TABLES:
        one, two = records(whole, table), records(other, table)
        if one != two:
            pairs = zip([*one, "no record"], [*two, "no record"], strict=False)
            before, after = next(pair for pair in pairs if pair[0] != pair[1])
            found.append(f"{table} records: {before} became {after}")
    for part in ("end_time", "gpu_seconds", "standstill"):
        if repr(getattr(whole, part)) != repr(getattr(other, part)):
            found.append(f"{part}: {getattr(whole, part)!r} became {getattr(other, part)!r}")
    return found


def changes_of_the_past(whole: Result, other: Result, time: float) -> list[str]:
    """Return the first difference in each table between the records of two results from before a time [s]."""
    return differences(_past(whole, time), _past(other, time))


def _past(result: Result, time: float) -> Result:
    """Return the records that were complete before a time [s]."""
    parts: dict[str, Any] = {
        f"{table}_records": [record for record in getattr(result, f"{table}_records") if record.time < time]
        for table in ("round", "allocation", "reason", "sharing", "host")
    }
    for table in ("outage_records", "checkpoint_records"):
        parts[table] = [record for record in getattr(result, table) if record.until < time]
    jobs = [job for job in result.job_records if job.end_time is not None and job.end_time < time]
    return replace(result, job_records=jobs, **parts, end_time=0.0, gpu_seconds=None, standstill=None)


def names_of(result: Result) -> list[str]:
    """Return the names of the jobs that have a record, sorted."""
    return sorted(job.job for job in result.job_records)
