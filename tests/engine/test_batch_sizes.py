"""A policy chooses batch sizes: the jobs run at them until the next decision, and the records say who chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import ToyProfile, toy_job, toy_workload

import polluxsim
from polluxsim import BatchSize, Traits
from polluxsim.agent.rules import FixedBatch
from polluxsim.checks.worlds import Listed
from polluxsim.common.errors import InvalidAllocationError, InvalidBatchSizeError
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end, simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.hardware.placements import BatchChoice, num_replicas
from polluxsim.look.batch_choosers import BatchChoosers
from polluxsim.look.report.payload import changes_by_policy
from polluxsim.look.why.story import describe_event, stages
from polluxsim.models.batch_size import BatchLimits
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.goodput import GoodputModel, Prediction, ScaledGoodput
from polluxsim.models.profile import Application
from polluxsim.models.throughput import ThroughputParams
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, decision_of
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import Result
from polluxsim.records.storage import CHOOSERS_FILE, read_run, write_run
from polluxsim.workloads.job import Job

TABLES = (
    "job_records", "round_records", "allocation_records", "reason_records", "checkpoint_records", "outage_records",
    "gpu_seconds", "end_time",
)  # fmt: skip
PROFILES = {"toy": ToyProfile(epochs=(100.0, 200.0, 300.0))}
CLUSTER = Cluster.uniform(2, 4)


class OwnChoices:
    """Pollux, which names as batch sizes what the agents of its jobs would choose."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.traits = Traits(adaptive=True, needs_profiles=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        decision = decision_of(self.policy.allocate(view, rng))
        (gpu_type,) = view.types
        sizes = {}
        for job in view.jobs:
            placement = decision.allocation.get(job.job_id)
            if placement and job.batch_limits:
                gpus = num_replicas(placement)
                if job.goodput is not None:
                    _, choice = job.goodput.best(len(placement), gpus)
                    size = BatchSize.of(choice, this_epoch_only=True)
                else:
                    limits = job.batch_limits[gpu_type]
                    smallest = max(limits.smallest, limits.least_per_gpu * gpus)
                    size = BatchSize(total=smallest, this_epoch_only=True)
                sizes[job.job_id] = size
        return replace(decision, batch_sizes=sizes)


class UsersSizes:
    """A policy of gangs, which names the batch sizes of the users."""

    def __init__(self, policy: Policy, *, chooses: bool) -> None:
        self.policy = policy
        self.chooses = chooses
        self.traits = Traits(adaptive=True)  # so that agents would choose other batch sizes

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        decision = replace(decision_of(self.policy.allocate(view, rng)), valid_until=-inf)
        if not self.chooses:
            return decision
        sizes = {}
        for job in view.jobs:
            has_gpus = decision.allocation.get(job.job_id, job.placement if decision.others_keep else ())
            if has_gpus and job.batch_limits:
                sizes[job.job_id] = BatchSize(total=job.batch_size)
        return replace(decision, batch_sizes=sizes)


@dataclass
class Says:
    """Answers what it was told to."""

    answer: Callable[[ClusterView], Any]
    traits: Traits = field(default_factory=Traits)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Any:
        return self.answer(view)


def chosen(sizes: Mapping[str, BatchSize], gpus: int = 2) -> Decision:
    """Return a decision that gives job `a` GPUs of node 0, with batch sizes."""
    return Decision({"a": ((0, gpus),)}, batch_sizes=sizes)


def changes(result: Result) -> list[tuple[float, int, int]]:
    """Return time [s], batch size and accumulation steps of the changes of job `a`."""
    return [
        (record.time, record.batch_size, record.accumulation_steps)
        for record in result.allocation_records
        if record.job == "a" and record.nodes
    ]


def choosers(result: Result) -> list[tuple[float, str]]:
    return [(record.time, record.chosen_by) for record in result.chooser_records if record.job == "a"]


def as_alone(result: Result, table: str) -> Any:
    """Return a table without finish-time fairness, in which the job alone has the batch sizes of its agent."""
    values = getattr(result, table)
    if table != "job_records":
        return values
    return [record._replace(finish_time_fairness=None) for record in values]


@pytest.mark.parametrize("rules", [{}, {"whole_seconds": True, "interference": 0.3}])
def test_polluxs_own_choices_give_the_results_of_pollux(rules: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "workload": polluxsim.workload("philly-like", num_jobs=25),
        "cluster": (4, 4),
        "settings": EngineSettings(**rules),
        "progress": False,
    }
    by_agents = polluxsim.simulate(policy=Pollux(), **given).result
    by_policy = polluxsim.simulate(policy=OwnChoices(Pollux()), **given).result
    for table in TABLES:
        assert getattr(by_policy, table) == getattr(by_agents, table), table
    assert len(by_policy.chooser_records) > 100
    assert len(by_agents.chooser_records) == 0


