"""Profile cards: what holds for any, what a file may be, how close the committed ones are to the tables."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from card_errors import ErrorSummary, completion_errors
from hypothesis import given, settings
from hypothesis import strategies as st

from polluxsim.applications.card import (
    About,
    Card,
    Corrections,
    FitError,
    GradTimes,
    LossCurve,
    NoiseScales,
    OtherType,
    SyncTimes,
    place_in_use,
)
from polluxsim.applications.card_files import read_card, read_cards
from polluxsim.applications.card_fit import best_cuts, fit_card, placement_errors
from polluxsim.applications.card_profile import PLACEMENT_CLASSES, CardProfile, placement_class
from polluxsim.applications.card_writing import card_text, write_card
from polluxsim.applications.measured import MeasuredProfile, ProfileRangeError
from polluxsim.applications.osdi21 import read_described, read_profiles
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.placements import BatchChoice, packed
from polluxsim.look.fitted_speed import error_table, fitted_speed
from polluxsim.look.plot.profiles import throughput
from polluxsim.look.plot.style import save
from polluxsim.models.efficiency import gain
from polluxsim.models.goodput import Alone
from polluxsim.models.profile import Application, DoesNotFitError
from polluxsim.models.sensitivity import Sensitivity

ROOT = Path(__file__).parents[2]
CARDS = ROOT / "traces"
DESCRIBED = read_described(CARDS / "osdi21" / "applications.yaml")
NAMES = sorted(DESCRIBED)
PATHS = [CARDS / f"{DESCRIBED[name].card}.yaml" for name in NAMES]

# GPU counts of adaptive jobs: those with a knot of their own in the corrections, and those between knots.
AT_KNOTS = (2, 8, 16)
BETWEEN_KNOTS = (5, 7, 9, 10, 11, 14, 17, 18, 20, 21, 26, 28, 30, 36, 40, 44, 45, 52, 56, 60)
MEDIAN_ERROR = 0.02
WORST_ERROR = dict.fromkeys(NAMES, 0.08) | {"ncf": 0.15}

exactly = settings(deadline=None)


# Any card


def figures(least: float, most: float, size: int | None = None, max_size: int = 4) -> st.SearchStrategy:
    figure = st.floats(least, most)
    if size is None:
        return st.lists(figure, min_size=1, max_size=max_size).map(tuple)
    return st.lists(figure, min_size=size, max_size=size).map(tuple)


def rising(least: int, most: int, max_size: int = 5) -> st.SearchStrategy:
    return st.sets(st.integers(least, most), min_size=1, max_size=max_size).map(sorted).map(tuple)


@st.composite
def applications(draw) -> Application:
    low, init = draw(st.integers(1, 64)), draw(st.integers(1, 512))
    most = max(low, init) * draw(st.integers(1, 200))
    return Application(
        name=draw(st.text("abc-_ é#:'\"\\", min_size=1).filter(str.strip)),
        init_batch_size=init,
        max_batch_size=most,
        min_atomic_batch_size=low,
        max_atomic_batch_size=low * draw(st.integers(1, 200)),
        num_epochs=draw(st.integers(1, 12)),
        learning_rate_rule=draw(st.sampled_from(["adascale", "square-root", "null", "1.5"])),
        fixed_batch_size=draw(st.none() | st.integers(init, most)),
        max_replicas=draw(st.none() | st.integers(1, 64)),
    )


@st.composite
def grad_times(draw) -> GradTimes:
    knots, alone = draw(rising(1, 2000)), draw(rising(1, 2000))
    return GradTimes(
        knots,
        draw(figures(1e-6, 1e4, len(knots))),
        alone,
        draw(figures(0.01, 100, len(alone))),
        draw(figures(0.01, 100)),
    )


@st.composite
def sync_times(draw) -> SyncTimes:
    nodes, seconds = draw(rising(2, 64)), st.floats(0, 1e4)
    alone, alpha, beta, beta_node = (draw(seconds) for _ in range(4))
    gamma = draw(st.floats(1, 10))
    return SyncTimes(alone, alpha, beta, nodes, draw(figures(0, 1e4, len(nodes))), beta_node, gamma)


@st.composite
def corrections(draw) -> Corrections:
    replicas, places = draw(rising(2, 300)), draw(st.integers(1, 5))
    return Corrections(replicas, tuple(draw(figures(0.01, 100, places)) for _ in replicas))


@st.composite
def noises(draw, num_epochs: int) -> NoiseScales:
    until = (*sorted(draw(st.sets(st.integers(1, num_epochs), max_size=3)) - {num_epochs}), num_epochs)
    sizes = draw(rising(1, 100_000))
    table = tuple(draw(figures(1e-9, 1e15, len(sizes))) for _ in until)
    return NoiseScales(until, sizes, table)


@st.composite
def losses(draw, num_epochs: int) -> LossCurve:
    epochs = tuple(sorted(draw(st.sets(st.integers(1, num_epochs), max_size=3)) | {1, num_epochs}))
    return LossCurve(epochs, draw(figures(1e-12, 1e9, len(epochs))))


@st.composite
def other_types(draw, application: Application) -> dict[str, OtherType]:
    names = draw(st.sets(st.sampled_from(["t4", "yes", "1", "a: b", "#x", "é"]), max_size=3))
    most = application.min_atomic_batch_size
    node = st.none() | st.just(0.25)
    return {name: OtherType(most, 0.5, 0.1, (alpha := draw(node)), alpha, 0.0, 0.1, 1.5, alpha) for name in names}


@st.composite
def cards(draw) -> Card:
    application = draw(applications())
    types = draw(other_types(application))
    errors = draw(st.dictionaries(st.sampled_from(PLACEMENT_CLASSES), figures(0, 10, 2), max_size=3))
    return Card(
        about=About(*(draw(st.sampled_from(["a", "yes", "1:30", "é ☃ # x", "a\nb"])) for _ in range(5))),
        application=application,
        work=draw(st.floats(1e-6, 1e15)),
        grad=draw(grad_times()),
        sync=draw(sync_times()),
        corrections=draw(corrections()),
        noise=draw(noises(application.num_epochs)),
        losses=draw(st.none() | losses(application.num_epochs)),
        fit_errors={name: FitError(7, *pair) for name, pair in errors.items()},
        gpu_type="v100" if types else None,
        types=types,
        sensitivity=draw(st.none() | st.builds(Sensitivity, curves.filter(bool), curves)),
    )


def curve_of(knots: set[float], speeds: list[float]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(sorted(knots), sorted(speeds), strict=False))


curves = st.builds(curve_of, st.sets(st.floats(0.1, 100), max_size=4), st.lists(st.floats(0.01, 100), min_size=4))
placements = st.lists(st.integers(1, 16), min_size=1, max_size=40).map(tuple)


@exactly
@given(cards(), placements, st.data())
def test_a_step_takes_longer_than_its_synchronisation(card, gpus_by_node, data):
    limits = card.application
    atomic = data.draw(st.integers(limits.min_atomic_batch_size, limits.max_atomic_batch_size))
    step = CardProfile(card).step_time(gpus_by_node, atomic)
    assert math.isfinite(step.step_time)
    assert step.step_time > step.sync_time >= 0


@exactly
@given(cards(), st.data())
def test_gain_lies_between_one_and_the_scale(card, data):
    limits = card.application
    batch_size = data.draw(st.integers(limits.init_batch_size, limits.max_batch_size))
    epoch = data.draw(st.integers(0, limits.num_epochs - 1))
    statistics = CardProfile(card).gradient_statistics(batch_size, epoch)
    scale = batch_size / limits.init_batch_size
    assert min(statistics) >= 0
    assert 1 - 1e-9 <= gain(statistics, scale) <= scale * (1 + 1e-9)


@exactly
@given(cards(), st.data())
def test_epochs_rise_and_remaining_iterations_fall(card, data):
    profile, limits = CardProfile(card), card.application
    batch_size = data.draw(st.integers(limits.init_batch_size, limits.max_batch_size))
    ends = [profile.epoch_end(epoch) for epoch in range(limits.num_epochs)]
    left = [profile.remaining_iterations(batch_size, epoch) for epoch in range(limits.num_epochs)]
    assert all(np.diff([0.0, *ends]) > 0)
    assert ends[-1] == pytest.approx(card.work)
    assert all(np.diff(left) <= 0)
    assert left[-1] == 1.0


@exactly
@given(cards(), st.integers(16, 60), st.integers(4, 15), st.data())
def test_larger_clusters_than_the_measured_are_never_faster(card, num_nodes, gpus, data):
    # The laws of extrapolation hold beyond all knots, and on nodes that are full already.
    card = replace(
        card,
        grad=replace(card.grad, partial_node=(1.1, 1.2, 0.9)),
        sync=replace(card.sync, num_nodes=(2, 16), alpha_node=data.draw(figures(0, 10, 2))),
        corrections=Corrections((2, 64), ((1.1, 0.8), (1.2, 0.5))),
    )
    limits, profile = card.application, CardProfile(card)
    atomic = data.draw(st.integers(limits.min_atomic_batch_size, limits.max_atomic_batch_size))
    here = profile.step_time((gpus,) * num_nodes, atomic).step_time
    assert profile.step_time((gpus,) * (num_nodes + 1), atomic).step_time >= here * (1 - 1e-9)
    assert profile.step_time((gpus + 1,) * num_nodes, atomic).step_time >= here * (1 - 1e-9)
    one_node = profile.step_time((gpus,), atomic).step_time
    assert profile.step_time((gpus + 1,), atomic).step_time >= one_node * (1 - 1e-9)


@exactly
@given(cards())
def test_a_card_comes_back_from_its_file_with_the_same_bytes(tmp_path_factory, card):
    folder = tmp_path_factory.mktemp("card")
    read = read_card(write_card(card, folder / "a.yaml"))
    assert read == card
    assert card_text(read).encode() == (folder / "a.yaml").read_bytes()


def test_a_card_that_cannot_be_read_is_not_written(tmp_path):
    card = replace(read_card(PATHS[0]), work=1e16)
    with pytest.raises(InvalidInputError, match=r"a\.yaml: the card would be .* not written, line \d+: key 'work'"):
        write_card(card, tmp_path / "a.yaml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("gpus", [(), (0,), (4, 0)])
def test_no_gpus_are_no_placement(gpus):
    with pytest.raises(ProfileRangeError, match="1 or more"):
        CardProfile(read_card(PATHS[0])).step_time(gpus, 8)


def test_a_card_says_nothing_outside_the_limits():
    profile = CardProfile(read_card(PATHS[NAMES.index("bert")]))
    with pytest.raises(DoesNotFitError, match="13 examples do not fit in the memory of t4, must be 4 to 12"):
        profile.step_time((1,), 13)
    with pytest.raises(DoesNotFitError, match="25 examples do not fit in the memory of rtx6000, must be 4 to 24"):
        profile.by_type["rtx6000"].step_time((1,), 25)
    with pytest.raises(ProfileRangeError, match="2 nodes of this type is unknown, only that on one"):
        profile.by_type["rtx6000"].step_time((1, 1), 4)
    with pytest.raises(ProfileRangeError, match="must be 12 to 384"):
        profile.gradient_statistics(385, 0)
    with pytest.raises(ProfileRangeError, match="must be 0 to 1"):
        profile.epoch_end(2)


PUBLISHED = {"v100-32": 2.50, "a100-40": 6.12}
"""NeuMF's speed on other types over that on a T4, from traces/README.md."""


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_every_application_has_a_speed_on_t4_v100_and_a100(path):
    profile = CardProfile(read_card(path))
    m = profile.application.min_atomic_batch_size
    steps = [profile.by_type[name].step_time((1,), m).step_time for name in ("t4", "v100-32", "a100-40")]
    assert all(0 < step < 10 for step in steps)


