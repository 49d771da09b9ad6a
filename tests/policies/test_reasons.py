"""Reasons are true: every figure that a policy gives for a decision is worked out again, for every job and round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidConfigError, PolicyError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo, Srtf, remaining_time
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.pollux.problem import SPEEDUP_FLOOR, SpeedupTables, build_problem, restart_factor
from polluxsim.workloads.philly import PhillyLike
from polluxsim.workloads.workload import Workload

PROFILES = {
    "toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)),
    "slow": ToyProfile(name="slow", seconds=4.0, epochs=(100.0, 200.0)),
}
POLICIES = {
    "fifo": Fifo,
    "backfill": lambda: Fifo(backfill=True),
    "srtf": Srtf,
    "tiresias": lambda: Tiresias(queue_threshold=500.0),
    "optimus": Optimus,
    "pollux": Pollux,
    "pollux p = 1": lambda: Pollux(p=1.0),
    "pollux p = 0": lambda: Pollux(p=0.0),
    "pollux p = −10": lambda: Pollux(p=-10.0),
}
GANGS = ("fifo", "backfill", "srtf", "tiresias")


@dataclass
class Checked:
    """Asks the policy within for the reasons of all jobs at every round, and checks each of them."""

    inner: Any
    said: dict[tuple[float, str], Reason] = field(default_factory=dict)
    demoted: list[str] = field(default_factory=list)

    @property
    def traits(self) -> Traits:
        return traits_of(self.inner)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        decision = self.inner.allocate(view, rng)
        if decision.others_keep:
            kept = {job.job_id: job.placement for job in view.running}
            decision = replace(decision, allocation=kept | dict(decision.allocation), others_keep=False)
        reasons = decision.explain([job.job_id for job in view.jobs])
        assert set(reasons) == {job.job_id for job in view.jobs}
        check = {Optimus: self.check_optimus, Pollux: self.check_pollux}.get(type(self.inner), self.check_gangs)
        check(view, decision, reasons)
        self.said |= {(view.time, job_id): reason for job_id, reason in reasons.items()}
        return decision

    def order(self, view: ClusterView) -> list[JobView]:
        if isinstance(self.inner, Fifo):
            return [j for j in view.jobs if j.placement] + [j for j in view.jobs if not j.placement]
        if isinstance(self.inner, Srtf):
            # Where everybody fits, those who run go first, as nobody has to give way.
            fits = sum(job.num_replicas for job in view.jobs) <= view.num_gpus
            return sorted(view.jobs, key=lambda j: -1.0 if fits and j.placement else remaining_time(j))
        self.demoted += [
            j.job_id
            for j in view.jobs
            if j.attained_service >= self.inner.queue_threshold and j.job_id not in self.demoted
        ]
        second = [j for name in self.demoted for j in view.jobs if j.job_id == name]
        return [j for j in view.jobs if j not in second] + second

    def check_gangs(self, view: ClusterView, decision: Decision, reasons: dict[str, Reason]) -> None:
        order = self.order(view)
        for position, job in enumerate(order, start=1):
            reason = reasons[job.job_id]
            kind, numbers, others = reason.kind.name, reason.numbers, reason.others
            held_ahead = sum(j.num_replicas for j in order[: position - 1] if j.job_id in decision.allocation)
            assert (kind == "gang-fits") == (job.job_id in decision.allocation)
            assert numbers["position"] == position
            assert numbers["gpus_needed"] == job.num_replicas
            assert numbers["gpus_left"] == view.num_gpus - held_ahead
            if kind == "gang-does-not-fit":
                assert job.num_replicas > numbers["gpus_left"]
                ahead = [j.job_id for j in order[: position - 1] if j.job_id in decision.allocation]
                assert list(others) == ahead[::-1][:3]
            if kind == "behind-head-of-line":
                assert isinstance(self.inner, Fifo)
                assert not self.inner.backfill
                head = next(j for j in order if j.job_id not in decision.allocation)
                assert others == (head.job_id,)
                assert numbers["head_gpus_needed"] == head.num_replicas > numbers["gpus_left"]
            if isinstance(self.inner, Tiresias):
                assert numbers["queue"] == (2 if job.job_id in self.demoted else 1)
                assert numbers["attained_service"] == job.attained_service
            if isinstance(self.inner, Srtf):
                assert numbers["remaining_time"] == remaining_time(job)

    def check_optimus(self, view: ClusterView, decision: Decision, reasons: dict[str, Reason]) -> None:
        counts = {job.job_id: sum(g for _, g in decision.allocation.get(job.job_id, ())) for job in view.jobs}
        for position, job in enumerate(view.jobs, start=1):
            reason = reasons[job.job_id]
            kind, numbers, others = reason.kind.name, reason.numbers, reason.others
            gpus = counts[job.job_id]
            assert (kind == "no-gpu-left") == (gpus == 0)
            if kind == "no-gpu-left":
                assert numbers["position"] == position > view.num_gpus == numbers["num_gpus"]
                continue
            assert numbers["gpus"] == gpus
            assert numbers["next_gain"] == pytest.approx(saved(job, gpus, view), abs=1e-9)
            if gpus > 1:
                assert numbers["last_gain"] == pytest.approx(saved(job, gpus - 1, view), abs=1e-9)
            assert (kind == "at-limit") == (gpus >= job.max_replicas)
            if kind == "no-gain":
                assert numbers["next_gain"] <= 0
            if kind == "gain-too-small":
                assert sum(counts.values()) == view.num_gpus
            if kind == "gain-too-small" and others:
                (winner,) = (j for j in view.jobs if j.job_id == others[0])
                assert numbers["winning_gain"] == pytest.approx(
                    saved(winner, counts[winner.job_id] - 1, view), abs=1e-9
                )
                assert winner is job or numbers["next_gain"] <= numbers["winning_gain"]

    def check_pollux(self, view: ClusterView, decision: Decision, reasons: dict[str, Reason]) -> None:
        problem = build_problem(view, SpeedupTables(), self.inner.p, avoid_interference=True)
        scale = view.num_gpus / len(view.gpus_per_node)
        jobs = {job.job_id: job for job in view.jobs}
        values = {  # of each job: what it has, and what it would have with one GPU more and fewer
            name: [
                worth(view, problem, jobs[name], row, decision.allocation.get(name, ()), more) for more in (0, 1, -1)
            ]
            for row, name in enumerate(problem.job_ids)
        }
        free = view.num_gpus - sum(g for placement in decision.allocation.values() for _, g in placement)
        for row, name in enumerate(problem.job_ids):
            reason = reasons[name]
            kind, numbers, others = reason.kind.name, reason.numbers, reason.others
            job, placement = jobs[name], decision.allocation.get(name, ())
            gpus = sum(g for _, g in placement)
            most = min(job.max_replicas, view.num_gpus)
            table = problem.speedups[row] * scale
            assert (numbers["gpus"], numbers["gpus_before"]) == (gpus, sum(g for _, g in job.placement))
            assert numbers["speedup"] == pytest.approx(table[int(len(placement) > 1), gpus])
            assert numbers["restart_factor"] == restart_factor(
                view.time - job.submit_time, job.num_restarts, view.restart_delay
            )
            assert numbers["worth"] == pytest.approx(values[name][0] * scale)
            assert numbers["gpus_free"] == free
            if gpus < most:
                assert numbers["speedup_more"] == pytest.approx(best(view, table, gpus + 1))
                assert numbers["worth_more"] == pytest.approx(values[name][1] * scale)
            if gpus:
                assert numbers["speedup_fewer"] == pytest.approx(best(view, table, gpus - 1))
            assert (kind == "at-limit") == (gpus == most)
            if kind == "restart-penalty":
                assert numbers["worth_more"] <= numbers["worth"] * (1 + 1e-8)
            if kind in ("restart-penalty", "gpus-left", "cluster-full"):
                assert numbers["speedup_more"] > numbers["speedup"]
            if kind == "cluster-full":
                assert bool(others) == any(decision.allocation.get(other) for other in values if other != name)
            if kind == "cluster-full" and others:
                assert free == 0
                assert numbers["worth_more"] > numbers["worth"]
                assert numbers["fitness"] == pytest.approx(exchanged(values, None, None, self.inner.p))
                exchanges = {
                    o: exchanged(values, name, o, self.inner.p)
                    for o in values
                    if o != name and decision.allocation.get(o)
                }
                assert numbers["fitness_exchange"] == pytest.approx(max(exchanges.values()))
                assert exchanges[others[0]] == pytest.approx(max(exchanges.values()))


def saved(job: JobView, gpus: int, view: ClusterView) -> float:
    """Return the time that one GPU more than `gpus` saves [s], worked out from the oracle."""
    if gpus >= job.max_replicas:
        return 0.0
    times = []
    for count in (gpus, gpus + 1):
        choice = split_batch_size(job.oracle.application, job.batch_size, count, accumulate_alone=True)
        times.append(job.oracle.optimiser_step_time(packed(count, max(view.gpus_per_node)), choice))
    return (times[0] - times[1]) * job.oracle.remaining_iterations(job.batch_size)


def best(view: ClusterView, table: Any, gpus: int) -> float:
    """Return the larger of what `gpus` bring on one node and on several, where either is possible."""
    on_one = table[0, gpus] if gpus <= max(view.gpus_per_node) else 0.0
    return max(on_one, table[1, gpus] if gpus > 1 and len(view.gpus_per_node) > 1 else 0.0)


def worth(view: ClusterView, problem: Any, job: JobView, row: int, placement: Any, more: int) -> float:
    """Return a job's speedup after restart at its placement, or with one GPU more or fewer."""
    factor, gpus = problem.restart_factors[row], sum(g for _, g in placement) + more
    had = sum(g for _, g in job.placement)
    stay = problem.speedups[row, int(len(job.placement) > 1), had]
    if not more:
        if set(placement) == set(job.placement):
            return stay
        return problem.speedups[row, int(len(placement) > 1), gpus] * factor
    if not 0 <= gpus <= min(job.max_replicas, view.num_gpus):
        return 0.0
    moved = best(view, problem.speedups[row], gpus) * factor
    return max(moved, stay) if gpus == had else moved


