"""Quotas and fair queues: owners get their GPUs back at once, and what is used goes by weight."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any

import numpy as np
import pytest
from drawn import PROFILES, begun, cases, draws, ended
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_workload

from polluxsim.checks.driving import run_policy
from polluxsim.checks.findings import Fault
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.worlds import Listed, World
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.hardware.placements import num_replicas
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.policies.tenants.fairness import FairQueues
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.records.results import Result
from polluxsim.workloads.workload import Job, Workload

RULES = EngineSettings(restart_delay=0.0)


def run(policy: Policy, *jobs: Job, gpus: int = 4) -> Result:
    return simulate(toy_workload(*jobs), {}, Cluster.uniform(1, gpus), policy, settings=RULES)


def ends(result: Result) -> dict[str, float | None]:
    return {job.job: job.completion_time for job in result.job_records}


BORROWED = (
    Job.rigid("own", 0.0, 2, 600.0, queue="vision"),
    Job.rigid("lent", 0.0, 2, 600.0, queue="vision"),
    Job.rigid("owner", 70.0, 2, 300.0, queue="speech"),
)


def test_an_owner_takes_back_what_is_borrowed() -> None:
    result = run(Quotas({"vision": 2, "speech": 2}), *BORROWED)
    assert ends(result) == {"own": 660.0, "lent": 960.0, "owner": 420.0}
    assert ends(run(Quotas({"vision": 2, "speech": 2}, borrowing=False), *BORROWED)) == {
        "own": 660.0, "lent": 1260.0, "owner": 420.0,
    }  # fmt: skip


def test_the_lowest_priority_gives_back_first_and_of_these_the_newest() -> None:
    jobs = [
        Job.rigid("old", 0.0, 1, 600.0, queue="vision", priority=1.0),
        Job.rigid("low", 0.0, 1, 600.0, queue="vision"),
        Job.rigid("new", 0.0, 1, 600.0, queue="vision", priority=1.0),
        Job.rigid("first", 70.0, 1, 600.0, queue="speech"),
        Job.rigid("second", 130.0, 1, 600.0, queue="speech"),
    ]
    result = run(Quotas({"speech": 3}), *jobs, gpus=3)
    preempted = [change.job for change in result.allocation_records if not change.gpus and change.time < 600.0]
    assert preempted == ["low", "new"]


def test_who_is_within_a_quota_is_not_preempted_though_newer() -> None:
    jobs = [
        Job.rigid("own", 0.0, 1, 600.0, queue="vision"),
        Job.rigid("lent", 0.0, 1, 600.0, queue="vision"),
        Job.rigid("newer", 5.0, 1, 600.0, queue="speech"),
        Job.rigid("owner", 70.0, 1, 600.0),
    ]
    result = run(Quotas({"vision": 1, "speech": 1, "none": 1}), *jobs, gpus=3)
    assert [change.job for change in result.allocation_records if not change.gpus and change.time < 600.0] == ["lent"]


@dataclass
class Watched:
    """Checks after each decision that nobody waits within a quota while others are beyond theirs, or GPUs are free."""

    inner: Quotas

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        decision = self.inner.allocate(view, rng)
        held = {job.job_id: num_replicas(decision.allocation.get(job.job_id, job.placement)) for job in view.jobs}
        used = dict.fromkeys(("vision", "speech", None), 0)
        for job in view.jobs:
            used[job.queue] += held[job.job_id]
        free = view.num_gpus - sum(held.values())
        for job in view.running:
            before = sum(num_replicas(other.placement) for other in view.running if other.queue == job.queue)
            assert held[job.job_id] or before > self.inner.gpus.get(job.queue or "none", 0)
        for job in view.jobs:
            own = self.inner.gpus.get(job.queue or "none", 0)
            assert held[job.job_id] or used[job.queue] + job.num_replicas > own
            if self.inner.borrowing and not held[job.job_id] and not job.placement:
                assert job.num_replicas > free
        return decision


@given(cases(with_rigid=True), st.booleans(), st.data())
@draws(50)
def test_nobody_within_a_quota_waits(case: tuple[Cluster, Workload], borrowing: bool, data: st.DataObject) -> None:
    cluster, workload = case
    vision = data.draw(st.integers(0, cluster.num_gpus))
    speech = data.draw(st.integers(0, cluster.num_gpus - vision))
    quotas = {"vision": vision, "speech": speech, "none": cluster.num_gpus - vision - speech}
    rules = EngineSettings(horizon=20_000.0)
    simulate(workload, PROFILES, cluster, Watched(Quotas(quotas, borrowing)), settings=rules)


@pytest.mark.parametrize(
    ("quotas", "message"),
    [
        ({"vision": -1}, r"policy.gpus.vision is -1, must be a whole number ≥ 0"),
        ({"vision": 1.5}, r"policy.gpus.vision is 1.5, must be a whole number ≥ 0"),
        ({"vision": 3, "speech": 2}, r"policy.gpus comes to 5 GPUs, but the cluster has 4; reduce the quotas"),
    ],
)
def test_impossible_quotas_are_refused(quotas: dict[str, int], message: str) -> None:
    with pytest.raises(PolluxSimError, match=message):
        Quotas(quotas).without_effect(BORROWED, Cluster.uniform(1, 4))


def test_a_limit_on_borrowing_has_an_effect_with_one_queue() -> None:
    jobs = [job for job in BORROWED if job.queue == BORROWED[0].queue]
    queue = str(BORROWED[0].queue)
    assert "decides nothing" in Quotas({queue: 2}).without_effect(jobs, Cluster.uniform(1, 4))[0]
    assert Quotas({queue: 2}, borrowing_limits={queue: 0}).without_effect(jobs, Cluster.uniform(1, 4)) == []


def test_quotas_of_the_whole_cluster_hold_while_a_node_is_down() -> None:
    cluster = Cluster((2, 2), failures=Listed((Outage((1,), 300.0, 600.0, "drawn"),)))
    policy = Quotas({"vision": 2, "speech": 2})
    policy.without_effect(BORROWED, cluster)
    result = simulate(toy_workload(*BORROWED), {}, cluster, policy, settings=RULES)
    assert all(job.completion_time is not None for job in result.job_records)
    # The first node of the queue within its quota is down: its job takes back the GPUs that are lent.
    assert ends(result)["owner"] is not None


@pytest.mark.parametrize("gpus", [1, 4])
def test_usage_goes_by_weight_under_saturation(gpus: int) -> None:
    """Three to one within 1 %, though the jobs of one queue are longer, and be they as wide as the cluster."""
    vision = [Job.rigid(f"v{i}", 0.0, gpus, 300.0, queue="vision") for i in range(600)]
    speech = [Job.rigid(f"s{i}", 0.0, gpus, 700.0, queue="speech") for i in range(600)]
    rules = EngineSettings(restart_delay=0.0, horizon=50_000.0, reasons="none")
    policy = FairQueues({"vision": 3.0}, lookahead=600.0)
    jobs = simulate(toy_workload(*vision, *speech), {}, Cluster.uniform(1, 4), policy, settings=rules).job_records
    used = {name: sum(job.gpu_seconds for job in jobs if job.queue == name) for name in ("vision", "speech")}
    assert used["vision"] / sum(used.values()) == pytest.approx(0.75, rel=0.01)


def test_a_queue_that_comes_back_cannot_make_up_for_its_absence() -> None:
    early = [Job.rigid(f"v{i}", 0.0, 1, 600.0, queue="vision") for i in range(20)]
    late = [Job.rigid(f"s{i}", 5000.0, 1, 600.0, queue="speech") for i in range(10)]
    finished = ends(run(FairQueues(), *early, *late, gpus=1))
    order = sorted((end, name) for name, end in finished.items() if end is not None and end > 5500.0)
    assert [name[0] for _, name in order[:8]] in (["v", "s"] * 4, ["s", "v"] * 4)


@pytest.mark.parametrize(
    ("policy", "job", "time", "words"),
    [
        (
            Quotas({"vision": 2, "speech": 2}),
            "own",
            60.0,
            "within the quota of its queue at its turn. Its queue now holds 4 GPUs and has a quota of 2",
        ),
        (
            Quotas({"vision": 2, "speech": 2}),
            "lent",
            60.0,
            "The job gets the 2 GPUs that it needs, and its queue borrows what exceeds its quota.",
        ),
        (Quotas({"vision": 2, "speech": 2}), "lent", 120.0, "owner takes the GPUs of this job, which were borrowed"),
        (
            Quotas({"vision": 4}),
            "owner",
            120.0,
            "No GPU is idle. Its queue now holds 0 GPUs and has a quota of 0. By the quotas and limits of all queues, "
            "its "
            "queue may take at most 0 more (GPUs of nodes that are down count, too). So its queue may not take enough.",
        ),
        (FairQueues(), "owner", 120.0, "Its queue has used 0.0667 GPU-hours per unit of weight. It needs"),
    ],
)
def test_why_says_whose_gpus_they_are(policy: Policy, job: str, time: float, words: str) -> None:
    start = begun(toy_workload(*BORROWED), Cluster.uniform(1, 4), policy, RULES)
    result = ended(start, policy)
    records = [record for record in result.reason_records if (record.job, record.time) == (job, time)]
    assert words in sentence(records[0], result.reason_texts)
    assert "gives the reason" not in sentence(records[0], result.reason_texts)


def test_a_queue_that_gave_back_what_it_borrowed_gives_no_more() -> None:
    """Two owners in one round: the second takes the GPU of a queue that has none of its own, though that is older."""
    jobs = [
        Job.rigid("old", 0.0, 1, 600.0, queue="text"),
        Job.rigid("own", 1.0, 2, 600.0, queue="vision"),
        Job.rigid("lent", 2.0, 1, 600.0, queue="vision"),
        Job.rigid("first", 70.0, 1, 600.0, queue="speech"),
        Job.rigid("second", 71.0, 1, 600.0, queue="speech"),
    ]
    result = run(Quotas({"vision": 2, "speech": 2}), *jobs)
    assert {change.job for change in result.allocation_records if not change.gpus and change.time == 120.0} == {
        "old",
        "lent",
    }


def test_a_job_as_large_as_its_quota_of_a_type_may_have_it() -> None:
    cluster = Cluster.of_groups([[4, 2, "k80"], [1, 2, "v100"]])
    policy = Quotas({"vision": {"v100": 2}}, borrowing=False)
    job = Job.rigid("a", 0.0, 2, 600.0, queue="vision")
    (record,) = simulate(toy_workload(job), {}, cluster, policy, settings=RULES).job_records
    assert record.completion_time == 660.0


def preempted(result: Result, until: float) -> list[str]:
    """Return the jobs that lost their GPUs before they ended, in order."""
    ends_at = {job.job: job.completion_time for job in result.job_records}
    changes = [change for change in result.allocation_records if not change.gpus and change.time < until]
    return [change.job for change in changes if change.time != ends_at[change.job]]


def test_a_job_whose_preemption_is_not_needed_is_spared() -> None:
    """The newest borrower comes first, but the job needs the 8 GPUs of the older borrower, which suffice."""
    jobs = [
        Job.rigid("large", 0.0, 8, 6000.0, queue="vision"),
        Job.rigid("small", 60.0, 1, 6000.0, queue="vision"),
        Job.rigid("owner", 120.0, 8, 600.0, queue="speech"),
    ]
    assert preempted(run(Quotas({"speech": 9}), *jobs, gpus=9), 500.0) == ["large"]


def test_a_job_preempts_jobs_of_its_queue_with_a_lower_priority() -> None:
    jobs = [
        Job.rigid("low", 0.0, 4, 50_000.0, queue="vision"),
        Job.rigid("high", 500.0, 4, 600.0, queue="vision", priority=100.0),
    ]
    assert ends(run(Quotas({"vision": 4}), *jobs))["high"] == 540.0 + 600.0
    assert ends(run(Quotas({"vision": 4}, within_queue="never"), *jobs))["high"] > 50_000.0  # type: ignore[operator]


def test_the_job_that_was_admitted_last_is_preempted_first() -> None:
    """The job that was submitted first waits for its GPUs until the others have started."""
    jobs = [
        Job.rigid("first", 0.0, 3, 300.0, queue="vision"),
        Job.rigid("wide", 1.0, 2, 6000.0, queue="vision"),  # admitted at 360 s
        Job.rigid("narrow", 2.0, 1, 6000.0, queue="vision"),  # admitted at 60 s
        Job.rigid("owner", 420.0, 2, 600.0, queue="speech"),
    ]
    assert preempted(run(Quotas({"speech": 3}), *jobs, gpus=4), 900.0) == ["wide"]


def test_limits_of_borrowing_and_lending_hold() -> None:
    jobs = [Job.rigid(f"v{i}", 0.0, 1, 600.0, queue="vision") for i in range(4)]

    def together(**said: Any) -> int:
        """Return how many jobs run from the first round on."""
        return [*ends(run(Quotas({"vision": 1, "speech": 3}, **said), *jobs)).values()].count(660.0)

    assert together() == 4
    assert together(borrowing_limits={"vision": 1}) == 2
    assert together(lending_limits={"speech": 1}) == 2
    assert together(lending_limits={"speech": 0}) == together(borrowing=False) == 1


def test_with_fair_sharing_a_queue_takes_its_share_of_what_is_borrowed() -> None:
    """Neither queue owns GPUs. The second one takes half of the borrowed GPUs, or three quarters by weight."""
    first = [Job.rigid(f"v{i}", 0.0, 1, 6000.0, queue="vision") for i in range(4)]
    second = [Job.rigid(f"s{i}", 120.0, 1, 6000.0, queue="speech") for i in range(4)]
    counts = {}
    for name, policy in {
        "unfair": Quotas(),
        "fair": Quotas(fair_sharing=True),
        "weighted": Quotas(fair_sharing=True, weights={"speech": 3.0}),
    }.items():
        counts[name] = len(preempted(run(policy, *first, *second), 3000.0))
    assert counts == {"unfair": 0, "fair": 2, "weighted": 3}


def rigid(name: str, gpus: int, queue: str, duration: float = 3600.0, **about: Any) -> Job:
    return Job.rigid(name, about.pop("time", 0.0), gpus, duration, queue=queue, **about)


EXCHANGES = {
    # One of the two jobs of queue a alone has a smaller share than the job of queue b, both have a larger one.
    "weights": (
        7,
        Quotas(fair_sharing=True, weights={"b": 3.0}),
        [("big", 7, "b", 0), ("mid", 3, "a", 0), ("one", 1, "a", 0)],
    ),
    # Job j0 has a larger share than job j2, but a smaller one than jobs j2 and j3, which fit without j0.
    "together": (6, Quotas({"a": 2}, fair_sharing=True), [("j0", 6, "a", 0), ("j2", 1, "b", 0), ("j3", 5, "b", 0)]),
    # Job j0 has a smaller share than job j4, but job j1 preempts j0, and has a larger share than j4.
    "priorities": (7, Quotas({"b": 2}, fair_sharing=True), [("j0", 4, "b", 0), ("j1", 7, "b", 1), ("j4", 4, "a", 0)]),
}


@pytest.mark.parametrize("case", EXCHANGES)
@pytest.mark.parametrize("delay", [0.0, 30.0, 60.0, 3000.0])
def test_fair_sharing_judges_the_whole_exchange(case: str, delay: float) -> None:
    """Three jobs preempted each other at every round. With a restart delay of a round, none made progress."""
    gpus, policy, jobs = EXCHANGES[case]
    workload = toy_workload(*(rigid(name, size, queue, priority=priority) for name, size, queue, priority in jobs))
    result = simulate(workload, {}, Cluster((gpus,)), policy, settings=EngineSettings(restart_delay=delay))
    assert [job.num_restarts for job in result.job_records] == [0, 0, 0]
    # All jobs run as long. A job that starts after another one starts at the next round.
    in_turn = 3 if case == "priorities" else 2
    rounds = ceil((3600.0 + delay) / 60.0)
    assert max(ends(result).values()) == 60.0 + (in_turn - 1) * 60.0 * rounds + 3600.0 + delay  # type: ignore[type-var]


def test_a_job_does_not_borrow_what_another_queue_takes_back_at_once() -> None:
    """Two queues own 4 of 8 GPUs each, and 5 are up. Each queue has a job within its quota and a larger one beyond it.

    The larger job, with a higher priority, preempted the job within the quota. The other queue took the GPUs back.
    """
    cluster = Cluster((5, 3), failures=Listed((Outage((1,), 1.0, 4000.0, "drawn"),)))
    jobs = [rigid(f"{queue}-{name}", gpus, queue, priority=priority)
            for queue in "qc" for name, gpus, priority in (("high", 5, 1.0), ("low", 3, 0.0))]  # fmt: skip
    result = simulate(toy_workload(*jobs), {}, cluster, Quotas({"q": 4, "c": 4}), settings=RULES)
    assert all(job.num_restarts <= 1 for job in result.job_records)


def test_a_job_beyond_the_quota_still_preempts_jobs_of_its_queue_with_a_lower_priority() -> None:
    jobs = [rigid("low", 2, "a", 6000.0), rigid("high", 4, "a", 600.0, priority=1.0, time=130.0)]
    assert ends(run(Quotas({"a": 2, "b": 2}), *jobs, rigid("late", 1, "b", 60.0, time=5000.0)))["high"] == 780.0


def test_a_job_beyond_the_quota_keeps_its_gpus_if_a_lower_one_makes_room_for_a_reclaim() -> None:
    """Both jobs of queue a run. Job b needs 1 GPU of the quota of its queue."""
    jobs = [rigid("low", 3, "a"), rigid("high", 5, "a", priority=1.0, time=70.0), rigid("b", 1, "b", time=130.0)]
    assert preempted(run(Quotas({"a": 4, "b": 4}), *jobs, gpus=8), 500.0) == ["low"]


def contended(number: int, *, fair_sharing: bool, is_short: bool) -> World:
    """Return a drawn world in which jobs of several queues and priorities wait for few GPUs, for a long time."""
    rng = Random(number)
    gpus = rng.randint(3, 12)
    first = rng.randint(gpus // 2, gpus - 1) if is_short else gpus
    queues = "abcd"[: rng.randint(2, 4)]
    cuts = sorted(rng.randint(0, gpus) for _ in queues)
    quotas = {queue: after - before for queue, before, after in zip(queues, [0, *cuts], cuts, strict=False)}
    priorities = [0.0, 1.0, 2.0][: rng.randint(1, 3)]
    jobs = [
        rigid(f"j{index}", rng.randint(1, first), rng.choice(queues), priority=rng.choice(priorities))
        for index in range(rng.randint(4, 8))
    ]
    weights = {queue: rng.choice([0.5, 1.0, 2.0, 3.0]) for queue in queues}
    return World(
        (first, gpus - first) if is_short else (gpus,),
        tuple(jobs),
        outages=((1, 1.0, 40_000.0),) if is_short else (),
        parameters=(("gpus", quotas), ("weights", weights), ("fair_sharing", fair_sharing)),
    )


@pytest.mark.parametrize(("fair_sharing", "is_short"), [(True, False), (True, True), (False, True)])
def test_no_set_of_running_jobs_recurs_without_an_event(*, fair_sharing: bool, is_short: bool) -> None:
    for number in range(80):
        world = contended(number, fair_sharing=fair_sharing, is_short=is_short)
        policy = Quotas(**dict(world.parameters))
        laws = RunLaws(world, policy)
        run_policy(world, policy, laws=laws)
        assert Fault.CYCLE not in laws.findings, (world, laws.findings)
        assert Fault.QUOTA not in laws.findings, (world, laws.findings)
