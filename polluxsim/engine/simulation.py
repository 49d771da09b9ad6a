"""Replay a workload under a policy: the loop over a run's turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.engine.garbage import seldom_collected
from polluxsim.engine.guests import guest
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.turns import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.policies.view import Policy
    from polluxsim.records import Result
    from polluxsim.types import Cluster
    from polluxsim.workloads.workload import Workload

__all__ = ["Simulation", "Watcher", "driven", "simulate"]


Watcher: TypeAlias = Callable[[Simulation], None]
"""Takes note of a round in which the policy was asked, and which has just been carried out."""


def simulate(
    workload: Workload,
    profiles: Mapping[str, Profile],
    cluster: Cluster,
    policy: Policy,
    *,
    settings: EngineSettings | None = None,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> Result:
    """Replay a workload under a policy.

    Parameters
    ----------
    workload
        The jobs.
    profiles
        Profiles by application name.
    cluster
        The GPUs there are.
    policy
        A fresh policy: it may remember things, so that each run needs its own.
    settings
        Intervals, delays and the rule of time.
    seed
        Seed of the policy's random generator; the same seed gives the same result.
    watcher
        Called after every scheduling round in which the policy was asked.

    Returns
    -------
    Result
        Records of all jobs, those cut off included, of the rounds and of every change.

    Raises
    ------
    InvalidInputError
        If a job cannot run on this cluster, with these profiles or under this policy.
    PolicyError
        If the policy fails.
    InvalidAllocationError
        If the policy gives what is not there.
    """
    scenario = Scenario.under(policy, workload, profiles, cluster, settings or EngineSettings())
    return driven(Simulation(scenario, seed), policy, watcher)


def driven(run: Simulation, policy: Policy, watcher: Watcher | None = None) -> Result:
    """Ask a policy for every decision of a run that is still due, and return its result; raises as `simulate` does."""
    with seldom_collected():
        view = run.view or run.advance()
        while view is not None:
            with guest(run.scenario.policy_name, view.time):
                decision = policy.allocate(view, run.rng)
            run.commit(decision)
            if watcher is not None:
                watcher(run)
            view = run.advance()
        return run.result()