def exchanged(values: Any, gainer: str | None, giver: str | None, power: float) -> float:
    """Return the power mean with one GPU more for one job and one fewer for another."""
    worths = [v[1] if name == gainer else v[2] if name == giver else v[0] for name, v in values.items()]
    logs = np.log(np.array(worths) + SPEEDUP_FLOOR)
    if power == 0.0:
        return float(np.exp(logs.mean()))
    return float(np.exp(np.log(np.mean(np.exp(power * (logs - logs.mean())))) / power + logs.mean()))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cluster, Workload]:
    cluster = Cluster(tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))))
    jobs = [
        toy_job(f"job-{i}", draw(st.integers(0, 40)) * 25.0, draw(st.integers(1, cluster.num_gpus)), application)
        for i, application in enumerate(draw(st.lists(st.sampled_from(sorted(PROFILES)), min_size=1, max_size=8)))
    ]
    return cluster, toy_workload(*jobs)


@given(st.sampled_from(sorted(POLICIES)), cases())
@settings(max_examples=75)
def test_every_reason_of_every_round_is_true(name: str, case: tuple[Cluster, Workload]) -> None:
    cluster, workload = case
    simulate(workload, PROFILES, cluster, Checked(POLICIES[name]()), settings=EngineSettings(horizon=3000.0), seed=1)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_reasons_are_true_with_real_applications(name: str) -> None:
    profiles = ProfileFolder(None).load()
    workload = PhillyLike(30, 1, True, 3).load(profiles)
    policy = Checked(POLICIES[name]())
    simulate(workload, profiles, Cluster.uniform(4, 4), policy, settings=EngineSettings(horizon=7200.0), seed=1)
    kinds = {reason.kind.name for reason in policy.said.values()}
    assert len(kinds) >= (2 if name in GANGS or name == "optimus" else 3)