def test_speeds_from_published_ratios_are_marked_and_have_these_ratios():
    card = read_card(PATHS[NAMES.index("ncf")])
    assert set(card.types) == set(PUBLISHED)
    assert "ratios of NeuMF's published speeds" in card.about.source
    t4, largest = CardProfile(card).by_type["t4"], card.application.max_atomic_batch_size
    for name, ratio in PUBLISHED.items():
        other = card.types[name]
        time = t4.step_time((1,), largest).step_time - other.alpha_grad  # per-example part of a pass
        assert time / (other.beta_grad * largest) == pytest.approx(ratio, rel=0.005)
        assert other.error is None
    assert card_text(card).count("# from published ratios of speeds, not measured\n") == len(PUBLISHED)
    assert card_text(card).encode() == PATHS[NAMES.index("ncf")].read_bytes()


def test_the_default_applications_run_on_a100_nodes(tmp_path, capsys):
    jobs = "".join(f"{name},0,{name},1,{size}\n" for name, size in (("ncf", 256), ("cifar10", 128)))
    (tmp_path / "jobs.csv").write_text("name,time,application,num_replicas,batch_size\n" + jobs)
    command = ["run", "policy=fifo", "cluster=mixed", "cluster.groups=[[4, 8, a100-40]]"]
    run = f"hydra.run.dir={tmp_path / 'run'}"
    assert main([*command, f"workload.path={tmp_path / 'jobs.csv'}", run]) == 0, capsys.readouterr().err


