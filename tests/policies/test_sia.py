"""Sia: its programme is optimal, its placements keep to the nodes, its reasons say which configuration lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

import polluxsim
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.goodput import GoodputModel, ScaledGoodput
from polluxsim.models.profile import Application
from polluxsim.models.throughput import ThroughputParams
from polluxsim.policies.contract.view import ClusterView, Decision, JobSnapshot, Reason
from polluxsim.policies.pollux.one_type import LikeNodes, cut_to_one_type
from polluxsim.policies.sia.configurations import GpuConfiguration, Matrix, _part_or_whole, configurations, place
from polluxsim.policies.sia.policy import Programme, Sia, _reason
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.reason_kinds import AT_LIMIT
from polluxsim.records.results import ReasonRecord, ReasonText
from polluxsim.workloads.workload import Job, Workload

CLUSTER = Cluster.of_groups([[2, 4, "t4"], [2, 8, "a100-40"]])


def view(cluster: Cluster) -> ClusterView:
    return ClusterView(0.0, cluster.gpus_per_node, (), node_types=cluster.node_types)


def test_configurations_are_parts_of_a_node_and_whole_nodes():
    known = configurations(view(CLUSTER), gangs=(3,))
    assert [each[1:] for each in known if each.gpu_type == "t4"] == [(1, 1), (1, 2), (1, 4), (2, 8), (1, 3)]
    assert [each[1:] for each in known if each.gpu_type == "a100-40"] == [
        (1, 1),
        (1, 2),
        (1, 4),
        (1, 8),
        (2, 16),
        (1, 3),
    ]


def test_a_batch_size_that_changed_is_worth_what_it_is_anew() -> None:
    """An agent by a rule takes another, and its job's model of times stays the same."""
    known = configurations(view(Cluster.uniform(2, 4)), gangs=())
    params = ThroughputParams(0.1, 0.01, 0.3, 0.02, 0.1, 0.01, 1.5)
    tables, rows = Matrix(guesses=True), []
    for size in (128, 1024):
        application = Application("a", 128, 2048, 32, 256, 1, fixed_batch_size=size)
        model = GoodputModel(application, params, GradientStatistics(1.0, 900.0))
        oracle = SimpleNamespace(application=application)
        job = SimpleNamespace(
            job_id="j",
            goodputs={known[0].gpu_type: model},
            oracle=oracle,
            num_replicas=1,
            min_replicas=1,
            gang_size=None,
            max_replicas=8,
        )
        rows.append(tables.fill([job], known))
        np.testing.assert_array_equal(rows[-1], Matrix(guesses=True).fill([job], known))
    assert (rows[0] < rows[1]).any()


def test_worths_are_goodputs_over_the_least_of_them_and_guesses_are_scaled() -> None:
    """Nodes that a guess counts are those of the type that was tried."""
    t4, a100 = CLUSTER.node_types.types
    model = GoodputModel(
        Application("a", 128, 8192, 32, 256, 1), ThroughputParams(0.1, 0.01, 0.3, 0.2, 0.1, 0.05, 1.5),
        GradientStatistics(1.0, 900.0),
    )  # fmt: skip
    goodputs = {t4: model, a100: ScaledGoodput(model, 2.5, 4, model.application)}
    job = SimpleNamespace(
        job_id="j", goodputs=goodputs, oracle=SimpleNamespace(application=model.application),
        num_replicas=1, min_replicas=1, gang_size=None, max_replicas=16,
    )  # fmt: skip
    known = configurations(view(CLUSTER), gangs=())
    (row,) = Matrix(guesses=True).fill([job], known)
    best = np.array([goodputs[each.gpu_type].best(each.nodes, each.gpus)[0] for each in known])
    np.testing.assert_allclose(row, best / best.min())
    assert {each.gpus for each in known if each.gpu_type == a100} >= {4, 8}


@pytest.mark.parametrize("power", [-0.5, -2.0, 0.5])
def test_the_programme_costs_no_more_than_the_best_of_all_choices(power):
    rng = np.random.default_rng(7)
    for _ in range(67):
        jobs, capacities = int(rng.integers(1, 5)), rng.integers(1, 9, 2)
        gpus, types = np.array([1, 2, 4, 1, 2, 8]), np.array([0, 0, 0, 1, 1, 1])
        worths = np.where(rng.random((jobs, 6)) < 0.7, np.exp(2 * rng.random((jobs, 6))), np.nan)
        kept = np.full(jobs, -1)
        if gpus[place_ := int(rng.integers(6))] <= capacities[types[place_]] and not np.isnan(worths[0, place_]):
            kept[0] = place_
        programme = Programme(worths, gpus, types, capacities, kept, power, 1.1)
        chosen, bound = programme.solve()
        costs = np.nan_to_num(programme.costs, nan=1e9)
        choices = np.array(list(product(range(-1, 6), repeat=jobs)))
        used = np.stack([np.where((choices >= 0) & (types[choices] == k), gpus[choices], 0).sum(1) for k in (0, 1)], 1)
        allowed = (used <= capacities).all(1) & ((kept < 0) | (choices == kept)).all(1)
        total = np.where(choices >= 0, costs[np.arange(jobs), choices], 0.0).sum(1) + 1.1 * jobs
        assert programme.value(chosen) == pytest.approx(total[allowed].min(), abs=1e-9)
        assert bound <= programme.value(chosen) + 1e-6