@given(st.sampled_from(sorted(POLICIES)), cases())
@settings(max_examples=30)
def test_recorded_reasons_are_those_given_and_change_nothing(name: str, case: tuple[Cluster, Workload]) -> None:
    """Each record is what the policy says at that round, and whosever reasons are recorded, a run is the same."""
    cluster, workload = case
    results = {}
    for whose in ("none", "changes", "rounds"):
        policy = Checked(POLICIES[name]())
        rules = EngineSettings(horizon=3000.0, reasons=whose)
        results[whose] = simulate(workload, PROFILES, cluster, policy, settings=rules, seed=1)
        for record in results[whose].reason_records:
            reason = policy.said[record.time, record.job]
            assert (record.kind, dict(record.numbers), record.others) == (reason.kind.name, *reason[1:])
    assert results["none"] == results["changes"] == results["rounds"]
    assert results["none"].reason_records == ()
    again = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=EngineSettings(horizon=3000.0), seed=1)
    assert again.reason_records == results["changes"].reason_records


@given(st.sampled_from(sorted(POLICIES)), cases())
@settings(max_examples=30)
def test_every_job_has_a_reason_at_every_round(name: str, case: tuple[Cluster, Workload]) -> None:
    """The last one recorded is of the present stretch, whether it waits or runs, and says which."""
    cluster, workload = case
    rules = EngineSettings(horizon=3000.0)
    result = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules, seed=1)
    for job in result.job_records:
        mine = [r for r in result.reason_records if r.job == job.job]
        changes = [r for r in result.allocation_records if r.job == job.job]
        for round_ in result.round_records:
            alive = job.submit_time <= round_.time and (
                job.completion_time is None or round_.time < job.completion_time
            )
            if not alive:
                continue
            reason = [r for r in mine if r.time <= round_.time][-1]
            placed = [c for c in changes if c.time <= round_.time]
            since = max(
                (
                    b.time
                    for a, b in zip([None, *placed], placed, strict=False)
                    if a is None or (a.nodes, a.gpus) != (b.nodes, b.gpus)
                ),
                default=0,
            )
            assert reason.time >= since
            waits = not (placed and placed[-1].nodes)
            if "gpus" in dict(reason.numbers):
                assert waits == (dict(reason.numbers)["gpus"] == 0)
            else:
                assert waits == (reason.kind != "gang-fits")


