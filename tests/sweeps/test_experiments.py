"""Run the experiments on failures and agents with a few small runs each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polluxsim.cli.main import main
from polluxsim.records.storage import read_run

pytestmark = pytest.mark.slow

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("failures", ["policy=fifo", "workload.num_jobs=4", "workload.hours=1", "cluster.failures.rate=0,20"]),
        ("checkpoints", ["cluster.failures.rate=20", "workload.duration=7200"]),
    ],
)
def test_what_they_are_for_is_in_their_dataset(tmp_path: Path, name: str, arguments: list[str]) -> None:
    every = ["engine.checkpoints.every=600,3600", "seed=0", "hydra.sweeper.workers=1", f"hydra.sweep.dir={tmp_path}"]
    command = ["run", "-m", "--config-dir", str(EXPERIMENTS), f"+experiment={name}", *arguments, *every]
    assert main(command) == 0
    found = pd.read_parquet(tmp_path / "sweep.parquet")
    assert len(found) == 2 * (1 + (name == "failures"))
    columns = found[["effective_time_ratio", "gpu_time.checkpoint", "gpu_time.lost", "avg_jct"]]
    assert columns.notna().all().all()
    by_interval = found.groupby("engine.checkpoints.every")["gpu_time.checkpoint"].mean()
    assert by_interval[600.0] > by_interval[3600.0]


def test_the_example_of_shared_gpus_shows_them_in_the_report(tmp_path: Path, browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    assert main(["run", "+experiment=shared-gpus", f"hydra.sweep.dir={tmp_path}", "hydra.sweeper.workers=1"]) == 0
    packed, alone = (read_run(folder) for folder in sorted(path.parent for path in tmp_path.glob("*/run.json")))
    assert len({record.job for record in packed.result.sharing_records}) > 10
    assert not alone.result.sharing_records
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 0
    job = next(record.job for record in packed.result.sharing_records if record.speed < 1)
    browser.get(f"{(tmp_path / 'r.html').as_uri()}#job/0/{job}")
    ready = "return document.documentElement.dataset.ready === 'true'"
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(ready))
    told = browser.execute_script("return document.getElementById('job-shared').textContent")
    assert re.search(r"\d+ % of its speed alone, beside (storage|compute|network|balanced)-\d+", told)


def test_agents_are_compared_on_the_same_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = ["workload.num_jobs=6", "workload.hours=1", "policy=tiresias", "seed=0", "hydra.sweeper.workers=1"]
    command = ["run", "-m", "--config-dir", str(EXPERIMENTS), "+experiment=agents", *jobs]
    assert main([*command, f"hydra.sweep.dir={tmp_path}"]) == 0
    found = pd.read_parquet(tmp_path / "sweep.parquet")
    assert found["agent._target_"].nunique() == found["avg_jct"].nunique() == 4
    runs = [str(path.parent) for path in sorted(tmp_path.glob("*/run.json"))]
    assert main(["compare", *runs, "--by", "agent._target_"]) == 0
    shown = capsys.readouterr().out
    assert "no two runs" not in shown
    assert all(name in shown for name in ("FixedBatch", "AdaBatch", "NoiseScale", "MostGoodput"))