# Files

LINES = PATHS[NAMES.index("bert")].read_text(encoding="utf-8").splitlines()


def with_line(start: str, new: str) -> str:
    number = next(number for number, line in enumerate(LINES) if line.strip().startswith(start))
    return "\n".join([*LINES[:number], new, *LINES[number + 1 :], ""])


WRONG = [
    ("num_epochs", "  num_epochs: 2.5", r"line \d+: key 'num_epochs' is '2.5', must be a whole number"),
    ("num_epochs", "  num_epochs: yes", "key 'num_epochs' is 'yes'"),
    ("num_epochs", "  num_epochs: 1:30", "key 'num_epochs' is '1:30'"),
    ("num_epochs", "", "missing key 'num_epochs'"),
    ("num_epochs", "  num_epochs: 3", "ends with num_epochs = 3"),
    ("num_epochs", "  num_epochs: &a 2\n  max_replicas: *a", "an alias"),
    ("work:", "work: .nan", "key 'work' is '.nan'"),
    ("work:", "work: .inf", "key 'work' is '.inf'"),
    ("work:", "work: 1e3", "key 'work'"),
    ("work:", "work: -1.0", "key 'work' is '-1.0', must be a number from 1e-06"),
    ("work:", "work: [1.0]", "key 'work' is a sequence of 1"),
    ("work:", "work: 1.0\nwork: 2.0", "duplicate key 'work'"),
    ("work:", "work: 1.0\nwrok: 2.0", "key 'wrok' is unknown"),
    ("work:", "work: 1.0\nsensitivity: {cpus: [1, 3]}", "missing key 'cpu_speeds'"),
    ("work:", "work: 1.0\nsensitivity: {cpus: [3, 1], cpu_speeds: [1, 2]}", "must be a rising list"),
    ("work:", "work: 1.0\nsensitivity: {memory: [1, 3], memory_speeds: [1]}", "a list of 2 values, as memory"),
    ("work:", "work: 1.0\n12: 2.0", "a key that is not text"),
    ("title:", "title: ''", "key 'title' is '', must be text"),
    ("title:", "title: 12", "key 'title' is '12', must be text"),
    ("format:", "format: 2", "key 'format' is '2', must be 1"),
    ("gamma:", "  gamma: 0.5", "key 'gamma' is '0.5', must be a number from 1 to 10"),
    ("gamma:", "  gamma: 1.5\n  extra: 1", "key 'extra' is unknown"),
    ("partial_node:", "  partial_node: []", "'partial_node' is a sequence of 0"),
    ("partial_node:", "  partial_node: [0.9, x]", "'partial_node' is 'x'"),
    ("full_node:", "  full_node: [0.5]", "a list of 5 values, as atomic_batch_sizes"),
    ("num_nodes:", "  num_nodes: [2, 3, 4, 6, 8, 12, 12]", "a rising list"),
    ("places:", "  places: 2", "2 numbers in each row"),
    ("max_batch_size:", "  max_batch_size: 11", "no less than init_batch_size = 12"),
    ("max_atomic_batch_size:", "  max_atomic_batch_size: 3", "no less than min_atomic_batch_size = 4"),
    ("one_gpu:", "  two_gpus: {points: 1, mean: 0.0, worst: 0.0}", "in one of the classes one_gpu"),
    ("one_gpu:", "  one_gpu: 3", "a mapping of keys"),
    ("epochs:", "  epochs: [1, 3]", "key 'epochs' is a sequence of 2, must be a list from 1 to num_epochs = 2"),
    ("epochs:", "  epochs: [2, 1]", "a rising list"),
    ("values:", "  values: [3.0]", "a list of 2 values, as epochs"),
    ("values:", "  values: [3.0, 0.0]", "key 'values' is '0.0', must be a number from 1e-12"),
    ("sync:", "sync: [", "not YAML"),
    ("sync:", "sync: \t{", "not YAML"),
]


