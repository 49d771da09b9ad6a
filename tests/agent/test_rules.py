"""Agents by rule: alike with whom they should be, as large a batch as the rule says, and none faster than can be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from drawn import POLICIES, check_fork, draws, ended, go_on, policies_and_cases, told
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

import polluxsim
from polluxsim.agent.rules import AdaBatch, BatchRule, FixedBatch, MostGoodput, NoiseScale
from polluxsim.checks.worlds import PROFILES
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.goodput import Alone
from polluxsim.models.profile import StepTime
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import Result
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

RULES: dict[str, BatchRule] = {
    "fixed": FixedBatch(),
    "pollux": MostGoodput(),
    "adabatch": AdaBatch(factor=3.0, every=0.4),
    "kungfu": NoiseScale(ratio=0.7),
}
rules = st.sampled_from(sorted(RULES))


@dataclass(frozen=True)
class Noisy(ToyProfile):
    """Larger passes take longer, and the noise scale doubles from epoch to epoch: 40, 80, 160, … examples."""

    epochs: tuple[float, ...] = tuple(200.0 * (epoch + 1) for epoch in range(5))

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        return StepTime(0.2 + 0.01 * atomic_batch_size, 0.1 if sum(gpus_by_node) > 1 else 0.0)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        return GradientStatistics(sqr=1.0, var=4.0 * 2.0**epoch)


def begun(workload: Workload, cluster: Cluster, policy: Policy, rule: BatchRule | None) -> Simulation:
    name = type(policy).__name__
    return Simulation(Scenario(workload, PROFILES, cluster, EngineSettings(), traits_of(policy), name, rule), 1)


LONG = Noisy(epochs=tuple(10_000.0 * (epoch + 1) for epoch in range(5)))


def alone(
    rule: BatchRule, gpus: int, policy: Policy | None = None, *, asked: int = 0, profile: Noisy | None = None
) -> Result:
    """Return the run of one job on one node, which asks for all or some of its GPUs."""
    workload, policy = toy_workload(toy_job("a", gpus=asked or gpus)), policy or Fifo()
    cluster, profiles = Cluster.uniform(1, gpus), {"toy": profile or Noisy()}
    scenario = Scenario(workload, profiles, cluster, EngineSettings(), traits_of(policy), batch_rule=rule)
    return ended(Simulation(scenario, 1), policy)


@given(policies_and_cases)
@draws(15)
def test_what_a_policy_asks_for_anyway_changes_nothing(given: tuple[str, tuple[Cluster, Workload]]) -> None:
    name, (cluster, workload) = given
    adaptive = traits_of(POLICIES[name]()).adaptive
    rule = RULES["pollux" if adaptive else "fixed"]
    one, other = POLICIES[name](), POLICIES[name]()
    assert told(ended(begun(workload, cluster, one, rule), one)) == told(
        ended(begun(workload, cluster, other, None), other)
    )


@given(policies_and_cases, rules, st.integers(0, 25), st.booleans())
@draws(15)
def test_under_any_agent_all_jobs_complete_and_a_copy_ends_as_the_run(
    given: tuple[str, tuple[Cluster, Workload]], rule: str, turns: int, look: bool
) -> None:
    name, (cluster, workload) = given
    policy, other = POLICIES[name](), POLICIES[name]()
    result = ended(begun(workload, cluster, other, RULES[rule]), other)
    if name not in {"quotas", "elasticflow", "edf", "elastic-edf"}:
        assert all(job.completion_time is not None for job in result.job_records)
    run = begun(workload, cluster, policy, RULES[rule])
    go_on(run, policy, turns, look=look)
    check_fork(run, policy, told(result))


@pytest.mark.parametrize("turns", range(1, 5))
def test_a_copy_knows_gradients_of_its_own(turns: int) -> None:
    """The long job is stopped for the short one, and goes on with the batch of the noise it saw last."""
    workload, policy, other = toy_workload(toy_job("a"), toy_job("b", 500.0, application="short")), Srtf(), Srtf()
    profiles, cluster = {"toy": LONG, "short": Noisy("short")}, Cluster.uniform(1, 1)
    scenario = Scenario(workload, profiles, cluster, EngineSettings(), batch_rule=NoiseScale())
    uninterrupted = told(ended(Simulation(scenario, 1), other))
    run = Simulation(scenario, 1)
    go_on(run, policy, turns, look=False)
    check_fork(run, policy, uninterrupted)


def sizes(result: Result) -> list[int]:
    return [record.batch_size for record in result.allocation_records if record.gpus]


@pytest.mark.parametrize("policy", [Fifo(), Pollux(known_throughput=True)])
def test_batch_sizes_are_those_of_the_rule_epoch_by_epoch(policy: Policy) -> None:
    assert sizes(alone(AdaBatch(2.0, 0.2), 1, policy)) == [10, 20, 40, 80, 160]
    assert sizes(alone(AdaBatch(2.0, 0.4), 1, policy)) == [10, 20, 40]
    assert sizes(alone(AdaBatch(1000.0, 0.2), 1, policy)) == [10, 640]
    assert sizes(alone(AdaBatch(1e308, 0.2), 1, policy)) == [10, 640]
    # Before an epoch is seen its noise is not known: the batch follows at the next round.
    assert sizes(alone(NoiseScale(1.0), 1, policy)) == [10, 40, 80, 160, 320, 640]
    assert sizes(alone(NoiseScale(0.01), 1, policy)) == [10]
    assert sizes(alone(FixedBatch(), 1, policy)) == [10]


def test_the_time_of_a_growing_batch_by_hand() -> None:
    (job,) = alone(AdaBatch(2.0, 0.2), 2).job_records
    time = 0.0
    for epoch, batch in enumerate((20, 40, 80, 160, 320)):
        noise = 40 * 2**epoch
        steps = 200 * (noise + batch) / (noise + 10) * 10 / batch
        time += steps * (0.2 + 0.01 * batch / 2)
    assert job.completion_time == pytest.approx(60 + 30 + time)  # the first round, and the start
    assert job.finish_time_fairness == pytest.approx(1.0)  # alone on the cluster: as fast as on its share


@given(rules, st.integers(1, 4), st.booleans())
@draws(10)
def test_no_agent_is_faster_than_the_best_batch_of_every_epoch(rule: str, gpus: int, elastic: bool) -> None:
    (job,) = alone(RULES[rule], gpus, Pollux() if elastic else None).job_records
    assert job.completion_time is not None
    assert job.completion_time >= 0.995 * Alone(Noisy(), (gpus,)).adaptive_time()  # of 50 sizes, as Pollux's


def test_by_goodput_a_rigid_job_is_nearly_as_fast_as_can_be() -> None:
    fixed, best = (
        alone(rule, 4, profile=LONG).job_records[0].completion_time for rule in (FixedBatch(), MostGoodput())
    )
    least = 60 + 30 + Alone(LONG, (4,)).adaptive_time()
    assert least <= best <= 1.05 * least < fixed


def test_a_policy_prices_gpus_at_the_batch_of_the_rule() -> None:
    """Ten examples cannot be split over more than ten GPUs; a batch that grows is worth more of them later."""
    for rule, most in ((FixedBatch(), 10), (AdaBatch(2.0, 0.2), 16)):
        result = alone(rule, 16, Pollux(known_throughput=True), asked=1, profile=LONG)
        assert max(sum(record.gpus) for record in result.allocation_records) == most
        assert sum(result.allocation_records[0].gpus) <= 10


def test_gangs_and_plans_keep_theirs() -> None:
    workload = Workload((Job.rigid("r", 0.0, 2, 500.0),))
    one, other = (simulate(workload, {}, Cluster.uniform(1, 4), Fifo()) for _ in range(2))
    run = Simulation(Scenario(workload, {}, Cluster.uniform(1, 4), EngineSettings(), batch_rule=AdaBatch()), 0)
    assert told(ended(run, Fifo()))[0].job_records[0].completion_time == one.job_records[0].completion_time
    assert one.job_records == other.job_records


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: AdaBatch(factor=0.5), "agent.factor is 0.5, must be a finite number ≥ 1"),
        (lambda: AdaBatch(every=0.0), "agent.every is 0, must be a number > 0 and ≤ 1"),
        (lambda: NoiseScale(ratio=float("inf")), "agent.ratio is inf, must be a finite number > 0"),
        (lambda: polluxsim.simulate(agent="adabach"), "agent=adabach is unknown, must be one of adabatch, "),
        (lambda: polluxsim.simulate(agent=3), "agent is 3, must be a name or an object with a method batch_size"),
        (lambda: polluxsim.simulate(agent=AdaBatch), "agent is the class AdaBatch, must be an object: AdaBatch()"),
    ],
)
def test_what_is_no_agent_is_one_line(make, line: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolluxSimError) as error:
        make()
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_in_python_an_object_and_the_command_lines_setting_are_one_run() -> None:
    jobs = polluxsim.workload("philly-like", num_jobs=4, hours=1)
    runs = [
        polluxsim.simulate(jobs, policy="fifo", agent=agent, progress=False) for agent in ("adabatch", AdaBatch(), None)
    ]
    assert runs[0].info["key"] == runs[1].info["key"] != runs[2].info["key"]
    assert "agent" not in runs[2].info["config"]
    assert runs[0].info["config"]["agent"] == {
        "_target_": "polluxsim.agent.rules.AdaBatch",
        "factor": 2.0,
        "every": 0.2,
    }
    assert runs[0].jobs.equals(runs[1].jobs)


class Halfway:
    def batch_size(self, *_: object) -> float:
        return 10.0


class Wrong(FixedBatch):
    def batch_size(self, *_: object) -> object:  # type: ignore[override]
        return float("nan")


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (Halfway(), "agent Halfway has no by_goodput: derive the class from polluxsim.agent.rules.FixedBatch"),
        (Wrong(), "agent Wrong chose a batch of nan in epoch 0, must be a number of examples"),
    ],
)
def test_an_agent_of_ones_own_that_is_none_is_one_line(rule: BatchRule, line: str) -> None:
    with pytest.raises(PolluxSimError) as error:
        alone(rule, 1)
    assert str(error.value) == line


def test_a_future_under_another_policy_keeps_the_agent() -> None:
    jobs = polluxsim.workload("philly-like", num_jobs=6, hours=1)
    run = polluxsim.simulate(jobs, policy="fifo", agent="adabatch", progress=False)
    future = run.at("10min").fork(policy="srtf").result
    new = [job for job in future.job_records if job.submit_time > 600 and job.application != "bert"]
    sizes = {
        job.job: {row.batch_size for row in future.allocation_records if row.job == job.job and row.gpus} for job in new
    }
    assert max(map(len, sizes.values())) > 1


def test_a_batch_grows_with_the_epochs_only() -> None:
    rule, application = AdaBatch(2.0, 0.2), replace(Noisy().application, num_epochs=100)
    grown = [rule.batch_size(10, application, epoch, None) for epoch in range(100)]
    assert [epoch for epoch, (low, high) in enumerate(pairwise(grown), 1) if high > low] == [20, 40, 60, 80]
