"""Decisions that cannot be: each is told in one line, with the policy, the job, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from sys import exit as end_the_program
from typing import Any

import numpy as np
import pytest
from drawn import PROFILES, begun, draws, ended, told
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidAllocationError, PolicyError, PolluxSimError
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.run_facts import start_delay
from polluxsim.models.profile import ProfileRangeError, StepTime
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import Change, ClusterView, Decision, Reason, ReasonKind, Traits
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Result
from polluxsim.records.storage import read_run, write_run
from polluxsim.workloads.job import Job

CLUSTER = Cluster.uniform(2, 4)
JOBS = toy_workload(toy_job("a"), toy_job("b", gpus=2, min_replicas=2, max_replicas=3), Job.rigid("r", 0.0, 2, 100.0))


@dataclass
class Says:
    """Answers what it was told to."""

    answer: Callable[[ClusterView], object]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Any:
        return self.answer(view)


def run_of(answer: Callable[[ClusterView], object], cluster: Cluster = CLUSTER) -> Result:
    return simulate(JOBS, PROFILES, cluster, Says(answer))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"others_keep": 1}, "others_keep=1, must be True or False"),
        ({"outdated_by": None}, r"outdated_by=None, must be Change\.ARRIVAL"),
        ({"outdated_by": 3}, "outdated_by=3, must be Change"),
        ({"explain": "because"}, "explain='because', must be a function"),
        ({"fitness": "high"}, "fitness='high', must be a finite number, or None"),
        ({"fitness": True}, "fitness=True, must be a finite number"),
        ({"fitness": inf}, "fitness=inf, must be a finite number"),
        ({"upper_bound": 0}, "upper_bound=0, must be > 0"),
        ({"upper_bound": -1.0}, "upper_bound=-1.0, must be > 0"),
        ({"upper_bound": nan}, "upper_bound=nan, must be a finite number"),
        ({"upper_bound": 1.0, "fitness": 1.1}, r"upper_bound=1\.0, must be no less than the fitness, 1\.1"),
        ({"fitness": 10**400}, "fitness=1000.*, must be a finite number"),
        ({"valid_until": None}, r"valid_until=None, must be a time \[s\]"),
        ({"valid_until": nan}, "valid_until=nan, must be a time"),
        ({"valid_until": True}, "valid_until=True, must be a time"),
        ({"valid_until": "noon"}, "valid_until='noon', must be a time"),
        ({"num_nodes": 1}, "asked for 1 nodes, but their number cannot change"),
        ({"allocation": None}, "allocation=None, must be a mapping"),
        ({"shared": 3}, "shared=3, must be a mapping of jobs to GPUs by number"),
        ({"shared": {None: ((0, 0),)}}, "gave GPUs to job None, which is not active"),
        ({"shared": {"x": ((0, 0),)}}, "gave GPUs to job 'x', which is not active"),
        ({"shared": {"a": ((0, 0),)}, "allocation": {"a": ((0, 1),)}}, "job 'a' in allocation and in shared"),
        ({"hosts": None}, "hosts=None, must be a mapping of jobs to CPUs and memory"),
        ({"rejected": "a"}, "rejected='a', must be names of jobs"),
        ({"rejected": 3}, "rejected=3, must be names of jobs"),
        ({"rejected": ("x",)}, "rejected job 'x', which is not active"),
        ({"rejected": (None,)}, "rejected job None, which is not active"),
        ({"rejected": ("a",), "allocation": {"a": ((0, 1),)}}, "rejected job 'a', which must not hold GPUs"),
    ],
)
def test_a_part_of_a_decision_that_cannot_be(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidAllocationError, match=f"^policy Says .*{message}"):
        run_of(lambda view: replace(Decision({}), **parts))


@pytest.mark.parametrize("number", [0, 3, 1.0, True, "1"])
def test_a_number_of_nodes_that_cannot_be(number: object) -> None:
    with pytest.raises(InvalidAllocationError, match=r"policy Says asked for .* nodes, must be 1 to 2"):
        run_of(lambda view: Decision({}, num_nodes=number), Cluster.elastic(2, 1, 4, 0.0, 0.0))


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        ({"b": ((0, 4),)}, "gave job 'b' 4 GPUs, must be at most 3"),
        ({"b": ((1, 1),)}, "gave job 'b' 1 GPUs, but its min_replicas is 2: give it none, or 2 or more"),
        ({"r": ((0, 3),)}, "gave job 'r' 3 GPUs, must be at most 2"),
        ({"r": ((0, 1),)}, "gave job 'r' .*rigid job has 1 GPUs, must have 2"),
        ({"a": ((0, True),)}, "gave job 'a' .*True.*, must be pairs"),
        ({"a": ((0, np.True_),)}, "gave job 'a' .*, must be pairs"),
        ({"a": ((0, 1), (0, 1))}, "named a node twice for job 'a'"),
        ({"a": ((-1, 1),)}, "gave job 'a' node -1, must be 0 to 1"),
        ({"a": ((0, -1),)}, "gave job 'a' -1 GPUs of node 0, must be 1 or more"),
        ({"a": ((0, 1), (1, 0))}, "gave job 'a' 0 GPUs of node 1"),
        ({"a": ((10**30, 1),)}, "gave job 'a' node 1000"),
        ({"a": ((0, 10**30),)}, "over-allocated node 0"),
        ({None: ((0, 1),)}, "gave GPUs to job None, which is not active"),
        ({"a": 5}, "gave job 'a' 5, must be pairs"),
    ],
)
def test_a_placement_that_cannot_be(allocation: dict[Any, Any], message: str) -> None:
    with pytest.raises(InvalidAllocationError, match=f"^policy Says {message}"):
        run_of(lambda view: allocation)


def test_gpus_that_a_profile_knows_nothing_about() -> None:
    class OneGpu(ToyProfile):
        def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
            if sum(gpus_by_node) > 1:
                raise ProfileRangeError(f"measured on 1 GPU, not {sum(gpus_by_node)}")
            return super().step_time(gpus_by_node, atomic_batch_size)

    with pytest.raises(
        InvalidAllocationError, match=r"policy Says gave job 'a' \(\(0, 2\),\): measured on 1 GPU, not 2"
    ):
        simulate(toy_workload(toy_job("a")), {"toy": OneGpu()}, CLUSTER, Says(lambda view: {"a": ((0, 2),)}))


class Faulty(Mapping[str, object]):
    """A mapping whose items cannot be had."""

    def __getitem__(self, key: str) -> object:
        raise ZeroDivisionError("of items")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def _faulty_pairs() -> Iterator[tuple[int, int]]:
    yield (0, 1)
    raise ZeroDivisionError("of pairs")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda view: Faulty(), "ZeroDivisionError: of items"),
        (lambda view: {"a": _faulty_pairs()}, "ZeroDivisionError: of pairs"),
        (lambda view: view.nothing, "AttributeError: .*nothing'; it has changes, "),
        (lambda view: view.job, "AttributeError: .*; did you mean jobs"),
        (lambda view: view.jobs[0].submitted, "AttributeError: .*; did you mean submit_time"),
        (lambda view: view.jobs[0].oracle.remaining, "AttributeError: .*; did you mean remaining_time"),
        (lambda view: view.jobs[0].job_id.nothing, "AttributeError: 'str' object has no attribute 'nothing'$"),
        (lambda view: setattr(view, "time", 0.0), "FrozenInstanceError: cannot assign to field 'time'"),
        (lambda view: end_the_program(0), "SystemExit: 0"),
        (lambda view: Decision({}, explain=lambda jobs: end_the_program(0)), "SystemExit: 0"),
        (lambda view: Decision({}, explain=lambda jobs: 1 / 0), "ZeroDivisionError: division by zero"),
    ],
)
def test_whatever_a_policy_raises_is_told_with_its_line(answer: Callable[[ClusterView], object], message: str) -> None:
    where = r"failed in the round at 60 s, .*test_decisions\.py, line \d+"
    with pytest.raises(PolicyError, match=f"^policy Says {where}: {message}"):
        run_of(answer)


def test_ctrl_c_in_a_compiled_kernel_is_no_fault_of_the_policy() -> None:
    def interrupted(view: ClusterView) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        run_of(interrupted)


@pytest.mark.parametrize(
    ("reasons", "message"),
    [
        ("because", "explained itself by 'because', must be a mapping"),
        ({"nobody": Reason(ReasonKind("none"), {})}, "explained job 'nobody', which it was not asked about"),
        ({"a": "because"}, "explained job 'a' by 'because', must be a Reason"),
        ({"a": Reason(ReasonKind("none"), {"x": nan})}, "explained job 'a' by Reason"),
        (
            {"a": Reason(3, {})},
            r"explained job 'a' by the kind 3, must be a ReasonKind, like polluxsim.ReasonKind\('3'\)",
        ),
        ({"a": Reason(ReasonKind("none"), None)}, "explained job 'a' by Reason"),
    ],
)
def test_an_explanation_that_cannot_be(reasons: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        run_of(lambda view: Decision({}, explain=lambda jobs: reasons))


def test_promises_do_not_count_when_traits_are_compared() -> None:
    """A fork between policies whose traits are equal keeps the agents of the jobs."""
    assert Traits(never_preempts=True) == Traits(slices_time=True) == Traits()
    assert hash(Traits(never_preempts=True)) == hash(Traits())


def test_what_a_policy_is_it_says_by_its_traits() -> None:
    class Old(Fifo):
        adaptive = True

    with pytest.raises(
        PolicyError, match=r"policy Old has an attribute adaptive, .* write traits = polluxsim.Traits\(adaptive=True"
    ):
        simulate(JOBS, PROFILES, CLUSTER, Old())

    class Wrong(Fifo):
        traits = "adaptive"

    with pytest.raises(PolicyError, match=r"policy Wrong: traits are 'adaptive'; they must be a .*Traits"):
        traits_of(Wrong())


@given(st.integers(0, 2**31))
@draws(20)
def test_the_same_nodes_in_another_order_are_no_restart(seed: int) -> None:
    jobs = toy_workload(toy_job("a", gpus=4), toy_job("b", 100.0, gpus=2))

    class Shuffling(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            spread = {"a": [(0, 1), (1, 2), (2, 1)], "b": [(3, 1), (1, 1)]}
            placements = {job.job_id: tuple(map(tuple, rng.permutation(spread[job.job_id]))) for job in view.jobs}
            return Decision(placements)

    policy = Shuffling()
    result = ended(begun(jobs, Cluster.uniform(4, 3), policy, seed=seed), policy)
    assert [job.num_restarts for job in result.job_records] == [0, 0]
    assert len(result.allocation_records) == 4
    assert [job.completion_time for job in result.job_records] == [165.0, 300.0]


def test_who_is_left_out_keeps_its_gpus_only_where_the_decision_says_so() -> None:
    jobs = toy_workload(toy_job("a"), toy_job("b", 100.0))
    only_new: Callable[[ClusterView], dict[str, Any]] = lambda view: {  # noqa: E731
        job.job_id: ((0, 1),) if job.job_id == "a" else ((1, 1),) for job in view.changes.arrived
    }
    keeping = Says(lambda view: Decision(only_new(view), others_keep=True))
    whole = Says(lambda view: {job.job_id: ((int(job.job_id == "b"), 1),) for job in view.jobs})
    kept = ended(begun(jobs, CLUSTER, keeping), keeping)
    assert told(kept) == told(ended(begun(jobs, CLUSTER, whole), whole))
    dropping = Says(lambda view: Decision(only_new(view)))
    dropped = ended(begun(jobs, CLUSTER, dropping), dropping)
    assert next((change.job, change.time) for change in dropped.allocation_records if not change.gpus) == ("a", 120.0)
    takes_back = Says(lambda view: Decision({"a": ()} if view.time == 120.0 else only_new(view), others_keep=True))
    taken = ended(begun(jobs, CLUSTER, takes_back), takes_back)
    assert taken.allocation_records[1].time == 120.0
    assert taken.allocation_records[1].gpus == ()


def test_whoever_keeps_its_gpus_keeps_them_to_itself() -> None:
    def answer(view: ClusterView) -> Decision:
        return Decision({"a": ((0, 1),)} if view.time < 100 else {"b": ((0, 4),)}, others_keep=True)

    jobs = toy_workload(toy_job("a"), toy_job("b", gpus=4))
    with pytest.raises(InvalidAllocationError, match="over-allocated node 0: with job 'b' jobs would hold 5 GPUs"):
        simulate(jobs, PROFILES, CLUSTER, Says(answer))


def test_a_decision_names_what_a_start_costs(tmp_path: Path) -> None:
    """The job starts at 60 s, moves at 120 s, and moves back at 180 s. Only the move at 120 s costs what it names."""

    def answer(view: ClusterView) -> Decision:
        node = int(view.time == 120.0)
        return Decision({"a": ((node, 1),)}, delays={"a": 2.5} if node else {})

    result = simulate(toy_workload(toy_job("a")), PROFILES, CLUSTER, Says(answer))
    (job,) = result.job_records
    assert (job.num_restarts, job.restart_time) == (2, 30.0 + 2.5 + 30.0)
    write_run(tmp_path, result, {})
    read = read_run(tmp_path)
    assert [tuple(start) for start in read.result.start_records] == [(120.0, "a", 2.5)]
    delay = start_delay(replace(read, info={"config": {"engine": {"restart_delay": 30.0}}}))
    assert [delay("a", "toy", (0,), time) for time in (60.0, 120.0)] == [30.0, 2.5]


@pytest.mark.parametrize(
    ("delays", "message"),
    [
        ([1.0], r"delays=\[1.0\], must be a mapping of jobs to seconds"),
        ({"a": -1.0}, "-1.0, must be a number of seconds from 0 to 1e\\+06"),
        ({"a": nan}, "nan, must be a number of seconds from 0 to 1e\\+06"),
        ({"b": 1.0}, "named a delay of job 'b', which is not active"),
    ],
)
def test_a_delay_that_cannot_be_is_refused(delays: Any, message: str) -> None:
    with pytest.raises(InvalidAllocationError, match=message):
        simulate(toy_workload(toy_job("a")), PROFILES, CLUSTER, Says(lambda view: Decision({}, delays=delays)))


values = st.sampled_from(
    [None, True, False, 0, 1, 2, -1, 3.5, nan, inf, -inf, 10**30, "", "a", "b", b"a", (), [], {}, object(), np.int64(1),
     np.float32(2.5), np.True_, Change.ANY, Change.EPOCH, ((0, 1),), [[0, 1]], [(1, 2), (0, 1)], np.array([[0, 1]]),
     ((0, np.int8(1)),), (("0", 1),), ((0, 1, 2),), ((None, None),), {0: 1}, Faulty(), int,
     Reason(ReasonKind("none"), {})]
)  # fmt: skip
keys = st.sampled_from(["a", "b", "r", "nobody", "", None, 3, ("a",)])
parts = ["others_keep", "num_nodes", "fitness", "upper_bound", "valid_until", "outdated_by", "explain", "delays"]
answers = (
    values
    | st.dictionaries(keys, values, max_size=3)
    | st.builds(
        lambda allocation, given: Decision(allocation, **given),
        st.dictionaries(keys, values, max_size=3) | values,
        st.dictionaries(st.sampled_from(parts), values, max_size=2),
    )
)


@given(st.lists(answers, min_size=1, max_size=4), st.booleans())
@draws(200)
def test_whatever_is_decided_is_carried_out_or_our_error(drawn: list[object], elastic: bool) -> None:
    """And after an error, the run goes on as if nothing had been said."""
    cluster = Cluster.elastic(2, 1, 4, 60.0, 0.0) if elastic else CLUSTER
    policy = Fifo()
    run = begun(JOBS, cluster, policy)
    for answer in drawn:
        if run.view is None and run.advance() is None:
            break
        before = (run.time, run.allocation, run.waiting)
        try:
            run.commit(answer)
        except PolluxSimError as error:
            assert str(error).startswith(("policy Fifo ", "the policy "))
            assert "\n" not in str(error)
            assert (run.time, run.allocation, run.waiting) == before
            assert run.view is not None
    assert ended(run, policy).end_time > 0