@pytest.mark.parametrize("policy", [Fifo, Tiresias])
def test_the_users_batch_sizes_give_the_results_of_fixed_batch_sizes(policy: type[Policy]) -> None:
    given: dict[str, Any] = {
        "workload": polluxsim.workload("philly-like", num_jobs=25),
        "cluster": (4, 4),
        "progress": False,
    }
    by_policy = polluxsim.simulate(policy=UsersSizes(policy(), chooses=True), **given).result
    by_rule = polluxsim.simulate(policy=UsersSizes(policy(), chooses=False), agent=FixedBatch(), **given).result
    by_goodput = polluxsim.simulate(policy=UsersSizes(policy(), chooses=False), **given).result
    for table in TABLES:
        assert as_alone(by_policy, table) == as_alone(by_rule, table), table
    with_both = polluxsim.simulate(policy=UsersSizes(policy(), chooses=True), agent=FixedBatch(), **given).result
    assert replace(with_both, chooser_records=()) == by_rule
    assert by_policy.allocation_records != by_goodput.allocation_records
    first = {record.job: record.chosen_by for record in reversed(by_policy.chooser_records)}
    assert set(first.values()) == {"policy"}


def test_a_batch_size_holds_until_the_next_decision_and_then_the_agent_chooses() -> None:
    """A step takes 1 s. With 20 examples it is worth 2 M0-steps, with 40 examples 4."""
    sizes = {60.0: {"a": BatchSize(total=40)}, 120.0: {"a": BatchSize(per_gpu=5, accumulation_steps=1)}}
    says = Says(lambda view: chosen(sizes.get(view.time, {})))
    result = simulate(toy_workload(toy_job("a", 1.0, gpus=2)), PROFILES, CLUSTER, says)
    # From 90 to 120 s at 4 M0-steps/s. Two passes of 5 examples take 1.5 s. Then the agent keeps the user's 20.
    assert changes(result) == [(60.0, 40, 0), (120.0, 20, 1), (180.0, 20, 0)]
    assert choosers(result) == [(60.0, "policy"), (180.0, "agent")]
    work = 30 * 4 + 60 * 2 / 1.5
    (job,) = result.job_records
    assert job.completion_time == 180.0 + (300.0 - work) / 2
    assert job.num_restarts == 0


def test_a_choice_may_end_with_the_epoch() -> None:
    """The first epoch, of 100 M0-steps, ends 25 s after the start, at 115 s."""
    first = {60.0: {"a": BatchSize(total=40, this_epoch_only=True)}}
    says = Says(lambda view: replace(chosen(first.get(view.time, {})), valid_until=inf))
    result = simulate(toy_workload(toy_job("a", 1.0, gpus=2)), PROFILES, CLUSTER, says)
    assert changes(result) == [(60.0, 40, 0), (115.0, 20, 0)]
    assert choosers(result) == [(60.0, "policy"), (115.0, "agent")]
    assert result.job_records[0].completion_time == 115.0 + 200 / 2


