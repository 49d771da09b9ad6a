"""Estimates from a job's own log: wide at first, true in the end; and what is decided by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from drawn import PROFILES, begun, cases, draws, ended
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.applications.folder import ProfileFolder
from polluxsim.applications.measured import MeasuredProfile
from polluxsim.common.errors import InvalidConfigError, PolicyError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.models.convergence import (
    Decay,
    Hyperbola,
    fit_best,
    fit_decay,
    fit_hyperbola,
    last_drop,
)
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Report
from polluxsim.policies.elastic.estimated_times import (
    OnlineOptimus,
    Quality,
    Slaq,
    Speeds,
    StepTimes,
    epochs_left,
    fit_step_times,
    nonnegative_least_squares,
    sample_counts,
)
from polluxsim.policies.elastic.true_times import Optimus, true_step_time
from polluxsim.policies.tools.gpu_counts import deal
from polluxsim.workloads.philly import PhillyLike
from polluxsim.workloads.workload import Workload

CARDS = ProfileFolder(None).load()
positive = st.floats(0.01, 10.0)


def report(losses: list[float], epochs: int, drop: float | None = None) -> Report:
    """Return the log of a job so many epochs into a training with these losses."""
    return Report(float(epochs), tuple(losses[:epochs]), 100.0, None, last_drop(losses) if drop is None else drop)


@given(st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=6), st.data())
@draws(75)
def test_least_squares_are_those_of_scipy(rows: list[tuple[float, float, float]], data: st.DataObject) -> None:
    from scipy.optimize import nnls

    values = data.draw(st.lists(st.floats(0.1, 3.0), min_size=len(rows), max_size=len(rows)))
    ours = np.array(nonnegative_least_squares(rows, values))
    assert (ours >= 0).all()
    off = float(((np.array(rows) @ ours - values) ** 2).sum())
    assert off <= nnls(np.array(rows), np.array(values))[1] ** 2 + 1e-9


@given(st.floats(0.01, 5.0), st.floats(0.05, 5.0), st.floats(0.0, 2.0), st.integers(4, 40))
@draws(50)
def test_a_hyperbola_is_found_again(slope: float, offset: float, floor: float, count: int) -> None:
    truth = Hyperbola(slope, offset, floor)
    losses = [truth(k) for k in range(1, count + 1)]
    fitted = fit_hyperbola(losses)
    assert [fitted(k) for k in range(1, count + 1)] == pytest.approx(losses, rel=2e-3)


@given(st.floats(0.1, 5.0), st.floats(0.1, 0.95), st.floats(0.0, 2.0))
@draws(30)
def test_a_decay_is_found_again_and_told_from_a_hyperbola(scale: float, factor: float, floor: float) -> None:
    truth = Decay(scale, factor, floor)
    losses = [truth(k) for k in range(1, 25)]
    fitted = fit_decay(losses)
    near = pytest.approx(losses, rel=2e-3, abs=2e-3 * losses[0])
    assert [fitted(k) for k in range(1, 25)] == near
    assert [fit_best(losses, 1.0)(k) for k in range(1, 25)] == near


def test_recent_losses_count_more() -> None:
    losses = [1.0, 0.8, 0.7, 0.65, 0.62, 0.4, 0.38, 0.37, 0.365, 0.36]
    even, recent = fit_hyperbola(losses), fit_hyperbola(losses, 0.2)
    assert abs(recent(10) - 0.36) < 0.2 * abs(even(10) - 0.36)


@given(positive, positive, positive)
@draws(30)
def test_a_curve_is_flat_where_it_falls_by_as_much(slope: float, offset: float, floor: float) -> None:
    curve = Hyperbola(slope, offset, floor)
    assert curve.flat_after(curve.drop(17.0)) == pytest.approx(17.0)
    assert curve.flat_after(0.0) == inf


@pytest.mark.parametrize("name", sorted(set(CARDS) - {"bert"}))
def test_estimates_converge_to_the_truth_as_the_job_goes_on(name: str) -> None:
    """Of all epochs: wrong by much at first, within 12 % from nine tenths on, right when all losses are known."""
    losses = list(CARDS[name].losses)
    count = len(losses)
    whole = [epochs_left(report(losses, done), 50.0) + done for done in range(count + 1)]
    off = [abs(estimate / count - 1.0) for estimate in whole]
    assert off[0] == pytest.approx(abs(50 / count - 1))
    late = -(-9 * count // 10)
    assert max(off[late:count]) <= 0.12
    # At the end only the epoch that a job is taken to have left at least is wrong.
    assert whole[-1] == pytest.approx(count, abs=1.0)
    quarters = [max(off[count * part // 4 : count * (part + 1) // 4]) for part in range(4)]
    assert quarters[-1] < max(quarters[:2])


def test_estimates_of_measured_losses_converge(measured_profiles: dict[str, MeasuredProfile]) -> None:
    """Noise, and stages at which the learning rate falls, included."""
    for name in sorted(set(measured_profiles) - {"bert"}):
        losses = list(measured_profiles[name].losses)
        count = len(losses)
        late = [epochs_left(report(losses, done), 50.0) + done for done in range(-(-9 * count // 10), count)]
        assert max(abs(whole / count - 1) for whole in late) <= 0.12, name


def test_an_epoch_that_brings_little_looks_like_the_last() -> None:
    """Before its learning rate falls, ImageNet seems to be done at a third of its epochs: the cost of being wrong."""
    losses = list(CARDS["imagenet"].losses)
    assert epochs_left(report(losses, 25), 50.0) + 25 < 45


@given(st.tuples(positive, positive, positive), st.lists(st.integers(1, 64), min_size=3, max_size=6, unique=True))
@draws(50)
def test_step_times_are_found_again(figures: tuple[float, float, float], counts: list[int]) -> None:
    truth = StepTimes(*figures)
    fitted = fit_step_times({gpus: truth(gpus) for gpus in counts})
    for gpus in counts:  # and not beyond, where few GPUs say little of many
        assert fitted(gpus) == pytest.approx(truth(gpus), rel=1e-4)


@given(st.tuples(positive, positive, positive), st.integers(1, 4), st.integers(0, 60))
@draws(50)
def test_the_samples_of_a_pre_run_tell_the_step_times_in_between(
    figures: tuple[float, float, float], fewest: int, more: int
) -> None:
    """Three samples or more tell the curve; one sample is taken to be all computing."""
    truth, counts = StepTimes(*figures), sample_counts(fewest, fewest + more, 5)
    assert (counts[0], counts[-1], len(counts) <= 5) == (fewest, fewest + more, True)
    fitted = fit_step_times({gpus: truth(gpus) for gpus in counts})
    for gpus in range(fewest, fewest + more + 1):
        assert len(counts) < 3 or fitted(gpus) == pytest.approx(truth(gpus), rel=2e-3)


class TrueSpeeds(Speeds):
    node_size = 0

    def of(self, job: JobView) -> Callable[[int], float]:  # type: ignore[override]
        return partial(true_step_time, job, node_size=self.node_size)


class Perfect(OnlineOptimus):
    """Knows the truth."""

    def _take_note(self, view: ClusterView) -> None:
        self._speeds = TrueSpeeds()
        self._speeds.node_size = view.node_size

    def _steps_left(self, job: JobView) -> float:
        return job.oracle.remaining_iterations(job.batch_size)


@dataclass
class Beside:
    """Optimus+Oracle, with what the other one decides beside it at every turn."""

    other: OnlineOptimus
    inner: Optimus = field(default_factory=Optimus)
    traits = Optimus.traits
    compared: int = 0

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        mine, its = self.inner.allocate(view, rng), self.other.decide(view)
        assert its.allocation == mine.allocation
        self.compared += 1
        return mine


@given(cases())
@draws(30)
def test_with_perfect_estimates_the_choice_is_that_of_the_oracle(case: tuple[Cluster, Workload]) -> None:
    cluster, workload = case
    policy = Beside(Perfect(young_factor=1.0))
    simulate(workload, PROFILES, cluster, policy)
    assert policy.compared


def test_with_perfect_estimates_the_choice_is_that_of_the_oracle_on_real_applications() -> None:
    policy = Beside(Perfect(young_factor=1.0))
    rules = EngineSettings(horizon=7200.0)
    simulate(PhillyLike(30, 1, True, 3).load(CARDS), CARDS, Cluster.uniform(4, 4), policy, settings=rules)
    assert policy.compared > 20


@dataclass
class Reading:
    """Reads every job's log at every round, and checks that it says nothing of the future, nor of the oracle."""

    inner: Slaq | OnlineOptimus
    logs: list[Report] = field(default_factory=list)
    traits = Slaq.traits

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        has_pre_run = isinstance(self.inner, OnlineOptimus) and self.inner.samples > 0
        blind = replace(view, jobs=[Blind(job, has_pre_run) for job in view.jobs])
        for job in view.jobs:
            said, known = job.report, PROFILES[job.application]
            assert said is not None
            ends = [0.0, *known.epochs]
            done = sum(end <= job.oracle.progress for end in known.epochs)
            assert said.losses == tuple(known.losses[:done])
            part = (job.oracle.progress - ends[done]) / (ends[done + 1] - ends[done])
            assert said.epochs == pytest.approx(done + part)
            assert said.step_time in (None, pytest.approx(known.seconds, rel=1.0))
            assert job.placement or said.step_time is None
            self.logs.append(said)
        return self.inner.allocate(blind, rng)


