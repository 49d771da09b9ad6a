"""The recorder finds the noise and the times of a training loop known beforehand; `fit` takes its files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import polluxsim
from polluxsim.applications.card_files import read_card
from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.osdi21 import read_profiles
from polluxsim.cli.main import main
from polluxsim.common.errors import PolluxSimError
from polluxsim.measure import NoiseScaleEstimate, Recorder

DIMENSIONS, SPREAD = 10, 3.0
M0 = 32


class Clock:
    """Stands still until it is told that time passes."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def pass_time(m: int) -> float:
    return 0.01 + 0.001 * m


def true_noise_scale(off: float) -> float:
    """Return tr Σ / |G|² of linear regression: targets of noise SPREAD², inputs N(0, I), weights that are `off` off.

    One example's gradient is (x·δ − ε) x, so that G = δ and tr Σ = (d + 1)|δ|² + d·SPREAD².
    """
    return DIMENSIONS + 1 + DIMENSIONS * SPREAD**2 / off**2


class Regression:
    """Linear regression with δ = weights − true weights."""

    def __init__(self, seed: int, off: float = 4.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.delta = np.full(DIMENSIONS, off / math.sqrt(DIMENSIONS))

    def gradient(self, examples: int) -> np.ndarray:
        x = self.rng.normal(size=(examples, DIMENSIONS))
        return x.T @ (x @ self.delta - self.rng.normal(0, SPREAD, examples)) / examples

    def step(self, recorder: Recorder, batch_size: int, parts: int = 4) -> np.ndarray:
        """Compute a gradient in equal parts, as GPUs do, and record it."""
        gradients = [self.gradient(batch_size // parts) for _ in range(parts)]
        whole = np.mean(gradients, axis=0)
        recorder.gradients(np.mean([g @ g for g in gradients]), whole @ whole, batch_size // parts, batch_size)
        return whole


def estimate(seed: int, steps: int = 200, batch_size: int = 64) -> NoiseScaleEstimate:
    loop, recorder = Regression(seed), Recorder("linear", M0)
    for _ in range(steps):
        loop.step(recorder, batch_size)
    return recorder.end_epoch(steps)


def test_the_noise_scale_is_the_true_one_within_its_error():
    estimates = [estimate(seed) for seed in range(100)]
    errors = np.array([(noise.value - true_noise_scale(4.0)) / noise.standard_error for noise in estimates])
    assert max(noise.standard_error / noise.value for noise in estimates) < 0.15
    assert 0.85 < np.std(errors) < 1.15  # the error bars are as long as they should be
    assert abs(np.mean(errors)) < 0.25


@pytest.mark.parametrize("batch_size", [2, 16, 256])
def test_the_noise_scale_is_the_same_from_any_batch_size(batch_size):
    loop, recorder = Regression(1), Recorder("linear", 2)
    steps = 60_000 // batch_size
    for _ in range(steps):
        loop.step(recorder, batch_size, parts=2)
    noise = recorder.end_epoch(steps)
    assert abs(noise.value - true_noise_scale(4.0)) < 3 * noise.standard_error < 0.3 * noise.value


def train(recorder: Recorder, clock: Clock, batch_size: int, epochs: int = 5) -> list[NoiseScaleEstimate]:
    """Train in epochs of about 20 M0-steps of progress, then time steps on one to four GPUs."""
    loop, noises = Regression(7), []
    for _ in range(epochs):
        steps = math.ceil(20 * M0 / batch_size)
        for _ in range(steps):
            loop.delta = loop.delta - 0.005 * (batch_size / M0) * loop.step(recorder, batch_size)
        noises.append(recorder.end_epoch(steps, metric=float(loop.delta @ loop.delta)))
    for gpus in (1, 2, 4):
        for m in (8, 16, 32, 64):
            time_steps(recorder, clock, m, gpus)
    return noises


def time_steps(recorder: Recorder, clock: Clock, m: int, gpus: int) -> None:
    for number in range(6):
        for synchronised in (True, False):
            with recorder.step(m, (gpus,), synchronised=synchronised):
                clock.now += pass_time(m) + (0.005 if synchronised and gpus > 1 else 0.0) + (number < 3)


def test_fit_makes_a_card_of_what_was_recorded_and_a_job_runs_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for batch_size in (M0, 8 * M0):  # two runs that record into one folder
        clock = Clock()
        recorder = Recorder("linear", M0, clock)
        noises = train(recorder, clock, batch_size)
        recorder.write(tmp_path / "measured", title="Linear regression", optimizer="SGD")
    assert main(["profile", "fit", str(tmp_path / "measured"), "-o", str(tmp_path / "cards")]) == 0
    assert "wrote" in capsys.readouterr().out
    card = read_card(tmp_path / "cards" / "linear.yaml")
    assert (card.about.title, card.about.optimizer) == ("Linear regression", "SGD")
    profile = CardProfile(card)
    for m in (8, 16, 32, 64):
        assert profile.step_time((1,), m).step_time == pytest.approx(pass_time(m), rel=0.01)
        assert profile.step_time((4,), m).step_time == pytest.approx(pass_time(m) + 0.005, rel=0.01)
    assert card.noise(8 * M0, 4) == pytest.approx(noises[-1].value, rel=0.05)
    (tmp_path / "jobs.csv").write_text(
        "name,time,application,num_replicas,batch_size\na,0,linear,1,64\nb,5,linear,4,256\n"
    )
    result = polluxsim.simulate(tmp_path / "jobs.csv", profiles=tmp_path / "cards", cluster=(1, 4))
    assert list(result.jobs.status) == ["completed"] * 2


def test_what_other_runs_wrote_stays(tmp_path: Path):
    for gpus in (4, 1):
        clock = Clock()
        recorder = Recorder("linear", M0, clock)
        time_steps(recorder, clock, 8, gpus)
        folder = recorder.write(tmp_path)
    loop, recorder = Regression(1), Recorder("linear", M0)
    loop.step(recorder, M0)
    recorder.end_epoch(10)
    recorder.write(tmp_path)
    described = tmp_path / "applications.yaml"
    described.write_text(described.read_text().replace("title: linear", "title: mine"))
    before = described.read_bytes()
    recorder.write(tmp_path, title="yours")
    assert described.read_bytes() == before
    profile = read_profiles(tmp_path)["linear"]
    assert [row[:2] for row in profile.placements] == [((1,), 8), ((4,), 8)]
    assert profile.step_time((4,), 8).sync_time == pytest.approx(0.005)
    assert sorted(path.name for path in folder.iterdir()) == [
        "placements.csv",
        "scalability.csv",
        f"validation-{M0}.csv",
    ]


def gradients(**figures: float) -> None:
    recorder = Recorder("linear", M0)
    recorder.gradients(**{"part": 2.0, "whole": 1.0, "part_size": 16, "batch_size": 64} | figures)  # type: ignore[arg-type]
    recorder.gradients(2.0, 1.0, 16, 128)


def written(
    folder: Path,
    *settings: tuple[int, tuple[int, ...]],
    batch_size: int | None = None,
    synchronised: bool = True,
    **about: str,
) -> None:
    recorder = Recorder("linear", M0)
    for m, gpus in settings:
        with recorder.step(m, gpus, synchronised=synchronised):
            pass
    if batch_size:
        recorder.gradients(2.0, 1.0, 16, batch_size)
        recorder.end_epoch(10)
    recorder.write(folder, **about)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: Recorder("a/b", M0), "application 'a/b'"),
        (lambda _: Recorder("..", M0), "application '..'"),
        (lambda _: gradients(part=math.nan), "part=nan, must be a finite"),
        (lambda _: gradients(whole=math.inf), "whole=inf, must be a finite"),
        (lambda _: gradients(part=-1.0), "part=-1.0, must be a finite"),
        (lambda _: gradients(part_size=64), "part_size=64, must be at least 1 and below batch_size=64"),
        (lambda _: gradients(batch_size=M0 - 1), "batch_size=31, must be the same in an epoch and at least 32"),
        (lambda _: gradients(), "batch_size=128, must be the same in an epoch"),
        (lambda _: Recorder("linear", M0).end_epoch(10), "10 steps with 0 recorded gradients"),
        (written, "no step was recorded"),
        (lambda folder: written(folder, *[(8, (1,))] * 3), "3 steps of 8 examples on (1,) GPUs"),
        (lambda folder: written(folder, *[(8, (4,))] * 4), "0 steps of 8 examples on (4,) GPUs with sync"),
        (lambda folder: written(folder, *[(8, (1,))] * 4, synchronised=False), "0 steps of 8 examples on (1,) GPUs"),
        (lambda folder: written(folder, (8, (0,))), "8 examples on (0,) GPUs; give"),
        (lambda folder: written(folder, batch_size=2 * M0), "record a training with init_batch_size=32 first"),
        (lambda folder: written(folder, *[(8, (1,))] * 4, titel="x"), "titel; choose from title, optimizer"),
    ],
)  # fmt: skip
def test_bad_use_is_one_clear_line_and_writes_nothing(tmp_path: Path, call, message: str):
    with pytest.raises(PolluxSimError) as caught:
        call(tmp_path / "measured")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "measured").exists()