def test_the_optimum_of_every_recorded_round_is_met(data_folder):
    gpus, types = (
        np.array([1, 2, 4, 8, 12, 16, 20, 24, 1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 24]),
        np.repeat([0, 1, 2], [8, 5, 6]),
    )
    rounds = json.loads((data_folder / "hetero" / "sia_rounds.json").read_text())["rounds"]
    for recorded in rounds:
        worths = np.array(recorded["matrix"])
        worths[worths == 1e-4] = np.nan
        for row, factor, now in zip(worths, recorded["restart_factors"], recorded["now"], strict=True):
            if now is not None:
                row[np.arange(len(row)) != now] *= factor
        kept = np.array(
            [now if job in recorded["keep"] else -1 for job, now in zip(recorded["jobs"], recorded["now"], strict=True)]
        )
        programme = Programme(worths, gpus, types, np.array([24, 16, 24]), kept, -0.5, 1.1)
        assert programme.value(programme.solve()[0]) == pytest.approx(recorded["value"], abs=1e-6)
    assert len(rounds) == 76


@given(st.lists(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 8), (3, 12)]), max_size=12), st.data())
def test_powers_of_two_and_whole_nodes_always_fit_and_stay_where_they_can(kinds, data):
    wanted, left = {}, 16
    for number, (nodes, gpus) in enumerate(kinds):
        if gpus <= left:
            wanted[f"j{number}"], left = (nodes, gpus), left - gpus
    sizes = dict.fromkeys((3, 5, 6, 9), 4)
    first = place(sizes, wanted, {})
    stay = {job: first[job] for job in wanted if data.draw(st.booleans())}
    later = {job: wanted[job] for job in data.draw(st.permutations(list(wanted)))}
    again = place(sizes, later, stay)
    for found in (first, again):
        used = dict.fromkeys(sizes, 0)
        for job, placement in found.items():
            assert (len(placement), sum(gpus for _, gpus in placement)) == wanted[job]
            for node, gpus in placement:
                used[node] += gpus
        assert found.keys() == wanted.keys()
        assert max(used.values()) <= 4
    assert place(sizes, later, first) == first


@pytest.mark.parametrize("power", [1e4, -1e4])
def test_powers_that_are_no_numbers_have_the_largest_cost(power):
    worths = np.array([[1.0, 8.0, 0.1]])
    programme = Programme(worths, np.ones(3), np.zeros(3), np.array([3]), np.array([-1]), power, 1.1)
    expected = [1.0, 0.0, 3000.0] if power < 0 else [-1.0, -3000.0, 0.0]
    np.testing.assert_allclose(programme.costs[0] + 1.1, expected)


def test_gangs_of_odd_sizes_are_split_rather_than_left_out():
    assert place({0: 4, 1: 4}, {"a": (1, 3), "b": (1, 3), "c": (1, 2)}, {})["c"] == ((0, 1), (1, 1))


def test_rigid_jobs_get_the_types_on_which_they_are_fast():
    speeds = (("t4", 1.0), ("a100-40", 9.0)), (("t4", 1.0), ("a100-40", 1.5))
    jobs = [Job.rigid(f"{n}{i}", 0.0, 8, 600.0, type_speeds=speeds[n]) for n in (0, 1) for i in (0, 1)]
    result = simulate(Workload(tuple(jobs)), {}, CLUSTER, Sia())
    first = {record.job: record.nodes for record in reversed(result.allocation_records) if record.nodes}
    assert set(first["00"] + first["01"]) <= {2, 3}
    assert first["10"] == (0, 1)


def said_of(reason):
    """Return the sentence of a reason about job a."""
    record = ReasonRecord(0.0, "a", reason.kind.name, tuple(reason.numbers.items()), reason.others)
    return sentence(record, {reason.kind.name: ReasonText(reason.kind.sentence, reason.kind.units)})


