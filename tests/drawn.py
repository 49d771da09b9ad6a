"""Policies, clusters and workloads drawn at random, on which the tests of laws run.

`POLLUXSIM_DRAWS=10 pytest tests/engine` draws ten times as many as CI does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from hydra.utils import instantiate
from hypothesis import settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from toy import toy_job, toy_workload

from polluxsim.checks.driving import AskedEveryRound
from polluxsim.checks.worlds import PROFILES, Listed
from polluxsim.common.shipped import shipped
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.elastic.estimated_times import OnlineOptimus, Slaq
from polluxsim.policies.ordered.attained_service import Gittins, LeastAttainedService, Tiresias, TiresiasL
from polluxsim.policies.ordered.classic import Fifo, Priority, Srtf
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.sized.shockwave import Shockwave
from polluxsim.policies.sized.synergy import Synergy
from polluxsim.policies.sized.themis import Themis
from polluxsim.policies.tenants.fairness import DominantResourceFairness, FairQueues
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.policies.typed.linear_programmes import TypedDemand
from polluxsim.policies.typed.rounds import RoundsOfShares
from polluxsim.policies.typed.rules import (
    AlloX,
    FinishTimeFairness,
    FirstCome,
    GandivaFair,
    Isolated,
    MaxMin,
    MaxSum,
    MinMakespan,
    Proportional,
    WaterFilling,
)
from polluxsim.records.results import Result
from polluxsim.run.composing import composed
from polluxsim.workloads.workload import Job, Workload

__all__ = [
    "BY_CLOCK",
    "POLICIES",
    "PROFILES",
    "AskedEveryRound",
    "Listed",
    "begun",
    "cases",
    "check_fork",
    "demand_of",
    "demands",
    "draws",
    "ended",
    "failing",
    "policy_config",
]

DRAWS = float(os.environ.get("POLLUXSIM_DRAWS", "1"))


def draws(examples: int) -> settings:
    """Return the setting for a law that is tried on `examples` drawn cases, times `POLLUXSIM_DRAWS`."""
    return settings(max_examples=max(1, round(examples * DRAWS)))


# Policies whose parameters are times, made for clocks that run so many times as slow.
BY_CLOCK: dict[str, Callable[[float], Policy]] = {
    "tiresias": lambda clock: Tiresias(queue_threshold=500.0 * clock),
    "tiresias-l": lambda clock: TiresiasL((100.0 * clock, 500.0 * clock)),
    "las": lambda clock: LeastAttainedService(quantum=150.0 * clock),
    "gittins": lambda clock: Gittins(quantum=150.0 * clock),
    "multifactor": lambda clock: Multifactor(max_age=900.0 * clock, half_life=400.0 * clock, shares={"ada": 2.0}),
    "fair-queues": lambda clock: FairQueues({"vision": 2.0}, lookahead=300.0 * clock),
    "themis": lambda clock: Themis(lease=240.0 * clock, fairness=0.5),
    "optimus-online": lambda clock: OnlineOptimus(interval=200.0 * clock, assumed_epochs=4.0),
    "slaq": lambda clock: Slaq(interval=200.0 * clock),
    "gandiva": lambda clock: Gandiva(time_slice=120.0 * clock, packing=False),
    "priority": lambda clock: Priority(min_run_time=200.0 * clock),
    "max-min": lambda clock: RoundsOfShares(MaxMin(), reset_interval=300.0 * clock),
    "max-sum": lambda clock: RoundsOfShares(MaxSum(), reset_interval=300.0 * clock),
    "min-makespan": lambda clock: RoundsOfShares(MinMakespan(100.0 * clock, 1e6 * clock), 300.0 * clock),
    "finish-time-fairness": lambda clock: RoundsOfShares(FinishTimeFairness(), 300.0 * clock),
    "isolated": lambda clock: RoundsOfShares(Isolated(), 300.0 * clock, overtaking=False),
    "allox": lambda clock: RoundsOfShares(AlloX(), 300.0 * clock),
    "shockwave": lambda clock: Shockwave(window=4, resolve=2, weight_of_longest=1e-3 / clock),
    "first-come-shares": lambda clock: RoundsOfShares(FirstCome(), 300.0 * clock, idle_newcomers=True),
    "gandiva-fair": lambda clock: RoundsOfShares(GandivaFair(), 300.0 * clock),
    "proportional-shares": lambda clock: RoundsOfShares(Proportional(), 300.0 * clock),
    "water-filling": lambda clock: RoundsOfShares(WaterFilling(), 300.0 * clock),
}
# Others with parameters that are not those of their files.
OTHERWISE: dict[str, Callable[[], Policy]] = {
    "backfill": lambda: Fifo(backfill=True),
    "quotas": lambda: Quotas({"vision": 1}),
    "drf": lambda: DominantResourceFairness({"vision": 2.0}),
    "synergy": lambda: Synergy(Srtf()),
    "conservative": lambda: Conservative(overestimate=1.5),
    "pollux": lambda: Pollux(GeneticSearch(population=10, generations=5)),
    "pollux-annealing": Pollux,
}


def of_files() -> dict[str, Callable[[], Policy]]:
    """Return the policies in `configs/policy` that need no other file, GPUs to share or nodes to rent."""
    found = dict[str, Callable[[], Policy]]()
    for path in sorted((shipped("configs") / "policy").glob("*.yaml")):
        values = OmegaConf.load(path)
        if "defaults" in values or OmegaConf.missing_keys(values):
            continue
        make = partial(instantiate, values)
        traits = traits_of(make())
        if not (traits.shares_gpus or traits.scales):
            found[path.stem] = make
    return found


@cache
def policy_config(name: str) -> dict[str, Any]:
    """Return the composed configuration of a shipped policy. Tests share it and do not change it."""
    config: dict[str, Any] = composed({"policy": name}, {}, 0).config["policy"]
    return config


POLICIES = of_files() | {name: partial(make, 1.0) for name, make in BY_CLOCK.items()} | OTHERWISE
clusters = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda sizes: Cluster(tuple(sizes)))
policies = st.sampled_from(sorted(POLICIES))


_SAID = st.fixed_dictionaries(
    {
        "user": st.sampled_from([None, "ada", "bob"]),
        "queue": st.sampled_from([None, "vision", "speech"]),
        "priority": st.sampled_from([0.0, 1.0, -2.0]),
        "deadline": st.sampled_from([None, 400.0, 1500.0]),
        "time_limit": st.sampled_from([None, 100.0, 600.0]),
    }
)
"""What users say besides."""


@st.composite
def cases(draw: st.DrawFn, with_rigid: bool = False) -> tuple[Cluster, Workload]:
    cluster = draw(clusters)
    jobs = [
        toy_job(
            f"job-{index}",
            draw(st.integers(0, 40)) * 25.0,
            draw(st.integers(1, cluster.num_gpus)),
            draw(st.sampled_from(sorted(PROFILES))),
            **draw(_SAID),
        )
        for index in range(draw(st.integers(1, 7)))
    ]
    if with_rigid:
        durations = [draw(st.none() | st.integers(1, 80).map(lambda steps: steps * 12.5)) for _ in jobs]
        jobs = [
            job if duration is None else without_profile(job, duration, draw(st.booleans()))
            for job, duration in zip(jobs, durations, strict=True)
        ]
    return cluster, toy_workload(*jobs)


def without_profile(job: Job, duration: float, is_elastic: bool) -> Job:
    speeds = tuple((gpus, gpus**0.75) for gpus in (1, 2, 4, 8, 16)) if is_elastic else ()
    new = Job.rigid(job.job_id, job.submit_time, job.num_replicas, duration, speeds=speeds)
    return replace(job, **{name: getattr(new, name) for name in ("application", "batch_size", "duration", "speeds")})


# Every policy with jobs that it can do something with.
policies_and_cases = policies.flatmap(
    lambda name: st.tuples(st.just(name), cases(with_rigid=not traits_of(POLICIES[name]()).needs_profiles))
)


def begun(
    workload: Workload, cluster: Cluster, policy: Policy, rules: EngineSettings | None = None, seed: int = 1
) -> Simulation:
    """Return a run at its beginning, of toy applications."""
    name = type(policy).__name__
    return Simulation(Scenario(workload, PROFILES, cluster, rules or EngineSettings(), traits_of(policy), name), seed)


def ended(run: Simulation, policy: Policy) -> Result:
    """Take a run to its end, whether or not a decision is due, and return its result."""
    view = run.view or run.advance()
    while view is not None:
        run.commit(policy.allocate(view, run.rng))
        view = run.advance()
    return run.result()


def told(result: Result) -> tuple[object, ...]:
    """Return all that a result tells, reasons and standstill included."""
    return result, tuple(result.reason_records), result.standstill


def go_on(run: Simulation, policy: Policy, turns: int, *, look: bool) -> None:
    """Take some turns, or as many as there are; look at what is to be decided next if asked to."""
    for _ in range(turns):
        if (view := run.advance()) is None:
            return
        run.commit(policy.allocate(view, run.rng))
    if look:
        run.advance()


def check_fork(run: Simulation, policy: Policy, uninterrupted: tuple[object, ...]) -> None:
    """Check that a run and its copy end alike, whichever goes on first, and that each shows itself."""
    copied, its_policy = deepcopy((run, policy))
    third, third_policy = deepcopy((copied, its_policy))
    assert (copied.time, copied.allocation, copied.waiting) == (run.time, run.allocation, run.waiting)
    if run.view is not None:
        assert copied.view is not None
        assert copied.view.jobs[0] is not run.view.jobs[0]
        run_views = list(run.view.jobs)
        copied.commit(its_policy.allocate(copied.view, copied.rng))
        assert [job.placement for job in run_views] == [job.placement for job in run.view.jobs]  # still open
    assert told(ended(copied, its_policy)) == uninterrupted
    assert told(ended(run, policy)) == uninterrupted
    assert told(ended(third, third_policy)) == uninterrupted


def failing(*outages: tuple[int, float, float], nodes: int = 2) -> Cluster:
    """Return a cluster of nodes with 4 GPUs, of which some are down from a time on, for so long."""
    listed = Listed(tuple(Outage((node,), start, duration, "test") for node, start, duration in outages))
    return Cluster.uniform(nodes, 4, listed)


def demand_of(speeds: list[list[float]], widths: list[float], gpus: list[float], left: list[float]) -> TypedDemand:
    count = len(speeds)
    return TypedDemand(
        [f"job-{i}" for i in range(count)],
        ["v100", "p100", "k80"][: len(gpus)],
        np.array(speeds),
        np.array(widths),
        np.array(gpus),
        np.arange(1.0, len(gpus) + 1),
        np.array(left),
        np.zeros(count),
    )


@st.composite
def demands(draw: st.DrawFn) -> TypedDemand:
    jobs, types = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    gpus = [float(draw(st.integers(4, 12))) for _ in range(types)]
    speed = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0, 90.0])
    rows = [[draw(speed) for _ in range(types)] for _ in range(jobs)]
    rows = [row if any(row) else [1.0] * types for row in rows]
    widths = [float(draw(st.sampled_from([1, 2, 4]))) for _ in range(jobs)]
    return demand_of(rows, widths, gpus, [draw(st.floats(100, 1e5)) for _ in range(jobs)])
