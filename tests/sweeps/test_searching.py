"""Searches of Optuna: which trials they make, the best one, and what happens if they are interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from small_sweeps import process, results, write_inputs

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.parquet import read_parquet
from polluxsim.run import composing
from polluxsim.run.spec import Choices, Interval, SearchedRuns

pytest.importorskip("optuna", reason="the extra polluxsim[optuna] is not installed")

SEARCH = "hydra/sweeper=optuna"


def described(*words: str) -> SearchedRuns:
    search = composing.read_command([SEARCH, *words], is_sweep=True)
    assert isinstance(search, SearchedRuns)
    return search


def test_overrides_with_several_values_are_the_space_and_the_others_are_fixed() -> None:
    search = described(
        "policy=fifo,srtf", "seed=int(interval(1,9))", "engine.restart_delay=interval(0,60)",
        "engine.interval=tag(log,interval(30,300))", "cluster.num_nodes=range(4,17,4)", "workload=philly-like",
    )  # fmt: skip
    assert search.space == {
        "policy": Choices(("fifo", "srtf")),
        "seed": Interval(1, 9, is_whole=True),
        "engine.restart_delay": Interval(0.0, 60.0),
        "engine.interval": Interval(30.0, 300.0, is_logarithmic=True),
        "cluster.num_nodes": Choices(("4", "8", "12", "16")),
    }
    assert search.fixed == ["workload=philly-like"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "the search has no values to choose among"),
        (["seed=1,2", "hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials is 0, must be a whole number ≥ 1"),
        (["seed=1,2", "hydra.sweeper.direction=up"], "hydra.sweeper.direction is 'up'"),
        (["engine.interval=interval(9,3)"], "engine.interval=interval(9,3): the interval is empty"),
        (["engine.interval=tag(log,interval(0,3))"], "a logarithmic interval must begin above 0"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        described(*words)
    assert problem in str(caught.value)


@pytest.mark.slow
def test_a_search_nears_the_optimum_and_continues_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = write_inputs(tmp_path)
    command = ["-m", SEARCH, "policy=srtf", "engine.restart_delay=interval(0,3000)", *inputs.overrides]
    command.append("hydra.sweeper.sampler.n_startup_trials=4")
    whole = process(*command, "hydra.sweeper.n_trials=12", "hydra.sweep.dir=whole")
    assert whole.returncode == 0, whole.stderr
    part = process(*command, "hydra.sweeper.n_trials=5", "hydra.sweep.dir=parts")
    assert part.returncode == 0, part.stderr
    continued = process(*command, "hydra.sweeper.n_trials=12", "hydra.sweep.dir=parts")
    assert "wrote parts/sweep.parquet: 12 runs, 5 of them found finished" in continued.stdout
    assert results(tmp_path / "parts") == results(tmp_path / "whole")

    table = read_parquet(tmp_path / "whole" / "sweep.parquet").to_pandas()
    best = yaml.safe_load((tmp_path / "whole" / "optimization_results.yaml").read_text())
    row = table["avg_jct"].idxmin()
    assert best["best_value"] == table["avg_jct"][row]
    assert best["best_params"] == {"engine.restart_delay": table["engine.restart_delay"][row]}
    assert best["best_params"]["engine.restart_delay"] < 300  # a longer delay is never better


@pytest.mark.slow
def test_a_metric_that_does_not_exist_is_refused_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = process("-m", SEARCH, "policy.p=-1,1", "policy=pollux", "hydra.sweeper.metric=avg_jt", "hydra.sweep.dir=out")
    assert done.returncode == 2
    assert "hydra.sweeper.metric is 'avg_jt', must be a metric" in done.stderr
    assert "did you mean avg_jct?" in done.stderr
    assert not Path("out").exists()
