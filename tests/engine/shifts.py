"""The same world of a kind of run with all times later by whole rounds."""

from __future__ import annotations

from dataclasses import replace

from kinds import World

from polluxsim.checks.worlds import later_job
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.policies.contract.policy import traits_of
from polluxsim.records.results import Result
from polluxsim.workloads.workload import Workload


def later(world: World, rounds: int) -> World:
    """Return a world with all its times later by whole rounds. Its outages are drawn, or it has none."""
    delay = rounds * world.settings.round_interval
    jobs = tuple(later_job(job, delay) for job in world.workload.jobs)
    settings = world.settings
    if settings.horizon is not None:
        settings = replace(settings, horizon=settings.horizon + delay)
    return world._replace(workload=Workload(jobs), settings=settings)


def result_of(world: World, seed: int = 3) -> Result:
    """Return the result of a world under a new policy."""
    policy = world.policy()
    scenario = Scenario(world.workload, world.profiles, world.cluster, world.settings, traits_of(policy), world.name)
    return run_to_end(Simulation(scenario, seed), policy)
