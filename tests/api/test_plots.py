"""Figures in notebooks are the command's, and show themselves."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

import polluxsim
from polluxsim.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SMALL = polluxsim.workload("philly-like", num_jobs=6, hours=1)


class OneEach:
    """Give every job the GPUs it asked for, as FIFO would, or none."""

    def allocate(self, view: Any, rng: object) -> Any:
        from polluxsim.policies.ordered.classic import Fifo

        return Fifo().allocate(view, rng)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sweep() -> polluxsim.Sweep:
    return polluxsim.sweep(SMALL, policy=["fifo", "tiresias", OneEach()], seeds=range(6))


def png_of(figure: Any) -> bytes:
    data, _ = figure._repr_mimebundle_()
    return base64.b64decode(data["image/png"])


def test_a_sweep_is_all_combinations_and_seeds_replicate_them(sweep: polluxsim.Sweep) -> None:
    assert len(sweep.frame) == 18
    table = sweep.table(["avg_jct"], baseline="policy=OneEach").frame()["average JCT [h]"]
    assert table.index.tolist() == ["FIFO", "Tiresias", "OneEach"]
    assert table["change"]["FIFO"] == 0
    assert "Means over 6 workloads" in repr(sweep)
    assert "<table" in sweep._repr_html_()


@pytest.mark.parametrize(
    ("kind", "words", "given"),
    [("jct-cdf", [], {}), ("jct-cdf", ["--each"], {"each": True}), ("usage", ["--bin=10min"], {"bin": 10}),
     ("jct-by-application", [], {}), ("fairness-cdf", ["--width=12"], {"width": 12}), ("job", [], {}),
     ("training", ["--application=bert"], {"application": "bert"})],
)  # fmt: skip
def test_a_run_draws_what_the_command_draws(
    tmp_path: Path, sweep: polluxsim.Sweep, kind: str, words: list[str], given: dict[str, object]
) -> None:
    run = sweep.runs[0]
    folder = [] if kind == "training" else [str(run.save(tmp_path / run.name))]
    file = tmp_path / "command.png"
    assert main(["plot", kind, *folder, *words, "-o", str(file)]) == 0
    assert png_of(run.plot(kind, **given)) == file.read_bytes()


@pytest.mark.parametrize("x", ["policy", "seed"])
def test_a_sweep_draws_what_the_command_draws(tmp_path: Path, sweep: polluxsim.Sweep, x: str) -> None:
    table = tmp_path / "sweep.parquet"
    sweep.frame.drop(columns="cut_off").to_parquet(table)
    file = tmp_path / "command.png"
    assert main(["plot", "sweep", str(table), "--x", x, "--metric", "makespan", "-o", str(file)]) == 0
    assert png_of(sweep.plot(x=x, y="makespan")) == file.read_bytes()
    assert png_of(polluxsim.read_sweep(table).plot(x=x, y="makespan")) == file.read_bytes()


def test_a_folder_of_saved_runs_is_a_sweep_without_a_table(tmp_path: Path, sweep: polluxsim.Sweep) -> None:
    for run in sweep.runs[:3]:
        run.save(tmp_path / run.name / f"{run.info['seed']}")
    read = polluxsim.read_sweep(tmp_path)
    assert len(read.runs) == 3
    assert {run.info["seed"] for run in read.runs} == {0, 1, 2}
    table = tmp_path / "mine.parquet"
    read.frame.drop(columns=["cut_off", "folder"]).to_parquet(table)
    assert len(polluxsim.read_sweep(table).frame) == 3


def test_axes_are_there_to_be_changed(tmp_path: Path, sweep: polluxsim.Sweep) -> None:
    figure = polluxsim.compare({"mine": sweep.runs[0], "other": sweep.runs[6]}).plot("jct-cdf")
    before = png_of(figure)
    figure.axes[0].set_title("changed")
    assert png_of(figure) != before
    figure.save(tmp_path / "changed.png")
    assert (tmp_path / "changed.png").read_bytes() == png_of(figure)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [("jct-cfd", {}, "'jct-cfd' is unknown, must be one of jct-cdf.*did you mean jct-cdf"),
     ("usage", {"bim": 3}, "plot usage: there is no option bim; choose from width, dark, each, bin; did you mean bin"),
     ("usage", {"bin": 0.5}, "--bin is 0.5, must be a number of minutes of at least 1"),
     ("usage", {"bin": "x"}, "--bin is 'x', must be a number of minutes"),
     ("sweep", {}, "plot sweep: the setting on the horizontal axis is missing; give x")],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(sweep: polluxsim.Sweep, kind: str, given: dict[str, object], words: str) -> None:
    with pytest.raises(polluxsim.PolluxSimError, match=words) as error:
        sweep.plot(kind, **given)
    assert "\n" not in str(error.value)