def test_a_choice_for_the_epoch_can_become_one_for_longer_and_back() -> None:
    """No agent learns here, so that only such a choice makes the end of an epoch an event."""

    def answer(view: ClusterView) -> Decision:
        return chosen({"a": BatchSize(total=20, this_epoch_only=view.time in (60.0, 180.0))})

    result = simulate(toy_workload(toy_job("a", 1.0, gpus=2)), PROFILES, CLUSTER, Says(answer))
    assert changes(result) == [(60.0, 20, 0)]
    assert result.job_records[0].completion_time == 90.0 + 300 / 2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (["a"], r"batch_sizes=\['a'\], must be a mapping of jobs to batch sizes"),
        ({"x": BatchSize(total=20)}, "chose a batch size of job 'x', which is not active"),
        ({"a": 20}, r"chose the batch size 20 of job 'a', must be a BatchSize, like polluxsim.BatchSize\(total=64\)"),
        ({"b": BatchSize(total=20)}, r"BatchSize\(total=20\) of job 'b', which gets no GPUs: leave the job out"),
        ({"a": BatchSize(total=9)}, r"\(total=9\) of job 'a' on 2 GPUs: 9 examples in total, must be 10 to 640"),
        ({"a": BatchSize(total=641)}, "641 examples in total with 8 accumulation steps, must be 10 to 640"),
        ({"a": BatchSize(per_gpu=41)}, "41 examples per GPU and pass, must be 1 to 40"),
        ({"a": BatchSize(per_gpu=4)}, "8 examples in total, must be 10 to 640"),
        (
            {"a": BatchSize(per_gpu=40, accumulation_steps=8)},
            r"per_gpu=40, accumulation_steps=8\) of job 'a' on 2 GPUs: 720 examples in total with 8 accumulation steps",
        ),
        ({"r": BatchSize(total=2)}, "of job 'r' on 2 GPUs: the job has no profile, so its batch size cannot be chosen"),
    ],
)
def test_a_batch_size_that_cannot_be_is_refused_in_one_line(sizes: Any, message: str) -> None:
    jobs = toy_workload(toy_job("a", gpus=2), toy_job("b"), Job.rigid("r", 0.0, 2, 100.0))
    profiles = {"toy": ToyProfile(max_atomic_batch_size=40)}
    says = Says(lambda view: Decision({"a": ((0, 2),), "r": ((1, 2),)}, batch_sizes=sizes))
    run = Simulation(Scenario.under(says, jobs, profiles, CLUSTER, EngineSettings()))
    view = run.advance()
    assert view is not None
    with pytest.raises(InvalidAllocationError, match=message) as caught:
        run.commit(run.ask(says, view))
    assert str(caught.value).startswith("policy Says ")
    assert "\n" not in str(caught.value)
    run.commit({"a": ((0, 2),)})  # the run is unchanged and still waits
    assert run.allocation == {"a": ((0, 2),)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"BatchSize\(total=None\) must have either total or per_gpu"),
        ({"total": 8, "per_gpu": 8}, "must have either total or per_gpu"),
        ({"total": 8, "accumulation_steps": 1}, "has accumulation_steps, which need per_gpu instead of total"),
        ({"total": 0}, "has total=0, must be a whole number ≥ 1"),
        ({"total": 8.5}, "has total=8.5, must be a whole number ≥ 1"),
        ({"per_gpu": True}, "has per_gpu=True, must be a whole number ≥ 1"),
        ({"per_gpu": 8, "accumulation_steps": -1}, "has accumulation_steps=-1, must be a whole number ≥ 0"),
    ],
)
def test_a_batch_size_checks_its_numbers(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidBatchSizeError, match=message):
        BatchSize(**values)


def test_a_batch_size_that_an_application_cannot_change_is_refused() -> None:
    class Fixed(ToyProfile):
        @property
        def application(self) -> Application:
            return replace(super().application, fixed_batch_size=20)

    says = Says(lambda view: chosen({"a": BatchSize(total=40)}))
    with pytest.raises(InvalidBatchSizeError, match="toy cannot change its batch size, 20 examples"):
        simulate(toy_workload(toy_job("a", gpus=2)), {"toy": Fixed()}, CLUSTER, says)


def test_a_policy_may_give_more_gpus_than_the_users_batch_could_feed() -> None:
    """A user asks for 10 examples. On 8 GPUs with at least 2 examples each, only another batch size is possible."""

    class Wide(ToyProfile):
        @property
        def application(self) -> Application:
            return replace(super().application, min_atomic_batch_size=2)

    def answer(view: ClusterView) -> Decision:
        return Decision({"a": ((0, 4), (1, 4))}, batch_sizes={"a": BatchSize(per_gpu=2)})

    jobs, profiles = toy_workload(toy_job("a")), {"toy": Wide()}
    assert changes(simulate(jobs, profiles, CLUSTER, Says(answer))) == [(60.0, 16, 0)]
    with pytest.raises(InvalidAllocationError, match="8 GPUs, must be at most 5"):
        simulate(jobs, profiles, CLUSTER, Says(lambda view: {"a": ((0, 4), (1, 4))}))


def test_the_view_shows_limits_and_the_speed_at_any_batch_size() -> None:
    seen: list[tuple[dict[str, BatchLimits], Any]] = []

    def answer(view: ClusterView) -> Decision:
        (job,) = view.jobs
        seen.append((dict(job.batch_limits), job.goodput))
        return chosen({})

    says = Says(answer, Traits(adaptive=True))
    simulate(toy_workload(toy_job("a", gpus=2)), {"toy": ToyProfile(max_atomic_batch_size=40)}, CLUSTER, says)
    (limits,) = seen[0][0].values()
    assert limits == BatchLimits(10, 640, 1, 40)
    assert limits.most_accumulation_steps(8) == 79
    assert seen[0][1] is None  # the agent has not observed anything
    model = seen[-1][1]
    goodput, choice = model.best(1, 2)
    assert model.at(1, 2, BatchSize.of(choice)).goodput == pytest.approx(goodput)
    with pytest.raises(InvalidBatchSizeError, match="41 examples per GPU and pass, must be 1 to 40"):
        model.at(1, 2, BatchSize(per_gpu=41))