class Blind:
    """A job without an oracle, or with one that tells step times only, as a pre-run measures them."""

    def __init__(self, job: JobView, has_pre_run: bool) -> None:
        self._job, self._has_pre_run = job, has_pre_run

    def __getattr__(self, name: str) -> object:
        if name == "oracle" and self._has_pre_run:
            oracle = self._job.oracle
            return SimpleNamespace(application=oracle.application, optimiser_step_time=oracle.optimiser_step_time)
        if name in ("oracle", "goodput", "goodputs"):
            raise AssertionError(f"{name} was looked at")
        return getattr(self._job, name)


@pytest.mark.parametrize("policy", [OnlineOptimus, partial(OnlineOptimus, samples=0), Slaq])
@given(case=cases())
@draws(15)
def test_nothing_is_seen_but_what_was_logged(
    policy: Callable[..., OnlineOptimus | Slaq], case: tuple[Cluster, Workload]
) -> None:
    cluster, workload = case
    reading = Reading(policy(interval=200.0))
    simulate(workload, PROFILES, cluster, reading)
    assert any(log.losses for log in reading.logs) or len(reading.logs) < 20


def qualities(draw: st.DrawFn, jobs: int) -> list[Quality]:
    """Draw jobs with convex losses and step times as they are fitted."""
    made = []
    for index in range(jobs):
        if draw(st.booleans()):
            curve: Hyperbola | Decay = Hyperbola(draw(positive), draw(positive), draw(positive))
        else:
            curve = Decay(draw(positive), draw(st.floats(0.05, 0.95)), draw(positive))
        times = StepTimes(draw(positive), draw(st.floats(0.0, 5.0)), draw(st.floats(0.0, 1.0)))
        job = toy_job(f"{index}")
        made.append(
            Quality(job, draw(st.integers(1, 6)), curve, draw(positive), draw(st.floats(0, 9)), draw(positive), times)
        )
    return made


