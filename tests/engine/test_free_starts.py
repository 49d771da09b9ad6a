"""First starts without a restart delay, as in replays of logs, whose durations contain the first start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.run_facts import start_delay
from polluxsim.policies.contract.decision import decision_of
from polluxsim.policies.ordered.attained_service import LeastAttainedService
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.reserving.easy import Easy
from polluxsim.records.storage import Run
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from polluxsim.policies.contract.policy import Policy
    from polluxsim.policies.contract.view import ClusterView, Decision
    from polluxsim.records.results import Result

CLUSTER = Cluster.uniform(2, 4)
DELAY = 70.0


def drawn(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    jobs = [
        Job.rigid(
            f"j{number}", float(rng.uniform(0, 4000)), int(rng.choice([1, 2, 4, 8])), float(rng.uniform(50, 2000))
        )
        for number in range(25)
    ]
    return Workload(tuple(sorted(jobs, key=lambda job: job.submit_time)))


def replay(workload: Workload, policy: Policy, **settings: float) -> Result:
    rules = EngineSettings(round_interval=10.0, free_starts=True, **settings)  # type: ignore[arg-type]
    return simulate(workload, {}, CLUSTER, policy, settings=rules)


@pytest.mark.parametrize("seed", range(5))
def test_the_delay_does_not_matter_if_no_job_is_preempted(seed: int) -> None:
    for policy in (Fifo, Easy):
        free, costly = (replay(drawn(seed), policy(), restart_delay=delay) for delay in (0.0, DELAY))
        assert free.job_records == costly.job_records
        assert free.allocation_records == costly.allocation_records


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("policy", [Srtf, LeastAttainedService])
def test_each_restart_takes_the_delay_and_a_first_start_nothing(seed: int, policy: type[Policy]) -> None:
    workload = drawn(seed)
    result = replay(workload, policy(), restart_delay=DELAY)
    durations = {job.job_id: job.duration for job in workload.jobs}
    assert sum(job.num_restarts for job in result.job_records) > 0
    for job in result.job_records:
        assert job.run_time - job.restart_time == pytest.approx(durations[job.job])
        # A preemption can cut a delay short.
        assert 0 <= job.restart_time <= DELAY * job.num_restarts + 1e-6
        assert bool(job.restart_time) == bool(job.num_restarts)


class Watched:
    """SRTF that notes the restart delay that its views state for each job."""

    def __init__(self) -> None:
        self.policy = Srtf()
        self.stated: dict[tuple[str, float], float] = {}

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        for job in view.jobs:
            self.stated[job.job_id, view.time] = view.delay_of(job)
        return decision_of(self.policy.allocate(view, rng))


def test_views_state_the_delays_of_the_engine() -> None:
    policy = Watched()
    result = replay(drawn(1), policy, restart_delay=DELAY)
    first = {job.job: job.start_time for job in result.job_records}
    starts = [record for record in result.allocation_records if record.nodes]
    assert len(starts) > len(first)
    for start in starts:
        expected = 0.0 if first[start.job] == start.time else DELAY
        assert policy.stated[start.job, start.time] == expected


def test_the_delays_that_timelines_show_are_those_of_the_engine() -> None:
    result = replay(drawn(0), Srtf(), restart_delay=DELAY)
    engine = {"restart_delay": DELAY, "free_starts": True}
    delay = start_delay(Run("made", {"nodes": CLUSTER.groups, "config": {"engine": engine}}, result))
    starts = [record for record in result.allocation_records if record.nodes]
    first = {job.job: job.start_time for job in result.job_records}
    for start in starts:
        expected = 0.0 if first[start.job] == start.time else DELAY
        assert delay(start.job, "rigid", start.nodes, start.time) == expected