def test_a_run_has_reasons_that_name_what_won(tmp_path):
    jobs = [f"{app}-{n},{60 * n},{app},1,{size}" for n, (app, size) in enumerate([("bert", 12), ("cifar10", 128)] * 4)]
    (tmp_path / "jobs.csv").write_text("\n".join(["name,time,application,num_replicas,batch_size", *jobs]))
    run = polluxsim.simulate(str(tmp_path / "jobs.csv"), policy="sia", cluster=CLUSTER)
    used = {CLUSTER.node_types[node].name for record in run.result.allocation_records for node in record.nodes}
    assert used == {"t4", "a100-40"}
    said = [sentence(record, run.result.reason_texts) for record in run.result.reason_records]
    assert any("it would lower the sum of" in words and "lowers it least per GPU" in words for words in said)
    assert not any("gives the reason" in words for words in said)
    for record in run.result.reason_records:
        figures = dict(record.numbers)
        is_better = record.kind in ("lost-configuration", "restart-not-worth")
        assert is_better == any(name.startswith("best ") for name in figures)
        assert figures.get("saving", 1.0) > 0.0
        assert "doubles" in figures or record.kind == "no-configuration"
    assert all(record.gap is None or -1e-9 <= record.gap <= 1e-3 for record in run.result.round_records)


def elastic_job(name):
    return SimpleNamespace(job_id=name, gang_size=None, min_replicas=None, max_replicas=2, speeds={"t4": 1.0})


def test_the_reason_of_a_waiting_job_names_the_worth_of_idle_gpus_after_a_restart():
    worths = np.array([[1.2, 1.3, 2.5, np.nan], [np.nan, np.nan, np.nan, 1.0]])
    factors = np.full_like(worths, 0.5)
    gpus, none = np.array([1, 2, 4, 3]), np.array([-1, -1])
    programme = Programme(
        worths * factors, gpus, np.zeros(4, int), np.array([5]), none, power=-0.5, waiting_cost=1.1, factors=factors
    )
    jobs = [elastic_job("a"), elastic_job("b")]
    known = [GpuConfiguration("t4", 1, int(each)) for each in gpus]
    found = _reason(programme, jobs, known, np.array([-1, 3]), 0)  # job b has 3 of the 5 GPUs
    assert (found.kind.name, found.others) == ("lost-configuration", ("b",))
    assert found.numbers["idle 2 t4"] == pytest.approx(1.3)
    words = said_of(found)
    assert "The job has no GPUs. With 4 t4, worth 1.25, it would lower the sum" in words
    assert "2 t4 would fit on idle GPUs and be worth 1.3, but a restart would leave only 0.50 of that" in words


def test_the_reason_of_a_running_job_names_the_worth_of_idle_gpus_after_a_restart():
    worths, factors = np.array([[1.2, 1.4, 2.5], [np.nan, 1.0, np.nan]]), np.array([[1.0, 0.5, 0.9], [1.0, 1.0, 1.0]])
    gpus, kept = np.array([1, 2, 4]), np.array([-1, -1])
    programme = Programme(
        worths * factors, gpus, np.zeros(3, int), np.array([5]), kept, power=-0.5, waiting_cost=1.1, factors=factors
    )
    known = [GpuConfiguration("t4", 1, int(each)) for each in gpus]
    jobs = [elastic_job("a"), elastic_job("b")]
    found = _reason(programme, jobs, known, np.array([0, 1]), 0)  # job a has 1 of the 5 GPUs, job b has 2
    assert (found.kind.name, found.others) == ("lost-configuration", ("b",))
    assert (found.numbers["idle 2 t4"], found.numbers["restart_factor"]) == (pytest.approx(1.4), 0.5)
    words = said_of(found)
    assert "a restart would leave only 0.50 of that, which lowers the sum no more than what the job has" in words


def test_a_job_for_which_a_restart_is_never_worth_it_waits_for_that_reason():
    worths, factors = np.array([[1.0, 1.2]]), np.full((1, 2), 0.5)
    zero = np.array([0, 0])
    programme = Programme(
        worths * factors, np.array([1, 2]), zero, np.array([4]), zero[:1] - 1, -0.5, 1.1, factors=factors
    )
    known = [GpuConfiguration("t4", 1, 1), GpuConfiguration("t4", 1, 2)]
    found = _reason(programme, [elastic_job("a")], known, np.array([-1]), 0)
    limit = {"most_gpus": 2.0, "gang": 0.0, "fewest_gpus": 1.0, "limit": 2.0, "largest": 2.0}
    numbers = {**limit, "best 2 t4": 1.2, "restart_factor": 0.5}
    assert (found.kind.name, found.numbers) == ("restart-not-worth", numbers)
    words = said_of(found)
    assert "The job has no GPUs. 2 t4 would be worth 1.2, but the restart would leave only 0.50 of that." in words