@given(st.data())
@draws(75)
def test_the_greedy_sum_of_reductions_is_the_largest_where_losses_are_convex(data: st.DataObject) -> None:
    jobs = qualities(data.draw, data.draw(st.integers(1, 4)))
    gpus = data.draw(st.integers(len(jobs), 9))
    dealt = deal([quality.job for quality in jobs], jobs, gpus)
    reached = sum(quality.reduction(dealt.counts[quality.job.job_id]) for quality in jobs)
    choices = product(*(range(1, quality.limit + 1) for quality in jobs))
    best = max(
        sum(quality.reduction(count) for quality, count in zip(jobs, counts, strict=True))
        for counts in choices
        if sum(counts) <= gpus
    )
    assert reached == pytest.approx(best, rel=1e-9)


def test_a_pre_run_tells_that_more_gpus_bring_nothing() -> None:
    """A step of the toy takes as long on any number of GPUs. By one sample alone it seems to be all computing."""
    gpus = {}
    for samples in (0, 5):
        rules = EngineSettings(horizon=61.0)
        jobs, policy = toy_workload(toy_job("a")), OnlineOptimus(samples=samples)
        result = simulate(jobs, PROFILES, Cluster.uniform(1, 4), policy, settings=rules)
        gpus[samples] = sum(result.allocation_records[0].gpus)
    assert gpus == {0: 4, 5: 1}