def test_predictions_are_the_models_formulas() -> None:
    """Throughput M / T_iter, efficiency (φ + M0) / (φ + M), and their product, by hand."""
    application = Application("a", 100, 10_000, 10, 500, 1)
    model = GoodputModel(
        application, ThroughputParams(0.1, 0.01, 0.3, 0.0, 0.2, 0.0, 1.0), GradientStatistics(1.0, 3.0)
    )
    grad = 0.1 + 0.01 * 200
    seconds = grad + (grad + 0.3)  # one pass without synchronisation, one with it, without any overlap
    predicted = model.at(2, 4, BatchSize(per_gpu=200, accumulation_steps=1))
    throughput, share = 1600 / seconds, (300 + 100) / (300 + 1600)
    assert predicted == Prediction(
        BatchChoice(200, 1), 1600, pytest.approx(throughput), pytest.approx(share), pytest.approx(throughput * share)
    )
    small = replace(application, max_atomic_batch_size=250)
    scaled = ScaledGoodput(model, 2.5, 4, small).at(4, 4, BatchSize(total=1600))
    there = model.at(1, 4, BatchSize(per_gpu=200, accumulation_steps=1))  # 4 GPUs are on one node of the other type
    assert scaled.choice == BatchChoice(200, 1)
    assert scaled.goodput == pytest.approx(2.5 * there.goodput)
    assert scaled.efficiency == there.efficiency


def test_a_run_folder_keeps_who_chose_and_other_runs_have_no_such_file(tmp_path: Path) -> None:
    says = Says(lambda view: chosen({"a": BatchSize(total=40)} if view.time == 60.0 else {}))
    jobs = toy_workload(toy_job("a", 1.0, gpus=2))
    write_run(tmp_path / "policy", simulate(jobs, PROFILES, CLUSTER, says), {})
    read = read_run(tmp_path / "policy").result
    assert choosers(read) == [(60.0, "policy"), (120.0, "agent")]
    write_run(tmp_path / "agent", simulate(jobs, PROFILES, CLUSTER, Says(lambda view: chosen({}))), {})
    assert not (tmp_path / "agent" / CHOOSERS_FILE).exists()


def test_a_fork_goes_on_with_the_batch_sizes_of_the_last_decision() -> None:
    policy = UsersSizes(Fifo(), chooses=True)
    jobs = toy_workload(*(toy_job(f"{number}", 40.0 * number, gpus=2) for number in range(6)))
    run = Simulation(Scenario.under(policy, jobs, PROFILES, CLUSTER, EngineSettings()))
    for _ in range(4):
        view = run.advance()
        assert view is not None
        run.commit(run.ask(policy, view))
    copy, same = deepcopy((run, policy))
    other, free = deepcopy((run, UsersSizes(Fifo(), chooses=False)))
    other.hand_over()
    result = run_to_end(run, policy)
    assert run_to_end(copy, same) == result
    assert run_to_end(other, free).allocation_records != result.allocation_records


def test_a_job_that_a_failure_evicts_starts_again_at_the_batch_size_of_the_next_decision() -> None:
    cluster = replace(CLUSTER, failures=Listed((Outage((0,), 100.0, 1e6, "failure"),)))

    def answer(view: ClusterView) -> Decision:
        if view.time < 100:
            return chosen({"a": BatchSize(total=40)})
        sizes = {"a": BatchSize(total=80)} if view.time < 300 else {}
        return Decision({"a": ((1, 2),)}, batch_sizes=sizes)

    result = simulate(toy_workload(toy_job("a", 1.0, gpus=2)), PROFILES, cluster, Says(answer))
    assert changes(result)[:3] == [(60.0, 40, 0), (120.0, 80, 0)]


def test_why_and_the_report_say_that_the_policy_chose(tmp_path: Path) -> None:
    def answer(view: ClusterView) -> Decision:
        if view.time < 120:
            return chosen({"a": BatchSize(total=40)})
        return chosen({"a": BatchSize(total=40)} if view.time < 180 else {}, gpus=4)

    write_run(tmp_path, simulate(toy_workload(toy_job("a", 1.0, gpus=2)), PROFILES, CLUSTER, Says(answer)), {})
    run = read_run(tmp_path)
    told = [describe_event(stage) for stage in stages(run, run.result.job_records[0])]
    assert told == [
        "waits",
        "started on 2 GPUs of node 0, batch size 40, chosen by the policy",
        "grew from 2 to 4 GPUs of node 0, batch size 40 to 20, chosen by the policy and the agent",
    ]
    assert [record.batch_size for record in run.result.allocation_records] == [40, 40, 20, 0]
    assert changes_by_policy(run.result) == [0, 1]
    choosers = BatchChoosers(run.result)
    assert [choosers.at("a", time) for time in (0.0, 60.0, 179.0, 180.0)] == ["agent", "policy", "policy", "agent"]
    assert choosers.at("other", 60.0) == "agent"
