"""The regret of single decisions: by hand, in drawn worlds, and against the policy itself."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from math import fsum, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regret as benchmark

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.engine.failures import JobFailures
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Change, ClusterView, Decision, Traits, decision_of
from polluxsim.policies.ordered.classic import Fifo, Srsf
from polluxsim.records.regret import KINDS, Difference
from polluxsim.records.storage import read_run
from polluxsim.run import regret_of_runs
from polluxsim.run.decision_walk import Walk, course_of
from polluxsim.run.interrupt import SweepInterrupted
from polluxsim.run.one_round import OtherPolicy, Start, Takeovers, walk_of_other
from polluxsim.run.regret import RegretRequest, regrets_of
from polluxsim.run.regret_of_runs import path_of_run, regrets_of_run
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

LONG = Job.rigid("long", 0.0, 4, 1200.0)
SHORT = Job.rigid("short", 0.0, 4, 300.0)
SRSF = OtherPolicy("srsf", Srsf)
RIGID = """name,time,num_replicas,duration
a,30,4,1800
b,40,4,900
c,100,2,300
d,500,2,60
e,800,3,120
"""


def start_with(*jobs: Job, num_nodes: int = 1, **settings: Any) -> Start:
    """Return the start of a run of FIFO with jobs on nodes of four GPUs, without restart delays."""
    engine = EngineSettings(restart_delay=0.0, **settings)
    scenario = Scenario.under(Fifo(), Workload(jobs), {}, Cluster.uniform(num_nodes, 4), engine)
    return lambda: (Simulation(scenario, seed=1), Fifo())


def placing(
    placements: dict[str, Placement], rejected: tuple[str, ...] = (), traits: Traits | None = None
) -> OtherPolicy:
    """Return a policy that always gives the same answer, as far as the jobs are there."""

    class Placing(Policy):
        @property
        def traits(self) -> Traits:
            return traits or Traits()

        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            names = {job.job_id for job in view.jobs}
            allocation = {name: placement for name, placement in placements.items() if name in names}
            return Decision(allocation, rejected=[name for name in rejected if name in names])

    return OtherPolicy("test", Placing)


def not_comparable(start: Start, other: OtherPolicy) -> list[str]:
    """Return why the first round of a run cannot be compared."""
    return [regrets_of(start, other).rounds[0].not_comparable]


def test_the_regret_of_a_decision_can_be_worked_out() -> None:
    """The first round is at 60 s. FIFO: 1260 + 1560 s. If the short job starts first: 360 + 1560 s."""
    regrets = regrets_of(start_with(LONG, SHORT), SRSF)
    assert (regrets.own_policy, regrets.other_policy) == ("Fifo", "srsf")
    assert (regrets.num_jobs, regrets.total_jct) == (2, 2820)
    first, second = regrets.rounds
    assert first.values == (900.0,)
    assert first.differences == (Difference("long", "wait", 4, 0), Difference("short", "start", 0, 4))
    assert first.kinds == ("start", "wait")
    assert first.jct_changes == {"long": -300.0, "short": 1200.0}
    assert (second.time, second.differences, second.regret) == (1260, (), 0)
    assert regrets.costliest(10) == [first]


def test_a_decision_stands_for_one_round_only() -> None:
    """SRSF would keep the long job waiting for all short jobs; FIFO starts it in the next round."""
    jobs = [LONG, *(Job.rigid(f"short-{number}", 0.0, 4, 50.0) for number in range(3))]
    (first, *_) = regrets_of(start_with(*jobs), SRSF).rounds
    # One short job ends at 110 s. At 120 s, FIFO starts the long job. The others start at the same times.
    assert first.jct_changes == pytest.approx({"long": -60.0, "short-0": 1200.0})


def test_the_validity_of_the_other_decision_does_not_count() -> None:
    """The other policy would keep its decision for ever, so that the long job never started."""

    class Lasting(Srsf):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            return Decision({"short": ((0, 4),)}, valid_until=inf, outdated_by=Change(0))

    assert regrets_of(start_with(LONG, SHORT), OtherPolicy("lasting", Lasting)).rounds[0].values == (900.0,)


STRETCHY = Job.rigid("a", 0.0, 2, 600.0, speeds=((1, 0.5), (2, 1.0)))
ARRIVING = Job.rigid("b", 100.0, 2, 600.0)


@pytest.mark.parametrize(
    ("placements", "differences"),
    [
        ({"a": ((0, 2),), "b": ((1, 2),)}, {}),
        ({"a": ((0, 2),)}, {"b": "wait"}),
        ({"b": ((1, 2),)}, {"a": "preempt"}),
        ({"a": ((1, 2),), "b": ((1, 2),)}, {"a": "move"}),
        ({"a": ((0, 1),), "b": ((1, 2),)}, {"a": "resize"}),
        ({"a": ((0, 1),), "c": ((1, 2),)}, {"a": "resize", "b": "wait", "c": "start"}),
    ],
)
def test_kinds_of_differences(placements: dict[str, Placement], differences: dict[str, str]) -> None:
    """FIFO lets the first job run on, starts the second one, and lets the last one wait for 8 GPUs."""
    late = Job.rigid("c", 100.0, 8, 600.0, speeds=((2, 0.25), (8, 1.0)))
    start = start_with(STRETCHY, ARRIVING, late, num_nodes=2)
    second = regrets_of(start, placing(placements)).rounds[1]
    assert second.time == 120
    assert {difference.job: difference.kind for difference in second.differences} == differences
    assert second.kinds == tuple(kind for kind in KINDS if kind in differences.values())
    assert second.regret == 0 or not set(second.kinds) <= {"move"}  # restarts take no time here


def test_a_policy_that_cannot_be_compared_gives_its_reason() -> None:
    start = start_with(LONG, SHORT)
    assert not_comparable(start, placing({}, rejected=("short",))) == [
        "test rejects short, whose completion times would not count"
    ]
    (message,) = not_comparable(start, placing({"long": ((7, 4),)}))
    assert message == "policy test gave job 'long' node 7, must be 0 to 0"
    (message,) = not_comparable(start_with(LONG, SHORT, horizon=1600.0), placing({}))
    assert message == "job 'short' is completed in the run, and cut off in the fork"


def test_jobs_that_are_cut_off_in_both_futures_count_with_their_age() -> None:
    """No job ends before the horizon, whichever starts first."""
    start = start_with(LONG, Job.rigid("other", 0.0, 4, 2000.0), horizon=1000.0)
    assert [regret.values for regret in regrets_of(start, placing({"other": ((0, 4),)})).rounds] == [(0.0,)]


@pytest.mark.parametrize("trait", ["adaptive", "known_throughput", "maximises_throughput", "shares_gpus", "scales"])
def test_policies_with_traits_that_the_run_lacks_are_refused(trait: str) -> None:
    start = start_with(LONG, SHORT)
    with pytest.raises(
        InvalidConfigError, match=f"policy test cannot decide in a run of Fifo, which lacks its trait {trait}"
    ):
        regrets_of(start, placing({}, traits=Traits(**{trait: True})))


def test_the_other_policy_is_new_and_its_generator_depends_on_seed_and_round_only() -> None:
    start = start_with(*(Job.rigid(f"job-{number}", 60.0 * number, 4, 600.0) for number in range(4)))
    draws: list[float] = []
    told: list[bool] = []

    class Drawing(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
            draws.append(rng.random())
            told.append([job.job_id for job in view.changes.arrived] == [job.job_id for job in view.jobs])
            return super().allocate(view, rng)

    other = OtherPolicy("drawing", Drawing)
    num_rounds = regrets_of(start, other, seed=3).num_rounds
    assert len(set(draws)) == num_rounds
    regrets_of(start, other, RegretRequest(sample=1), seed=3)
    assert draws[-1] in draws[:num_rounds]
    regrets_of(start, other, RegretRequest(sample=1), seed=4)
    assert draws[-1] not in draws[:-1]
    assert all(told)


def test_takeovers_go_from_the_run_to_that_of_the_other_policy() -> None:
    jobs = [Job.rigid(f"job-{number}", 40.0 * number, 1 + number % 4, 90.0 * (7 - number)) for number in range(7)]
    start = start_with(*jobs)
    own = course_of(Walk(*start()))
    other = course_of(walk_of_other(start, SRSF))
    takeovers = Takeovers(start, SRSF, own.outcomes)
    totals = [takeovers.takeover(number).total_jct for number in range(len(other.times))]
    assert totals[0] == own.total_jct
    assert len(set(totals)) > 2
    assert totals[-1] is not None
    assert own.total_jct != other.total_jct


def test_a_policy_that_takes_over_is_told_of_all_active_jobs() -> None:
    class Told(Fifo):
        """Serves only jobs that it was told of."""

        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            self.names.update(job.job_id for job in view.changes.arrived)
            decision = decision_of(super().allocate(view, rng))
            allocation = {job: gpus for job, gpus in decision.allocation.items() if job in self.names}
            return replace(decision, allocation=allocation)

    run, _ = start_with(LONG, SHORT)()
    takeovers = Takeovers(lambda: (deepcopy(run), Told()), SRSF, course_of(Walk(deepcopy(run), Told())).outcomes)
    assert [takeovers.takeover(number).total_jct for number in (0, 1)] == [2820, 1920]


def test_several_seeds_repeat_both_futures() -> None:
    """Jobs fail at random, so that regrets differ; equal decisions have none."""
    jobs = [Job.rigid(f"job-{number}", 40.0 * number, 1 + number % 4, 900.0 - 90 * number) for number in range(7)]
    start = start_with(*jobs, job_failures=JobFailures(6.0, 100))
    regrets = regrets_of(start, SRSF, RegretRequest(seeds=4))
    assert regrets.is_drawn
    once = regrets_of(start, SRSF)
    assert [regret.values[:1] for regret in regrets.rounds] == [regret.values for regret in once.rounds]
    assert any(len(set(regret.values)) > 1 for regret in regrets.rounds)
    for regret in regrets.rounds:
        assert len(regret.values) == 4
        assert regret.regret == pytest.approx(fsum(regret.jct_changes.values()))
        assert regret.differences or not any(regret.values)


def test_both_futures_of_a_repetition_have_the_same_chance() -> None:
    """The other policy starts a job on another node, which changes nothing."""
    job = Job.rigid("a", 0.0, 2, 6000.0)
    start = start_with(job, num_nodes=2, job_failures=JobFailures(3.0, 100))
    whole = regrets_of(start, placing({"a": ((1, 2),)}), RegretRequest(seeds=5)).rounds[0]
    assert whole.kinds == ("move",)
    assert whole.values == (0.0,) * 5
    # The repetitions do differ: with the job waiting, other times are lost.
    assert len(set(regrets_of(start, placing({}), RegretRequest(seeds=5)).rounds[0].values)) > 1


def test_a_request_spreads_its_rounds() -> None:
    assert RegretRequest(sample=4).numbers(100) == [12, 37, 62, 87]
    assert RegretRequest(sample=4).takeover_numbers(100) == [0, 25, 50, 75]
    assert RegretRequest(sample=9).numbers(4) == RegretRequest().takeover_numbers(4) == [0, 1, 2, 3]
    with pytest.raises(InvalidConfigError, match="sample is 0, must be a whole number of at least 1"):
        RegretRequest(sample=0)


@pytest.mark.parametrize("name", ["themis", "pollux", "gandiva", "srsf", "elasticflow", "slurm"])
def test_a_policy_has_no_regret_against_itself(name: str) -> None:
    """`benchmarks/regret.py` compares every policy in more worlds."""
    for number in range(2):
        assert benchmark.faults_of_own(number, name) == []


@pytest.mark.parametrize("number", range(8))
def test_each_round_of_a_drawn_world_has_a_value_or_a_reason(number: int) -> None:
    """`benchmarks/regret.py` draws more worlds and pairs."""
    own, other = [("fifo", "srsf"), ("pollux", "sia"), ("las", "easy"), ("tiresias", "themis")][number % 4]
    faults, counts = benchmark.faults_of_pair(number, own, other)
    assert faults == []
    assert sum(counts.values()) > 0


def made(folder: Path, policy: str = "policy=fifo", *settings: str, name: str = "run") -> Path:
    """Return the folder of a run of five jobs on four GPUs."""
    (folder / "jobs.csv").write_text(RIGID)
    words = [f"workload.path={folder / 'jobs.csv'}", "cluster.num_nodes=1", "cluster.gpus_per_node=4", *settings]
    assert main(["run", policy, "engine.restart_delay=0", *words, "-o", str(folder / name)]) == 0
    return folder / name


def test_a_folder_keeps_finished_rounds(tmp_path: Path) -> None:
    run = read_run(made(tmp_path))
    regrets = regrets_of_run(run, "srsf", RegretRequest())
    assert len(regrets.rounds) == regrets.num_rounds > 3
    file = tmp_path / "run" / "regret-srsf.jsonl"
    complete = file.read_bytes()

    def press(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    file.unlink()
    with pytest.raises(SweepInterrupted, match="interrupted, 2 of"):
        regrets_of_run(run, "srsf", RegretRequest(), press)
    with file.open("ab") as text:
        text.write(b'{"number": 99, "time')  # as if the process was killed in the middle of a line
    done = list[int]()
    assert regrets_of_run(run, "srsf", RegretRequest(), lambda count, total: done.append(count)) == regrets
    assert done == list(range(2, regrets.num_rounds + 1))
    assert file.read_bytes() == complete
    request = RegretRequest(sample=2)
    sampled = tuple(regrets.rounds[number] for number in request.numbers(regrets.num_rounds))
    assert regrets_of_run(run, "srsf", request).rounds == sampled
    # The rounds of a run with other settings, or under other code, are not used.
    head, *lines = complete.decode().splitlines(keepends=True)
    values = json.loads(head)
    values["about"]["key"] = "of another run"
    file.write_text(json.dumps(values) + "\n" + "".join(lines))
    done.clear()
    assert regrets_of_run(run, "srsf", RegretRequest(), lambda count, total: done.append(count)) == regrets
    assert done[0] == 0
    assert {len(regret.values) for regret in regrets_of_run(run, "srsf", RegretRequest(seeds=2)).rounds} == {2}
    file.write_text("{}\n")
    with pytest.raises(InvalidInputError, match=r"regret-srsf.jsonl: damaged"):
        regrets_of_run(run, "srsf", RegretRequest())


def test_the_steps_of_a_path_add_up(tmp_path: Path) -> None:
    run = read_run(made(tmp_path))
    path = path_of_run(run, "srsf", RegretRequest())
    made(tmp_path, "policy=srsf", name="other")
    jcts = [fsum(record.jct or 0.0 for record in one.result.job_records) for one in (run, read_run(tmp_path / "other"))]
    assert path.takeovers[0].total_jct == jcts[0]
    assert sum(step.gain for step in path.steps) == pytest.approx(jcts[0] - jcts[1], rel=1e-9)
    assert jcts[0] != jcts[1]
    coarse = path_of_run(run, "srsf", RegretRequest(sample=2))
    assert len(coarse.steps) == 2
    assert sum(step.gain for step in coarse.steps) == pytest.approx(jcts[0] - jcts[1], rel=1e-9)


def test_a_fork_is_compared_from_its_time_on(tmp_path: Path) -> None:
    made(tmp_path)
    assert main(["whatif", str(tmp_path / "run"), "--at", "30min", "policy=las", "-o", str(tmp_path / "fork")]) == 0
    fork = read_run(tmp_path / "fork" / "otherwise")
    regrets = regrets_of_run(fork, "srsf", RegretRequest())
    assert regrets.own_policy == "LeastAttainedService"
    assert regrets.rounds[0].time >= 1800
    with pytest.raises(InvalidInputError, match="is a fork, and a path begins with the first decision"):
        path_of_run(fork, "srsf", RegretRequest())


def test_a_policy_with_the_settings_of_the_run_is_its_own(tmp_path: Path) -> None:
    """Themis draws jobs and remembers, so that a new Themis decides otherwise."""
    run = read_run(made(tmp_path, "policy=themis", "policy.lease=600"))
    for name in ("themis(lease=600)", "themis(lease=10min)"):
        regrets = regrets_of_run(run, name, RegretRequest())
        assert {regret.differences for regret in regrets.rounds} == {()}


def test_other_processes_give_the_same_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a class in a file of the user, and with reasons of both policies."""
    monkeypatch.chdir(tmp_path)
    Path("shortest.py").write_text("from polluxsim.policies.ordered.classic import Srsf as Shortest\n")
    run = read_run(made(tmp_path))
    alone = regrets_of_run(run, "shortest.py:Shortest", RegretRequest())
    path = path_of_run(run, "shortest.py:Shortest", RegretRequest())
    assert any(regret.reasons[1] for regret in alone.rounds)
    for file in (tmp_path / "run").glob("*.jsonl"):
        file.unlink()
    monkeypatch.setattr(regret_of_runs, "WORTH_PROCESSES", 0.0)
    assert regrets_of_run(run, "shortest.py:Shortest", RegretRequest(), processes=2) == alone
    assert path_of_run(run, "shortest.py:Shortest", RegretRequest(), processes=2) == path
