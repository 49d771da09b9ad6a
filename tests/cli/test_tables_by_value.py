"""`polluxsim table --by`: a table for each value of a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from polluxsim.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Return the path of a dataset with two policies, two numbers of jobs and three seeds."""
    rows = []
    for seed in range(3):
        for number in (20, 60):
            for policy in ("a.Fifo", "b.Tiresias"):
                jct = 3600.0 * number + 100 * seed + 50 * policy.startswith("b")
                rows.append({"policy._target_": policy, "workload.num_jobs": number, "seed": seed, "avg_jct": jct})
    path = tmp_path / "sweep.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return str(path)


def test_each_value_has_a_table_with_its_own_baseline(dataset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", dataset, "--by", "workload.num_jobs", "--metric", "avg_jct"]) == 0
    text = capsys.readouterr().out
    first, second = text.split("num jobs = 60")
    assert first.startswith("num jobs = 20")
    for part in (first, second):
        assert "Change against FIFO (baseline)" in part
        assert "Tiresias" in part
    assert "60." in second
    assert "60." not in first


def test_policies_can_have_a_table_each(dataset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", dataset, "--by", "policy", "--metric", "avg_jct", "--markdown"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("### ")]
    assert headings == ["### FIFO", "### Tiresias"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--by", "workload.num_job"], "the runs have no setting 'workload.num_job'"),
        (["--by", "policy", "--csv"], "--by cannot be used with --csv"),
        (["--by", "policy", "--ranks", "user"], "--ranks cannot be used with --by"),
        (["--by", "policy", "--energy", "user"], "--energy cannot be used with --by"),
    ],
)
def test_what_cannot_be_grouped_is_refused(
    dataset: str, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", dataset, *options]) == 2
    assert problem in capsys.readouterr().err
