"""Policies continue runs that began under other policies, and runs whose jobs and nodes change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from check_forks import checked_fork
from check_worlds import SHIPPED

from polluxsim.checks.worlds import TYPE_SPEEDS, ToyProfile
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import ClusterView, Traits
from polluxsim.policies.ordered.classic import Srtf
from polluxsim.workloads.workload import Job, Workload

# Forks that showed a fault: a decision without end after a job got more work; quotas that counted requested GPUs; a job
# that waited for ever beside one with more GPUs than it requested; jobs that kept the same GPUs as others, also
# under buddies; pools that counted requested GPUs; and a job that a restart kept from idle GPUs without such a reason.
FORKS = [
    *(("finish-time-fairness", 751), ("quotas", 774), ("fifo", 33), ("fifo", 5)),
    *(("elasticflow", 116), ("easy", 31), ("sia", 129)),
]


@pytest.mark.parametrize("policy", SHIPPED)
def test_no_fault_after_drawn_forks(policy: str) -> None:
    first = crc32(policy.encode()) % 1000
    found = [
        (number, finding.message) for number in range(first, first + 6) for finding in checked_fork(policy, number)
    ]
    assert not found


@pytest.mark.parametrize(("policy", "number"), FORKS)
def test_no_fault_after_forks_that_showed_one(policy: str, number: int) -> None:
    assert not list(checked_fork(policy, number))


class OnTheSecondNode:
    """A policy that lets jobs run on fewer GPUs than they request."""

    traits = Traits(adaptive=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Mapping[JobId, Placement]:
        return {job.job_id: ((1, 2),) for job in view.jobs}


def test_a_job_leaves_a_type_with_fewer_gpus_than_requested_at_a_fork_to_whole_gangs() -> None:
    cluster = Cluster((4, 2), node_types=NodeTypes(GPU_TYPES[name] for name in ("t4", "v100")))
    profiles = {"toy": ToyProfile(seconds=20.0, type_speeds=TYPE_SPEEDS)}
    jobs = Workload((Job("a", 0.0, "toy", 4, 40),))
    before, after = OnTheSecondNode(), Srtf()
    run = Simulation(Scenario.under(before, jobs, profiles, cluster, EngineSettings()))
    run.fork(Fork(120.0, replace(run.scenario, traits=traits_of(after)), has_new_policy=True))
    while (view := run.advance(120.0)) is not None:
        run.commit(before.allocate(view, run.rng))
    assert run.allocation == {"a": ((1, 2),)}
    result = run_to_end(run, after)
    assert [(each.time, each.nodes) for each in result.allocation_records][:3] == [
        (60.0, (1,)),
        (120.0, ()),
        (120.0, (0,)),
    ]