def test_the_gains_of_young_jobs_count_a_little_less() -> None:
    made = []
    for losses in ((1.0, 0.8), (1.0, 0.8, 0.7)):
        log = Report(float(len(losses)), losses, 10.0, None, 0.01)
        job = SimpleNamespace(
            job_id="a", report=log, speeds={"any": 1.0}, num_replicas=1, min_replicas=None, max_replicas=8, placement=()
        )
        policy = OnlineOptimus(samples=0)
        policy._speeds.observe(job, log)  # type: ignore[arg-type]
        made.append(policy._candidate(job))  # type: ignore[arg-type]
    young, old = made
    assert (young.weight, old.weight) == (0.95, 1.0)
    assert young.gain(1) == pytest.approx(0.95 * young._replace(weight=1.0, time_saved=[inf]).gain(1))


@pytest.mark.parametrize("settings", [{"samples": -1}, {"young_factor": 0.0}, {"young_factor": 1.1}])
def test_wrong_settings_of_optimus_are_named(settings: dict[str, float]) -> None:
    (name,) = settings
    with pytest.raises(InvalidConfigError, match=f"policy.{name} is "):
        OnlineOptimus(**settings)


def test_jobs_near_convergence_get_the_least() -> None:
    """Of two jobs alike, the one that has logged many losses leaves GPUs to the one that has just begun."""
    profiles = {"toy": ToyProfile(seconds=1.0, epochs=tuple(60.0 * k for k in range(1, 200)))}
    held: list[dict[str, int]] = []

    class Noting(Slaq):
        def decide(self, view: ClusterView) -> Decision:
            decision = super().decide(view)
            held.append({name: sum(g for _, g in gpus) for name, gpus in decision.allocation.items()})
            return decision

    jobs = toy_workload(toy_job("old", 0.0, 4), toy_job("new", 3000.0, 4))
    simulate(jobs, profiles, Cluster.uniform(1, 4), Noting(), settings=EngineSettings(horizon=6000.0))
    assert held[0] == {"old": 4}
    first = next(counts for counts in held if counts.get("new"))
    assert first["new"] >= first["old"] == 1


def test_what_is_estimated_wrongly_costs_time() -> None:
    """By assuming 5,000 epochs of every job at first, another schedule comes out than by assuming 2."""
    workload = PhillyLike(20, 1, True, 3).load(CARDS)
    run = partial(simulate, workload, CARDS, Cluster.uniform(4, 4))
    times = [[job.jct for job in run(OnlineOptimus(assumed_epochs=epochs)).job_records] for epochs in (2.0, 5000.0)]
    assert times[0] != times[1]


@dataclass(frozen=True)
class Silent(ToyProfile):
    """Says nothing of its losses."""

    losses = ()


@pytest.mark.parametrize("policy", [OnlineOptimus(), Slaq()])
def test_a_profile_without_losses_is_refused_in_a_line(policy: OnlineOptimus | Slaq) -> None:
    with pytest.raises(PolicyError, match="has no losses, which this policy needs; give"):
        simulate(toy_workload(toy_job("a")), {"toy": Silent()}, Cluster.uniform(1, 4), policy)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Slaq(), "its loss is expected to fall"),
        (OnlineOptimus(), "According to its log, about"),
    ],
)
def test_why_says_what_was_expected(policy: Slaq | OnlineOptimus, words: str) -> None:
    jobs = toy_workload(*(toy_job(f"{index}", 10.0 * index, 4) for index in range(3)))
    run = begun(jobs, Cluster.uniform(1, 4), policy)
    result = ended(run, policy)
    assert any(words in sentence(record, result.reason_texts) for record in result.reason_records)


def test_no_loss_falls_without_a_gpu_or_a_known_speed() -> None:
    known = Quality(SimpleNamespace(), 4, lambda epochs: 1 / (1 + epochs), 1.0, 0.0, 60.0, lambda gpus: 6.0 / gpus)  # type: ignore[arg-type]
    assert [known.reduction(gpus) for gpus in (0, 1, 2)] == pytest.approx([0.0, 10 / 11, 20 / 21])
    assert (known.gain(3), known.gain(4)) == (pytest.approx(40 / 41 - 30 / 31), 0.0)
    assert known._replace(step_time=None).reduction(2) == 0.0


@pytest.mark.parametrize("settings", [{"interval": 0.0}, {"forgetting": 0.0}, {"forgetting": 1.1}])
def test_wrong_settings_of_slaq_are_named(settings: dict[str, float]) -> None:
    (name,) = settings
    with pytest.raises(InvalidConfigError, match=f"policy.{name} is "):
        Slaq(**settings)
    assert Slaq(forgetting=1.0).forgetting == 1.0
