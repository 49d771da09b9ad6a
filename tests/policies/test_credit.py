"""No policy gives credit for a time of absence: what ended before the cluster was empty decides nothing afterwards.

Policies that remember ended jobs on purpose declare it by the trait `remembers`, and have tests of their own promise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from drawn import Listed, of_files
from hydra.utils import instantiate
from omegaconf import OmegaConf

from polluxsim.common.shipped import shipped
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved, Leftovers
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.tenants.fairness import FairQueues
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polluxsim.policies.contract.policy import Policy
    from polluxsim.records.results import Result

SHARING = {"antman": Leftovers(), "muri-s": Interleaved(), "muri-l": Interleaved()}


def shipped_policies() -> dict[str, Callable[[], Policy]]:
    """Return the policies for jobs without profiles on a cluster of a constant size, by name."""
    makers = {name: make for name, make in of_files().items() if not traits_of(make()).needs_profiles}
    for name in SHARING:
        makers[name] = partial(instantiate, OmegaConf.load(shipped("configs") / "policy" / f"{name}.yaml"))
    makers["gandiva"] = partial(Gandiva, packing=False)
    return makers


POLICIES = shipped_policies()
PAUSE_END = 40_020.0  # [s]


def tenants_job(name: str, time: float, gpus: int, length: float, tenant: str) -> Job:
    """Return a rigid job of a tenant, who is its user and its queue."""
    return Job.rigid(name, time, gpus, length, user=tenant, queue=tenant, deadline=time + 1e6)


HISTORIES = {
    "alone": [tenants_job("old", 0.0, 4, 36_000.0, "a")],
    "roles reversed": [tenants_job("old", 0.0, 4, 36_000.0, "b")],
    "a small use": [tenants_job("big", 0.0, 3, 36_000.0, "a"), tenants_job("small", 0.0, 1, 36_000.0, "b")],
    "contention": [
        tenants_job(f"old{number}", 300.0 * number, 1 + number % 3, 900.0 + 60.0 * number, "ab"[number % 2])
        for number in range(9)
    ],
}
# Jobs of both tenants after the pause.
BOTH = [
    tenants_job(f"{tenant}{number}", PAUSE_END + 60.0 * (number % 3), gpus, 600.0 + 120.0 * number + more, tenant)
    for number in range(5)
    for tenant, gpus, more in (("a", 1 + number % 4, 0.0), ("b", 1 + (number + 1) % 4, 60.0))
]


def run(policy: Policy, jobs: Sequence[Job], sharing: object = None, **options: object) -> Result:
    """Simulate jobs on 4 GPUs, with a restart delay of 30 s."""
    settings = EngineSettings(restart_delay=30.0, sharing=sharing)  # type: ignore[arg-type]
    cluster = Cluster.uniform(1, 4)
    return simulate(Workload(tuple(jobs), **options), {}, cluster, policy, settings=settings)  # type: ignore[arg-type]


def times_of(result: Result, jobs: Sequence[Job]) -> dict[str, tuple[float | None, float | None]]:
    """Return the start and the end of some jobs [s]."""
    names = {job.job_id for job in jobs}
    return {record.job: (record.start_time, record.end_time) for record in result.job_records if record.job in names}


# These policies solve a programme at each decision. `first-come-shares` and `gandiva` have the same ledger.
SOLVING = {
    "allox", "finish-time-fairness", "gandiva-fair", "hadar", "isolated", "max-min", "max-sum", "min-makespan",
    "proportional-shares", "shockwave", "sia", "water-filling",
}  # fmt: skip
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SOLVING else name for name in POLICIES]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_cluster_forgets_the_past(name: str) -> None:
    """One tenant alone for long, then a pause, then both: all times are as without the past."""
    make, sharing = POLICIES[name], SHARING.get(name)
    fresh = times_of(run(make(), BOTH, sharing), BOTH)
    changed = []
    for history, past in HISTORIES.items():
        result = run(make(), [*past, *BOTH], sharing)
        old_ends = [end for _, end in times_of(result, past).values()]
        assert all(end is not None and end < PAUSE_END - 1000 for end in old_ends)
        if times_of(result, BOTH) != fresh:
            changed.append(history)
    # A policy that declares a memory has one: the declaration is not a way out.
    assert bool(changed) == bool(traits_of(make()).remembers), changed


def in_turn(result: Result, num_jobs: int) -> str:
    """Return the tenants of the first jobs of both tenants that start, in order."""
    records = sorted(
        (record for record in result.job_records if record.submit_time >= PAUSE_END),
        key=lambda record: record.start_time,
    )
    return "".join(record.queue for record in records[:num_jobs])


def bursts(time: float = PAUSE_END, gap: float = 0.0, first: str = "a", jobs: int = 8) -> list[Job]:
    """Return jobs of all GPUs of both tenants; those of the second tenant arrive after a gap [s]."""
    second = "b" if first == "a" else "a"
    rows = [tenants_job(f"{first}{number}", time, 4, 600.0, first) for number in range(jobs)]
    return rows + [tenants_job(f"{second}{number}", time + gap, 4, 600.0, second) for number in range(jobs)]


SMALL_USES = {
    "in one job": [tenants_job("small", 0.0, 1, 40_000.0, "b")],
    "in many jobs": [tenants_job(f"small{number}", 480.0 * number, 1, 300.0, "b") for number in range(84)],
    "that never ends": [tenants_job("small", 0.0, 1, 40_000.0, "b"), tenants_job("next", 39_900.0, 1, 300.0, "b")],
}


@pytest.mark.parametrize("use", SMALL_USES)
@pytest.mark.parametrize("big", ["one job", "with jobs that wait"])
@pytest.mark.parametrize(("first", "gap"), [("a", 0.0), ("b", 0.0), ("b", 60.0)])
def test_a_queue_that_wanted_less_than_its_share_collects_no_credit(use: str, big: str, first: str, gap: float) -> None:
    past = [tenants_job("big", 0.0, 3, 40_000.0, "a"), *SMALL_USES[use]]
    if big == "with jobs that wait":
        past = [tenants_job(f"big{number}", 0.0, 3, 1000.0, "a") for number in range(39)] + SMALL_USES[use]
    order = in_turn(run(FairQueues(), past + bursts(gap=gap, first=first)), 8)
    assert 3 <= order.count("a") <= 5, order


@pytest.mark.parametrize("first", ["a", "b"])
def test_after_a_pause_queues_share_by_weight(first: str) -> None:
    past = [tenants_job("old", 0.0, 4, 36_000.0, "a")]
    order = in_turn(run(FairQueues({"b": 2.0}), past + bursts(first=first, jobs=12)), 12)
    assert order.count("b") == 8, order


# A node of 8 GPUs is down until 90,000 s, so a job of 8 GPUs waits.
REPAIRED = Cluster(gpus_per_node=(4, 8), failures=Listed((Outage((1,), 0.0, 90_000.0, "test"),)))
BLOCKED = tenants_job("wide", 0.0, 8, 600.0, "c")


def test_a_queue_whose_job_fits_nowhere_gives_no_credit_to_an_absent_queue() -> None:
    """Queue c waits for the repair, with no usage. Queue b comes late, and shares with queue a from then on."""
    past = [tenants_job(f"old{number}", 0.0, 4, 1000.0, "a") for number in range(39)]
    jobs = (BLOCKED, *past, *bursts())
    result = simulate(Workload(jobs), {}, REPAIRED, FairQueues(), settings=EngineSettings(restart_delay=0.0))
    order = in_turn(result, 8)
    assert 3 <= order.count("a") <= 5, order


def test_a_job_that_fits_nowhere_gives_no_turns_to_a_new_job() -> None:
    """Under Gandiva a new job takes turns with a job that ran alone for long, although a third job had no time yet."""
    jobs = (BLOCKED, tenants_job("old", 0.0, 4, 60_000.0, "a"), tenants_job("new", PAUSE_END, 4, 3000.0, "b"))
    policy = Gandiva(packing=False)
    result = simulate(Workload(jobs), {}, REPAIRED, policy, settings=EngineSettings(restart_delay=0.0))
    (new,) = (record for record in result.job_records if record.job == "new")
    assert new.jct == pytest.approx(2 * 3000.0, rel=0.05)


@pytest.mark.parametrize("fair_tree", [True, False])
@pytest.mark.parametrize(("half_lives", "most"), [(0, 10), (2, 3), (12, 1)])
def test_decayed_usage_is_the_largest_lead(fair_tree: bool, half_lives: int, most: int) -> None:
    """Multifactor promises that usage counts half after the half-life: this bounds the lead of an absent user.

    4 GPUs for 10 h leave 4 × 3600 / ln 2 = 20,775 GPU s, and a job of user b adds 2400 GPU s.
    """
    start = 36_060.0 + 3600.0 * half_lives
    rows = [tenants_job("old", 0.0, 4, 36_000.0, "a"), *bursts(start, jobs=12)]
    policy = Multifactor(half_life=3600.0, fair_tree=fair_tree, age=0.0)
    result = run(policy, rows)
    records = sorted(result.job_records, key=lambda record: record.start_time)[1:]
    lead = [record.queue for record in records].index("a")
    assert lead <= most
    assert lead >= 1