@given(st.permutations(range(4)), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_pollux_on_several_types_leaves_what_nobody_changed_and_cuts_what_mixes(order, gpus):
    sizes = CLUSTER.gpus_per_node
    held = {f"j{n}": ((node, min(gpus[n], sizes[node])),) for n, node in enumerate(order[: len(gpus)])}
    jobs = tuple(
        JobSnapshot(name, 0.0, 1, 1, placement, 0.0, 0, 8, None, None, speeds={"t4": 1.0, "a100-40": 2.0})
        for name, placement in held.items()
    )
    shown = replace(view(CLUSTER), jobs=jobs)
    nodes = LikeNodes()
    (like,) = nodes.parts(shown).values()
    owners = nodes.owners
    assert like.gpus_per_node == (4,) * 6
    assert cut_to_one_type(shown, {job.job_id: job.placement for job in like.jobs}, owners).placements == held
    mixed = {"j0": ((0, 2), (2, 2), (3, 1)), "j1": ((1, 2), (4, 2))} if len(jobs) > 1 else {}
    cut = {"j0": ((2, 3),), "j1": ((3, 2),)} if mixed else {}
    assert cut_to_one_type(shown, mixed, owners).placements == cut


def test_pollux_says_what_the_search_gave_and_what_is_left_of_it_on_one_type():
    """The search divides 4 + 4 GPUs among jobs that need 5 or 1, so it gives both types to one job."""
    cluster = Cluster.of_groups([[1, 4, "t4"], [1, 4, "a100-40"]])
    jobs = tuple(
        JobSnapshot(name, 0.0, 1, 1, (), 0.0, 0, 8, None, None, speeds={"t4": 1.0, "a100-40": 2.0}, min_replicas=least)
        for name, least in (("a", 5), ("b", None), ("c", 3), ("d", 4))
    )
    shown = replace(view(cluster), jobs=jobs)
    nodes = LikeNodes()
    nodes.parts(shown)
    searched = {"a": ((0, 2), (1, 3)), "b": ((0, 1), (1, 1)), "c": (), "d": ()}
    reason = Reason(AT_LIMIT, {})
    decision = Decision(searched, fitness=0.5, explain=lambda asked: dict.fromkeys(asked, reason))
    merged = nodes.merge(shown, {"like nodes": decision})
    assert merged.allocation == {"a": (), "b": ((1, 1),), "c": ((1, 3),), "d": ((0, 4),)}
    said = {job_id: said_of(found) for job_id, found in merged.explain("abcd").items()}
    assert "with a fitness of 0.5, this job has 5 GPUs: 2 of type t4 and 3 of type a100-40. A job runs" in said["a"]
    assert said["a"].endswith(
        "At its turn, at most 4 GPUs of one type that it may use are left. It needs at least 5, so it waits."
    )
    assert "so it gets the 1 GPU of type a100-40. Of the types that it may use" in said["b"]
    assert "number 2 of 3. 3 GPUs are left of type a100-40, its fastest type with enough of them, and" in said["c"]


def test_pollux_runs_on_several_types():
    job = polluxsim.workload("one-job", application="bert")
    assert polluxsim.simulate(job, policy="pollux", cluster=CLUSTER).jobs.status.tolist() == ["completed"]


@pytest.mark.parametrize(
    ("name", "value", "shown"), [("p", 0.0, "0"), ("waiting_cost", 1.0, "1"), ("bootstrap", "guess", "'guess'")]
)
def test_a_wrong_parameter_is_one_line(name, value, shown):
    with pytest.raises(InvalidConfigError, match=f"policy.{name} is {shown}, must be"):
        Sia(**{name: value})


@pytest.mark.parametrize("bootstrap", ["ratio", "none", "oracle"])
def test_every_bootstrap_completes_what_is_asked(bootstrap):
    run = polluxsim.simulate(
        polluxsim.workload("one-job", application="bert"), policy=Sia(bootstrap=bootstrap), cluster=CLUSTER
    )
    assert run.jobs.status.tolist() == ["completed"]


def test_whole_nodes_are_found_where_there_are_just_enough() -> None:
    sizes = {0: 4, 1: 4, 2: 2}
    free, likes = FreeGpus((4, 4, 2)), Counter[int]()
    assert _part_or_whole(free, sizes, likes, 1, 3) == ((0, 3),)
    assert _part_or_whole(free, sizes, likes, 2, 8) == ((0, 4), (1, 4))
    free.take(((0, 3),))
    assert _part_or_whole(free, sizes, likes, 1, 1) == ((0, 1),)  # the fullest node with room
    assert _part_or_whole(free, sizes, likes, 2, 8) == ()


def test_a_job_has_a_configuration_of_its_minimum() -> None:
    """Other configurations have 1, 2 and 4 GPUs on a node. Before the job has run, its agent allows one GPU."""
    jobs, profiles = toy_workload(toy_job("a", 0.0, 4, min_replicas=3)), {"toy": ToyProfile()}
    result = simulate(jobs, profiles, Cluster.uniform(2, 4), Sia())
    held = [sum(change.gpus) for change in result.allocation_records if change.gpus]
    assert min(held) == 3
    assert result.job_records[0].completion_time is not None
