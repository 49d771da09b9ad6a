"""Clusters of several GPU types: who may run where, how fast, at what price; and what is refused, in a line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.agent.adaptive import AdaptiveAgent, AgentByType, OnType
from polluxsim.agent.agent import Observation
from polluxsim.common.errors import InvalidAllocationError, InvalidConfigError, InvalidInputError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.hardware.placements import num_replicas
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.workloads.workload import Job, Workload, read_workload, write_workload

NAMES = ("t4", "v100", "a100-40")
TWO = Cluster.of_groups([[2, 4, "t4"], [1, 8, "a100-40"]])
DELAY = EngineSettings().restart_delay


@dataclass(frozen=True)
class TypedToy(ToyProfile):
    """A toy on t4 and, four times as fast and with twice the memory, on a100-40."""

    @property
    def by_type(self) -> dict[str, ToyProfile]:
        base = ToyProfile(self.name, self.seconds, self.epochs, max_atomic_batch_size=320)
        return {"t4": base, "a100-40": replace(base, seconds=self.seconds / 4, max_atomic_batch_size=640)}


class Fixed:
    """Gives the first job what it was told to, once and for ever."""

    def __init__(self, *placement: tuple[int, int]) -> None:
        self.placement = placement

    def allocate(self, view, rng):
        return {view.jobs[0].job_id: self.placement}


@st.composite
def loads(draw):
    kinds = [draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.just(name))) for name in NAMES]
    cluster = Cluster.of_groups(kinds)
    jobs = []
    for number in range(draw(st.integers(1, 8))):
        speeds = tuple((name, draw(st.sampled_from((0.5, 1.0, 4.0)))) for name in draw(st.permutations(NAMES))[:2])
        gpus = draw(st.integers(1, min(nodes * each for nodes, each, _ in kinds)))
        options = draw(st.sampled_from(({}, {"type_speeds": speeds}, {"gpu_types": (speeds[0][0],)})))
        jobs.append(Job.rigid(f"j{number}", draw(st.floats(0, 500)), gpus, draw(st.floats(1, 999)), **options))
    return Workload(tuple(jobs)), cluster


@settings(deadline=None, max_examples=30)
@given(loads(), st.sampled_from((Fifo(), Fifo(backfill=True), Srtf())))
def test_gangs_stay_on_one_type_that_they_can_use_and_run_at_its_speed(load, policy):
    workload, cluster = load
    result = simulate(workload, {}, cluster, policy)
    jobs = {job.job_id: job for job in workload.jobs}
    used = {name: {} for name in jobs}
    for record in result.allocation_records:
        for gpu in {cluster.node_types[node].name for node in record.nodes}:
            used[record.job][record.time] = gpu
        assert len({cluster.node_types[node] for node in record.nodes}) <= 1
    for record in result.job_records:
        job, types = jobs[record.job], set(used[record.job].values())
        speeds = dict(job.type_speeds) or dict.fromkeys(job.gpu_types or NAMES, 1.0)
        assert types <= speeds.keys()
        if len(used[record.job]) == 1:
            assert record.run_time == pytest.approx(DELAY + job.duration / speeds[types.pop()])
    last = result.round_records[-1]
    assert last.cost == pytest.approx((last.time - result.start_time) / 3600 * cluster.gpu_price)


def test_a_cluster_of_one_named_type_is_as_one_that_says_nothing():
    jobs = toy_workload(*(toy_job(f"j{n}", 30.0 * n, gpus=1 + n % 3) for n in range(6)))
    plain, named = (simulate(jobs, {"toy": TypedToy()}, Cluster.of_groups([g]), Srtf()) for g in ([2, 4], [2, 4, "t4"]))
    assert named.job_records == plain.job_records
    assert named.allocation_records == plain.allocation_records


def test_a_job_trains_at_the_speed_of_its_type_with_what_fits_there():
    job = replace(toy_job("a", gpus=1), batch_size=640)
    slow, fast = (
        simulate(Workload((job,)), {"toy": TypedToy()}, TWO, Fixed((node, 1))).job_records[0] for node in (0, 2)
    )
    # A batch of 640 takes two passes of 320 on t4, one of which synchronises; on a100-40 too, as one GPU takes two.
    assert fast.run_time - DELAY == pytest.approx((slow.run_time - DELAY) / 4)


def test_an_untried_type_is_as_fast_as_speeds_on_one_gpu_say_until_it_is_tried():
    profile = TypedToy()
    agents = {name: AdaptiveAgent(each.application) for name, each in profile.by_type.items()}
    speeds = {"t4": 10.0, "a100-40": 80.0}
    agent = AgentByType({name: OnType(each, speeds[name], 4) for name, each in agents.items()})
    assert agent.goodput_on("a100-40") is None
    seen = GradientStatistics(sqr=1.0, var=50.0)
    agent.observe(Observation(1, 1, 10, profile.step_time((1,), 10), seen, "t4"))
    known, unknown = agent.goodput_on("t4"), agent.goodput_on("a100-40")
    assert unknown.best(2, 2)[0] == pytest.approx(8 * known.best(1, 2)[0])
    later = GradientStatistics(sqr=1.0, var=90.0)
    agent.observe(Observation(1, 2, 10, profile.by_type["a100-40"].step_time((2,), 10), later, "a100-40"))
    assert agent.goodput_on("a100-40") is agents["a100-40"].goodput is agent.goodput
    assert agent.goodput_on("t4").statistics == later
    assert agent.max_replicas == 4


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (Job.rigid("a", 0.0, 1, 9.0, gpu_types=("t5",)), "fits no GPU type of the cluster: t4: gpu_types are t5; a100"),
        (Job.rigid("a", 0.0, 9, 9.0), "t4: num_replicas is 9, must be at most 8, the number of GPUs"),
        (
            Job.rigid("a", 0.0, 1, 9.0, type_speeds=(("t4", 0.0),)),
            "t4: the job does not fit in memory; a100-40: the job has no speed",
        ),
        (toy_job("a", gpus=1), "t4: toy has no profile for this type, only for clusters of one type"),
    ],
)
def test_a_job_that_fits_no_type_is_one_line(job, words):
    with pytest.raises(InvalidInputError, match=re.escape(words)):
        simulate(Workload((job,)), {"toy": ToyProfile()}, TWO, Fifo())


@pytest.mark.parametrize(
    ("options", "placement", "words"),
    [
        ({}, ((0, 1), (2, 1)), "gave job 'a' GPUs of t4 and a100-40: ((0, 1), (2, 1)), must be of one type"),
        ({"gpu_types": ("t4",)}, ((2, 2),), "GPUs of a100-40: ((2, 2),), must be of t4"),
        ({"type_speeds": (("t4", 1.0),)}, ((2, 2),), "rigid has no profile for a100-40, but for t4"),
        ({"type_speeds": (("t4", 1.0), ("a100-40", 0.0))}, ((2, 2),), "does not fit in memory"),
    ],
)
def test_a_placement_on_wrong_types_is_one_line(options, placement, words):
    with pytest.raises(InvalidAllocationError, match=re.escape(words)):
        simulate(Workload((Job.rigid("a", 0.0, 2, 9.0, **options),)), {}, TWO, Fixed(*placement))


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ([1, 4, "a100"], "a GPU type of the cluster is 'a100', must be one of k80"),
        ([1, 4, {"memory": 3}], "must be a name and numbers"),
        ([1, 4, {"name": "x", "price": -1}], "must be a name and numbers"),
        ({"nodes": 1, "gpu": 4}, r"must be \[nodes, GPUs per node\]"),
        ([1, 4, "t4", 2], r"must be \[nodes, GPUs per node\]"),
    ],
)
def test_a_wrong_group_of_nodes_is_one_line(group, words):
    with pytest.raises(InvalidConfigError, match=words):
        Cluster.of_groups([group])
    with pytest.raises(InvalidConfigError, match="types of 1 nodes, must state those of all 2"):
        Cluster.of_groups([[1, 4, "t4"], [1, 4]])


@pytest.mark.parametrize("group", [[1, 4, None], {"nodes": 1, "gpus": 4, "type": None}])
def test_a_type_of_none_is_not_stated(group):
    assert Cluster.of_groups([group]) == Cluster.of_groups([[1, 4]])


def test_groups_come_back_and_name_their_types():
    mine = {"name": "mine", "memory": 24, "price": 0.5}
    cluster = Cluster.of_groups([[2, 4, "t4"], {"nodes": 1, "gpus": 8, "type": mine}, [1, 2, "t4"]])
    assert Cluster.of_groups(cluster.groups) == cluster
    assert {name: sum(sizes) for name, sizes in cluster.by_type.items()} == {"t4": 10, "mine": 8}
    assert cluster.gpu_price == pytest.approx(10 * GPU_TYPES["t4"].price + 4.0)


def test_speeds_by_type_come_back_from_a_file(tmp_path):
    workload = Workload(
        (Job.rigid("a", 0.0, num_replicas(((0, 2),)), 9.0, type_speeds=(("a100-40", 2.5), ("t4", 0.0))),)
    )
    write_workload(workload, tmp_path / "jobs.csv")
    assert read_workload(tmp_path / "jobs.csv").jobs[0].type_speeds == workload.jobs[0].type_speeds
    (tmp_path / "jobs.csv").write_text("name,time,num_replicas,duration,type_speeds\na,0,1,9,t4\n")
    with pytest.raises(InvalidInputError, match="TYPE:speed"):
        read_workload(tmp_path / "jobs.csv")


@pytest.mark.parametrize(("node", "delay"), [(0, 70.0), (2, 20.0)])
def test_a_start_costs_what_is_known_of_the_application_on_the_type(node, delay):
    rules = EngineSettings(restart_delay=5.0, restart_delays={"toy": {"t4": 70.0, "a100-40": 20.0}})
    profiles = {"toy": TypedToy(epochs=(100.0,)), "other": TypedToy("other", 1.0, (100.0,))}
    load, policy = toy_workload(toy_job("a")), Fixed((node, 4))
    (job,) = simulate(load, profiles, TWO, policy, settings=rules).job_records
    (plain,) = simulate(load, profiles, TWO, policy, settings=EngineSettings(restart_delay=5.0)).job_records
    assert job.completion_time == pytest.approx(plain.completion_time + delay - 5.0)
    assert (job.restart_time, plain.restart_time) == (delay, 5.0)
    other = toy_workload(replace(toy_job("a"), application="other"))
    assert simulate(other, profiles, TWO, policy, settings=rules).job_records[0].restart_time == 5.0


@pytest.mark.parametrize("policy", [Fifo(), Pollux()], ids=["fixed batch", "adaptive"])
@pytest.mark.parametrize("profile", [ToyProfile(), TypedToy()], ids=["without types", "by type"])
def test_a_start_costs_the_same_alone_where_a_profile_knows_no_types(profile, policy):
    """What the GPUs are is the cluster's to say: by the run's own clock, and by that of fairness."""
    rules = EngineSettings(restart_delays={"toy": {"t4": 100.0}})
    cluster = Cluster.of_groups([[1, 1, "t4"]])
    (job,) = simulate(toy_workload(toy_job("a")), {"toy": profile}, cluster, policy, settings=rules).job_records
    assert job.restart_time == 100.0
    assert job.finish_time_fairness == pytest.approx(1.0)


class Recording(Fifo):
    """Remembers what restarts it was told to reckon with."""

    def allocate(self, view, rng):
        self.seen = getattr(self, "seen", set()) | {(bool(job.placement), view.delay_of(job)) for job in view.jobs}
        return super().allocate(view, rng)


def test_a_policy_knows_what_another_start_costs():
    rules = EngineSettings(restart_delays={"toy": {"t4": 70.0, "a100-40": 20.0}})
    policy = Recording()
    jobs = toy_workload(*(toy_job(name, 40.0 * index, 8) for index, name in enumerate("abc")))
    simulate(jobs, {"toy": TypedToy(epochs=(800.0, 1600.0))}, TWO, policy, settings=rules)
    assert policy.seen == {(False, 70.0), (True, 70.0), (True, 20.0)}


@pytest.mark.parametrize(
    ("delays", "words"),
    [
        ({"toi": 3.0}, "engine.restart_delays names application 'toi', must be one of toy; did you mean toy?"),
        ({"toy": -1.0}, "engine.restart_delays.toy is -1, must be a number from 0 to 1e+06"),
        (
            {"toy": {"t4": "long"}},
            "engine.restart_delays.toy.t4 is 'long', must be a number of seconds, or a duration with a unit like 90s, "
            "15min, 3h or 2d",
        ),
        (3.0, "engine.restart_delays is 3, must be delays by application"),
    ],
)
def test_wrong_restart_delays(delays, words):
    with pytest.raises(InvalidConfigError, match=f"^{re.escape(words)}$"):
        simulate(
            toy_workload(toy_job("a")), {"toy": TypedToy()}, TWO, Fifo(), settings=EngineSettings(restart_delays=delays)
        )


def test_a_type_with_two_sets_of_figures_is_refused() -> None:
    cheap = {"name": "mine", "memory": 16.0, "price": 1.0}
    assert Cluster.of_groups([[1, 4, cheap], [1, 8, cheap]]).types["mine"].price == 1.0
    with pytest.raises(InvalidConfigError, match=r"GPU type 'mine' has two sets of figures, .*; rename one type"):
        Cluster.of_groups([[1, 4, cheap], [1, 4, {**cheap, "price": 2.0}]])