@pytest.mark.parametrize(("start", "new", "message"), WRONG)
def test_a_wrong_card_is_one_clear_line(tmp_path, start, new, message):
    path = tmp_path / "wrong.yaml"
    path.write_text(with_line(start, new), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_card(path)
    assert str(caught.value).startswith(f"{path}")
    assert re.search(r"line \d+: ", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"- 1", b"12", b"\x00", b"[" * 1500 + b"]" * 1500, b"a: &x [*x]"]
)
def test_what_is_no_card_at_all_is_invalid_input(tmp_path, content):
    path = tmp_path / "wrong.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=re.escape(str(path))):
        read_card(path)


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_every_key_is_needed(tmp_path, path):
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    keys = [n for n, line in enumerate(lines) if re.match(r" *\w+:", line) and not re.match(r" +\w+: \{", line)]
    optional = ["fixed_batch_size", "max_replicas"] + ["gpu_type"] * ("types:\n" not in lines)
    for number in keys:
        if lines[number].strip().startswith(tuple(optional)):
            continue
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text("".join([*lines[:number], *lines[number + 1 :]]), encoding="utf-8")
        with pytest.raises(InvalidInputError):
            read_card(wrong)


@exactly
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=3), st.integers(0, 30))
def test_a_corrupted_card_is_read_or_invalid_input_and_nothing_else(tmp_path_factory, start, junk, length):
    content = PATHS[0].read_bytes()
    start %= len(content)
    path = tmp_path_factory.mktemp("card") / "wrong.yaml"
    path.write_bytes(content[:start] + junk + content[start + length :])
    try:
        card = read_card(path)
    except InvalidInputError:
        return
    limits = card.application
    assert math.isfinite(CardProfile(card).step_time((4, 1), limits.min_atomic_batch_size).step_time)