def test_reasons_of_a_stretch_without_change_grow_with_its_logarithm() -> None:
    profiles = {"toy": ToyProfile(seconds=100.0, epochs=(1000.0,))}
    jobs = toy_workload(toy_job("long"), toy_job("waits"))
    said = []

    class Counting(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            decision = super().allocate(view, rng)
            return replace(
                decision,
                valid_until=-np.inf,
                explain=lambda jobs: said.extend((view.time, job) for job in jobs) or decision.explain(jobs),
            )

    simulate(jobs, profiles, Cluster((1,)), Counting(), settings=EngineSettings(horizon=60.0 * 1000))
    times = {name: [time / 60 for time, job in said if job == name] for name in ("waits", "long")}
    assert times["waits"] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert times["long"] == [1, 9, 25, 57, 121, 249, 505]


@pytest.mark.parametrize(
    "answer",
    [
        "because",
        {"a": "because"},
        {"a": Reason(ReasonKind("x"), {"y": float("nan")})},
        {"a": (1, {}, ())},
        {"a": Reason("x", {})},
    ],
)
def test_what_is_no_reason_is_said_in_a_line(answer: object) -> None:
    class Odd(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            return replace(super().allocate(view, rng), explain=lambda jobs: answer)

    with pytest.raises(PolicyError, match=r"the policy explained .*, must be a"):
        simulate(toy_workload(toy_job("a")), PROFILES, Cluster((1,)), Odd())


def test_an_error_within_a_reason_says_where() -> None:
    class Broken(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            return replace(super().allocate(view, rng), explain=lambda jobs: 1 / 0)

    with pytest.raises(
        PolicyError, match=r"policy Broken failed in the round at 60 s, .*test_reasons.py, line \d+: ZeroDivisionError"
    ):
        simulate(toy_workload(toy_job("a")), PROFILES, Cluster((1,)), Broken())
    with pytest.raises(InvalidConfigError, match=r"engine.reasons is 'all', must be one of changes, rounds, none"):
        EngineSettings(reasons="all")
