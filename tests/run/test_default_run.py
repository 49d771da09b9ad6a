"""Run what needs nothing but this repository: the default run, the readers of logs, the fit of cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from shared_runs import default_run_counts

from polluxsim.cli.main import main
from polluxsim.records.storage import read_run
from polluxsim.run.composing import composed

if TYPE_CHECKING:
    from shared_runs import SharedRuns

FIXTURES = Path(__file__).parents[1] / "logs" / "fixtures"


@pytest.fixture
def run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_without_arguments_replays_the_default_workload(shared_runs: SharedRuns) -> None:
    run = read_run(shared_runs.run("pollux"))
    assert run.info["summary"]["num_jobs"] == 160
    assert run.info["summary"]["cut_off"] == []
    gaps = [record.gap for record in run.result.round_records]
    assert all(gap is not None and -1e-9 <= gap < 0.2 for gap in gaps)
    assert sum(gaps) / len(gaps) < 0.005


def test_a_run_goes_to_a_folder_of_its_own_under_outputs(run_in: Path) -> None:
    assert main(["run", "policy=fifo", "workload=one-job"]) == 0
    (folder,) = (run_in / "outputs").glob("*/*")
    assert read_run(folder).info["summary"]["num_jobs"] == 1


def test_the_default_policy_is_pollux_on_the_shipped_workload(shared_runs: SharedRuns) -> None:
    """`polluxsim run` composes the configuration that the shared run was made with."""
    config = read_run(shared_runs.run("pollux")).info["config"]
    assert composed({}, {}, 0).config == config
    assert config["workload"]["path"] is None


def test_pollux_is_ahead_of_the_tuned_baselines_on_the_shipped_workload(shared_runs: SharedRuns) -> None:
    jct = {
        name: read_run(shared_runs.run(name)).info["summary"]["avg_jct"] for name in ("pollux", "optimus", "tiresias")
    }
    assert jct["pollux"] < 0.75 * jct["optimus"]
    assert jct["pollux"] < 0.9 * jct["tiresias"]


def test_each_default_run_is_simulated_once(shared_runs: SharedRuns) -> None:
    """Tests that need a default run share it. At the end of the session, the terminal summary checks this again."""
    shared_runs.run("tiresias")
    counts = default_run_counts(shared_runs.root)
    assert any("polluxsim.policies.ordered.attained_service.Tiresias" in policy for policy in counts)
    assert {policy: tests for policy, tests in counts.items() if len(tests) > 1} == {}


def test_a_log_is_imported_with_a_report(run_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = FIXTURES / "slurm" / "sacct.txt"
    assert main(["log", "import", "slurm", str(log), "-o", "jobs.parquet", "--gpus", "64", "--skip-bad"]) == 0
    report = capsys.readouterr().out
    assert "inter-arrival" in report
    assert main(["log", "import", "slurm", str(log), "-o", "again.parquet", "--json", "--skip-bad"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs_written"] == pq.read_metadata(run_in / "jobs.parquet").num_rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope", "x", "-o", "y.parquet"], "the format is 'nope', must be one of philly-raw, philly, itp"),
        (["slurm", "nowhere", "-o", "y.parquet"], "nowhere: no such file or folder"),
        (["slurm", str(FIXTURES / "slurm"), "-o", "y.csv"], "must end in .parquet"),
        (
            ["slurm", str(FIXTURES / "slurm"), "-o", "y.parquet", "--gpus", "0"],
            "--gpus is '0', must be whole numbers above 0",
        ),
        (["slurm", str(FIXTURES / "slurm"), "-o", "y.parquet", "--time-zone", "Mars"], "--time-zone is 'Mars'"),
    ],
)
def test_an_impossible_import_is_named(
    run_in: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["log", "import", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not list(run_in.iterdir())


def test_generating_again_gives_the_same_bytes(run_in: Path) -> None:
    for name in ("a.csv", "b.csv"):
        assert main(["workload", "workload=philly-like", "workload.num_jobs=50", "seed=7", "-o", name]) == 0
    assert (run_in / "a.csv").read_bytes() == (run_in / "b.csv").read_bytes()
    shipped = Path(__file__).parents[2] / "workloads" / "philly-like-160.csv"
    assert main(["workload", "workload=philly-like", "-o", "default.csv"]) == 0
    assert (run_in / "default.csv").read_bytes() == shipped.read_bytes()


def of_one_type(path: Path) -> list[str]:
    """Return the lines of a card but those of other GPU types, which are from elsewhere."""
    text, _, _ = path.read_text(encoding="utf-8").partition("\n# The same on other types of GPU")
    return [line for line in text.splitlines() if not line.startswith(("source:", "gpu_type:"))]


@pytest.mark.slow
def test_fitting_again_gives_the_shipped_cards(run_in: Path, osdi21: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "fit", str(osdi21), "-o", "cards", "--figure", "fit.png"]) == 0
    assert "unpacked" in capsys.readouterr().out
    shipped = Path(__file__).parents[2] / "traces"
    assert {path.name for path in (run_in / "cards").iterdir()} == {path.name for path in shipped.glob("*.yaml")}
    for path in (run_in / "cards").iterdir():
        assert of_one_type(path) == of_one_type(shipped / path.name)
    assert (run_in / "fit.png").stat().st_size > 50_000