def test_a_folder_holds_one_card_of_an_application(tmp_path):
    with pytest.raises(InvalidInputError, match="no profile card"):
        read_cards(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_bytes(PATHS[0].read_bytes())
    with pytest.raises(InvalidInputError, match="a second card for 'bert'"):
        read_cards(tmp_path)


# Committed cards


def test_the_six_applications_have_cards():
    assert list(read_cards(CARDS)) == NAMES


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_a_committed_card_is_as_it_would_be_written(path):
    assert card_text(read_card(path)).encode() == path.read_bytes()


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_a_committed_card_knows_every_placement(path):
    profile = CardProfile(read_card(path))
    limits = profile.application
    sizes = np.geomspace(limits.min_atomic_batch_size, limits.max_atomic_batch_size, 9).round().astype(int)
    for gpus_by_node in [
        (1,),
        (2,),
        (8,),
        (1, 1),
        (1, 4),
        (3, 3, 3),
        (1,) * 16,
        (4,) * 16,
        (4,) * 40,
        (8,) * 20,
    ]:
        for size in sizes.tolist():
            step = profile.step_time(gpus_by_node, size)
            assert 0 <= step.sync_time < step.step_time < 60


def test_work_and_steps_are_those_of_the_paper():
    profiles = read_cards(CARDS)
    works = {name: round(profile.epoch_end(profile.application.num_epochs - 1)) for name, profile in profiles.items()}
    assert works == {
        "bert": 14774,
        "cifar10": 39063,
        "deepspeech2": 28536,
        "imagenet": 576526,
        "ncf": 194174,
        "yolov3": 103444,
    }
    hours = {name: alone_at_init(profile) / 3600 for name, profile in profiles.items()}
    assert hours == pytest.approx(
        {"bert": 3.78, "cifar10": 1.12, "deepspeech2": 5.40, "imagenet": 147.9, "ncf": 0.40, "yolov3": 9.37},
        rel=0.02,
    )


def alone_at_init(profile: CardProfile) -> float:
    return Alone(profile, (1,)).fixed_time(BatchChoice(profile.application.init_batch_size, 0))


def test_neumf_keeps_its_batch_size_on_one_gpu():
    neumf = read_cards(CARDS)["ncf"].application
    assert (neumf.fixed_batch_size, neumf.max_replicas) == (32768, 1)


def test_places_follow_what_is_in_use():
    bert = read_cards(CARDS)["bert"].application
    assert place_in_use(bert, 8, 4) == 0.0
    assert place_in_use(bert, 8, 12) == pytest.approx(1.0)
    assert place_in_use(bert, 1, 12) == 0.0


def test_stages_are_cut_where_training_changes():
    series = np.array([[0.0, 1.0], [0.0, 1.1], [7.0, 3.0], [7.1, 3.0], [2.0, 0.0]])
    assert best_cuts(series, 3) == [2, 4, 5]
    assert best_cuts(series, 1) == [5]
    assert best_cuts(series, 9) == [1, 2, 3, 4, 5]


# Against the measured tables


@pytest.fixture(scope="module")
def measured(osdi21) -> dict[str, MeasuredProfile]:
    return read_profiles(osdi21)


@pytest.fixture(scope="module")
def fitted() -> dict[str, CardProfile]:
    return read_cards(CARDS)


def check(summary: ErrorSummary) -> None:
    assert summary.median <= MEDIAN_ERROR
    assert abs(summary.worst.error) <= WORST_ERROR[summary.application], summary.worst


@pytest.mark.parametrize("name", NAMES)
def test_completion_times_at_tuned_and_adaptive_configurations(measured, fitted, name):
    check(completion_errors(measured[name], fitted[name], AT_KNOTS))


@pytest.mark.parametrize("name", NAMES)
def test_completion_times_between_the_fitted_gpu_counts(measured, fitted, name):
    check(completion_errors(measured[name], fitted[name], BETWEEN_KNOTS))


@pytest.mark.parametrize("name", NAMES)
def test_the_stated_errors_are_the_real_ones(measured, fitted, name):
    card = fitted[name].card
    for kind, error in placement_errors(measured[name], card).items():
        stated = card.fit_errors[kind]
        assert stated.points == error.points
        assert (stated.mean, stated.worst) == pytest.approx((error.mean, error.worst), rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_remaining_iterations_follow_the_validated_runs(measured, fitted, name):
    limits = measured[name].application
    for batch_size in measured[name].validations:
        for epoch in {0, limits.num_epochs // 4, limits.num_epochs // 2}:
            if epoch < limits.num_epochs - 1:
                truth = measured[name].remaining_iterations(batch_size, epoch)
                assert fitted[name].remaining_iterations(batch_size, epoch) == pytest.approx(truth, rel=0.05)


def test_no_measured_time_is_copied(measured, fitted):
    for name, profile in fitted.items():
        grad = profile.card.grad
        rows = {f"{row.step_time - row.sync_time:.3e}" for row in measured[name].placements if row.gpus_by_node == (1,)}
        lone = {f"{grad(1, 1, size):.3e}" for size in grad.alone_atomic_batch_sizes}
        assert not lone <= rows


def test_too_little_measured_for_a_card_is_said(measured):
    profile = measured["bert"]
    some = replace(profile, placements=[row for row in profile.placements if row.gpus_by_node != (1,)])
    with pytest.raises(ProfileRangeError, match="too few measurements"):
        fit_card(some, About("a", "b", "c", "d", "e"))


def test_a_card_needs_two_batch_sizes(measured):
    profile = measured["bert"]
    size = profile.placements[0].atomic_batch_size
    placements, scalability = (
        [row for row in rows if row.atomic_batch_size == size] for rows in (profile.placements, profile.scalability)
    )
    some = replace(profile, placements=placements, scalability=scalability)
    with pytest.raises(ProfileRangeError, match=f"all steps have the batch size {size} on each GPU"):
        fit_card(some, About("a", "b", "c", "d", "e"))


def test_a_card_fitted_to_few_nodes_still_knows_many(measured):
    profile = measured["bert"]
    small = replace(profile, scalability=[])
    card = CardProfile(fit_card(small, About("a", "b", "c", "d", "e")))
    assert card.card.sync.num_nodes == (2, 3, 4)
    assert "many_nodes" not in card.card.fit_errors
    truth = profile.step_time((4,) * 16, 12).step_time
    assert card.step_time((4,) * 16, 12).step_time == pytest.approx(truth, rel=0.3)


def test_the_figure_is_drawn_and_the_errors_are_a_table(measured, fitted, tmp_path):
    speed = fitted_speed(measured["yolov3"], fitted["yolov3"], "YOLOv3")
    assert speed.measured_by_replicas.x == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert speed.card_by_replicas.x == list(range(1, 65))
    save(throughput([speed]), tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    table = error_table({name: profile.card for name, profile in fitted.items()}).splitlines()
    assert len(table) == 1 + len(NAMES)


def test_placements_have_one_class_each():
    classes = {
        (1,): "one_gpu",
        (3,): "one_node",
        (4, 4, 1): "few_nodes",
        (1, 1): "unpacked",
        (4,) * 5: "many_nodes",
    }
    assert {gpus: placement_class(gpus, 4) for gpus in classes} == classes
    assert [packed(k) for k in (1, 4, 6)] == [(1,), (4,), (4, 2)]


def test_reading_cards_loads_no_fitting() -> None:
    """It would take a quarter of the time of a short run."""
    code = "import sys, polluxsim.applications.card_files; print('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


def test_losses_follow_the_measured_ones_without_their_noise(measured, fitted):
    """Within 3 % on average, by half as many knots as there are epochs at most."""
    for name, profile in measured.items():
        ours, theirs = fitted[name].losses, profile.losses
        assert np.mean([abs(own / their - 1) for own, their in zip(ours, theirs, strict=True)]) < 0.03
        assert len(fitted[name].card.losses.epochs) <= max(len(theirs) // 2, 2)
