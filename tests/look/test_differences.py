"""Sentences about differences: none below the printed digits, none for one setting, and what counts as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.settings_tables import as_text, notes, verdict
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.tools.gangs import schedule_gangs
from polluxsim.statistics.comparisons import settings_table
from polluxsim.studies.log_calibration import CalibrateRequest, Calibration, Match
from polluxsim.studies.log_replays import (
    Case,
    LogWhatIf,
    LogWhatIfRequest,
    failures_in_words,
)
from polluxsim.studies.replayed_jobs import Replay
from polluxsim.studies.reversals import not_monotone
from polluxsim.studies.sizing import SizeRequest
from polluxsim.studies.verdicts import Agreement, ReplayVerdict
from polluxsim.workloads.workload import Job, Workload


def runs(policies: int, seeds: int, **metrics: Any) -> pd.DataFrame:
    """Return the table of a sweep: completion times that differ by seed, and other metrics, equal in all runs."""
    rng = np.random.default_rng(1)
    rows = [
        {"folder": f"{p}-{seed}", "policy": f"p{p}", "policy._target_": f"m.P{p}", "seed": seed,
         "avg_jct": 3600.0 * (1 + p) * rng.lognormal(0, 0.1), **metrics}
        for p in range(policies)
        for seed in range(seeds)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seeds", [1, 2, 4, 7])
def test_one_setting_has_no_verdict(seeds: int) -> None:
    text = " ".join(notes(settings_table(runs(1, seeds))))
    assert "verdict" not in text.lower()
    assert "pairs" not in text
    assert ("An interval needs 3 runs" in text) == (seeds < 3)


def test_runs_are_independent_if_seeds_change_another_metric() -> None:
    """No run was cut off, so the number is equal in all runs, which are replicates nevertheless."""
    table = settings_table(runs(2, 4, restarts=5), ["restarts"])
    text = " ".join(as_text(table, 400).split())
    assert "count as one" not in text
    assert "Means over 4 seeds" in text
    assert all(row["restarts"].mean.num_units == 4 for row in table.cells.values())


def test_runs_whose_seeds_change_nothing_count_as_one() -> None:
    frame = runs(2, 4, restarts=5).assign(avg_jct=3600.0)
    text = " ".join(as_text(settings_table(frame, ["restarts"]), 400).split())
    assert "count as one" in text


def test_a_change_below_the_printed_digits_is_not_real() -> None:
    frame = runs(1, 8)
    other = frame.assign(policy="p1", avg_jct=frame["avg_jct"] * 1.0001, **{"policy._target_": "m.P1"})
    table = settings_table(pd.concat([frame, other], ignore_index=True), ["avg_jct"])
    change = table.cells["P1"]["avg_jct"].change
    assert change is not None
    assert change.is_real
    assert verdict(table).startswith("No difference")


CASES = [Case("fifo", nodes, 1.0, "off") for nodes in (8, 9)]


def whatif(*waits: float) -> LogWhatIf:
    request = LogWhatIfRequest(Path("log.parquet"), [8, 9], policies=["fifo"])
    by_case = dict(zip(CASES, waits, strict=True))
    whole = Agreement("all jobs", 1, 0.0, 0.0, 0.0, 0.0)
    match = Match("fifo", 64, whole, 1.0, {}, 0)
    calibration = Calibration([match], np.zeros(1), ReplayVerdict("fifo", 64, whole, [], [], []), Path("calibrated"))
    replays = {case: replay(wait) for case, wait in by_case.items()}
    in_table = {case: (wait, wait) for case, wait in by_case.items()}
    return LogWhatIf(request, calibration, {}, replays, ["a"], in_table, {"a": 0.0}, {"a"})


def replay(wait: float) -> Replay:
    """Return a replay of one job that completes."""
    return Replay({"a": wait}, {"a": wait}, {"a": wait + 60.0}, {}, {"a": 1}, 64, {"a": 0}, 0, 0, (), {})


@pytest.mark.parametrize(
    ("waits", "sentence"),
    [
        ((36000.0, 36010.0), "1 more node: leaves the p95 wait at 10 h"),
        ((36000.0, 35990.0), "1 more node: leaves the p95 wait at 10 h"),
        ((36000.0, 36000.0), "1 more node: leaves the p95 wait at 10 h"),
        ((36000.0, 18000.0), "1 more node: cuts the p95 wait from 10 h to 5 h"),
        ((36000.0, 72000.0), "1 more node: raises the p95 wait from 10 h to 20 h"),
    ],
)
def test_a_wait_that_prints_as_before_is_unchanged(waits: tuple[float, float], sentence: str) -> None:
    found = whatif(*waits)
    assert list(found.effects()) == [sentence]
    assert bool(list(not_monotone(found.waits, "p95"))) == (waits[1] == 72000.0)


def test_failures_are_described_with_the_settings_that_the_user_changed() -> None:
    assert failures_in_words("off", []) == "no failures"
    assert failures_in_words("rsc-1", ["seed=1"]) == "failures as in rsc-1"
    words = failures_in_words("rsc-1", ["cluster.failures.rate=40", "+cluster.failures.shape=0.7"])
    assert words == "failures as in rsc-1 with rate=40, shape=0.7"


@pytest.mark.parametrize("word", ["hydra/launcher=ray", "+hydra/launcher=ray", "hydra.launcher.timeout_min=5"])
def test_a_launcher_where_it_has_no_effect_is_refused(word: str) -> None:
    makers = {
        "size": lambda: SizeRequest("makespan < 1h", overrides=[word]),
        "log whatif": lambda: LogWhatIfRequest(Path("log.parquet"), [8], overrides=[word]),
        "log calibrate": lambda: CalibrateRequest(Path("log.parquet"), [8], overrides=[word]),
    }
    for command, make in makers.items():
        with pytest.raises(InvalidConfigError) as error:
            make()
        assert str(error.value).startswith(f"{word} has no effect on {command}, ")


def test_a_launcher_of_one_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("name,time,num_replicas,duration\na,0,1,60\n", encoding="utf-8")
    words = ["policy=fifo", "workload.path=jobs.csv", "hydra/launcher=basic", "hydra.run.dir=run"]
    assert main(["run", *words]) == 0
    assert "hydra/launcher=basic has no effect on one run; add -m for a sweep" in capsys.readouterr().err


@pytest.mark.parametrize("can_fail", [False, True])
def test_a_job_that_leaves_a_dropped_node_is_restarted_by_a_failure(can_fail: bool) -> None:
    """In a run without failures, its next start counted as a restart that the policy had ordered."""
    from polluxsim.engine.failures import JobFailures

    jobs = Workload(tuple(Job.rigid(name, 60.0, 4, 3000.0) for name in "ab"))
    settings = EngineSettings(job_failures=JobFailures(1e-9) if can_fail else None)
    scenario = Scenario(jobs, {}, Cluster((4, 4, 4)), settings)
    run = Simulation(scenario)
    run.fork(Fork(600.0, scenario, lost_nodes=(0,)))
    summary = summarise(run_to_end(run, Fifo()))
    assert summary is not None
    assert (summary.outages, summary.restarts, summary.restarts_by_failure) == (1, 0, 1)


def test_gangs_later_in_the_order_are_paused() -> None:
    """As the docstring of `schedule_gangs` says."""

    class LastFirst:
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Any:
            return schedule_gangs(view, list(view.jobs)[::-1])

    jobs = Workload((Job.rigid("first", 60.0, 4, 3000.0), Job.rigid("last", 600.0, 4, 600.0)))
    result = run_to_end(Simulation(Scenario(jobs, {}, Cluster((4,)), EngineSettings())), LastFirst())
    first, last = result.job_records
    assert last.queueing_delay == 0.0
    assert first.num_restarts == 1
