"""From what sacct prints to one page: which policy it was, and what more nodes, load and other policies do."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.studies.log_calibration import CalibrateRequest
from polluxsim.studies.log_replays import Case, LogWhatIfRequest
from polluxsim.studies.reversals import not_monotone
from polluxsim.workloads.workload import Job, Workload

COLUMNS = "JobID|JobName|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|ReqTRES|AllocTRES"


def sacct(path: Path, nodes: int) -> None:
    """Write what sacct would print of a cluster of 8-GPU nodes under FIFO."""
    rng = np.random.default_rng(0)
    times, lengths = np.sort(rng.uniform(0, 86400, 120)).round(), rng.lognormal(8.6, 1, 120).round() + 60
    jobs = [
        Job.rigid(f"{n}", float(times[n]), int(rng.choice([1, 2, 4, 8])), float(lengths[n])) for n in range(len(times))
    ]
    engine = EngineSettings(restart_delay=0, round_interval=10, placement="consolidated")
    run = simulate(Workload(tuple(jobs)), {}, Cluster.uniform(nodes, 8), Fifo(), settings=engine)
    lines = [COLUMNS]
    for job in run.job_records:
        assert job.start_time is not None
        assert job.completion_time is not None
        submit, start, end = (
            (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=time)).strftime("%Y-%m-%dT%H:%M:%S")
            for time in (job.submit_time, job.start_time, job.completion_time)
        )
        tres = f"billing=1,cpu=1,gres/gpu={job.num_replicas},node=1"
        took = round(job.completion_time - job.start_time)
        lines.append(f"{job.job}|j|u|a|gpu|COMPLETED|{submit}|{start}|{end}|{took}|1440|1|{tres}|{tres}")
    path.write_text("\n".join(lines) + "\n")


def test_one_command_from_the_log_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sacct(tmp_path / "sacct.txt", 3)
    capsys.readouterr()
    command = ["log", "whatif", "sacct.txt", "--nodes", "3,+1", "--load", "1,1.2", "--policies", "easy,fifo"]
    assert main(command) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("fifo on 24 GPUs explains most of the waits in the log: 100 % of a mean wait of ")
    assert "120 jobs waited" in told
    assert told.index("fifo is off by") < told.index("easy is off by")  # as it was FIFO that made the log
    assert "1 more node: cuts the p95 wait from" in told
    assert "1.2 times the load: raises the p95 wait from" in told
    assert "easy in place of fifo: " in told
    runs = [polluxsim.read(path.parent) for path in Path("sacct-whatif/runs").rglob("run.json")]
    assert len(runs) == 8
    more = ["--percentile", "p50,p99", "--failures", "off,drawn", "cluster.failures.rate=2000", "--policies", "fifo"]
    assert main(["log", "whatif", "sacct.txt", "--nodes", "3", *more]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "│ policy │ nodes │ load │ failures │ mean wait │ p50 wait │ p99 wait │" in told.replace("┃", "│")
    assert "failures as in drawn with rate=2000: raises the p50 wait from" in told
    rare = ["--failures", "off,on", "--policies", "fifo", "seed=1"]
    assert main(["log", "whatif", "sacct.txt", "--nodes", "3", *rare]) == 0
    assert "failures as in rsc-1: no node fails in this replay; try" in " ".join(capsys.readouterr().out.split())
    for words, wrong in ((["--nodes", "3", "--percentile", "p80"], "--percentile is 'p80'"),
                         (["--nodes", "x"], "--nodes is 'x'"), (["--nodes", "3", "--load", "a"], "--load is 'a'"),
                         (["--user", "v"], "--user is 'v', which no job of the log has; the log has u"),
                         (["--partition", "x"], "--partition is 'x', which no job of the log has")):  # fmt: skip
        assert main(["log", "whatif", "sacct.txt", *words]) == 2
        assert wrong in capsys.readouterr().err


def test_a_log_is_replayed_under_policies_with_settings_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sacct(tmp_path / "sacct.txt", 3)
    lines = Path("sacct.txt").read_text().splitlines()
    accounts = [line.replace("|u|a|", f"|u|{'ab'[n % 2]}|") for n, line in enumerate(lines)]
    Path("sacct.txt").write_text("\n".join(accounts) + "\n")
    command = ["log", "whatif", "sacct.txt", "--nodes", "3", "--policies"]
    assert main([*command, "fifo,quotas(gpus={a: 12, b: 12}),quotas"]) == 0
    said = capsys.readouterr().out
    assert "quotas: policy Quotas: policy.gpus gives GPUs to no queue of a job, so each" in " ".join(said.split())
    configs = [polluxsim.read(path.parent).info["config"] for path in Path("sacct-whatif/runs").rglob("run.json")]
    assert sorted(str(config["policy"].get("gpus")) for config in configs) == ["None", "{'a': 12, 'b': 12}", "{}"]
    assert main([*command, "fifo,quotas(gpus={c: 12})"]) == 2
    assert "policy.gpus names queue 'c', which does not exist here; use one of 'a', 'b'" in capsys.readouterr().err
    gpus = ["--gpus", "24", "--policies", "fifo,quotas(gpus={a: 12})"]
    assert main(["log", "calibrate", "sacct-whatif/log.parquet", *gpus, "--workers", "1"]) == 0
    assert "quotas(gpus={a: 12})" in " ".join(capsys.readouterr().out.split())


def test_more_nodes_that_do_worse_are_named() -> None:
    waits = {Case("fifo", nodes, 1.0, "off"): (0.0, wait) for nodes, wait in ((8, 60.0), (9, 90.0), (10, 30.0))}
    waits |= {Case("fifo", 8, 0.5, "off"): (0.0, 75.0)}
    assert list(not_monotone(waits, "p90")) == [
        "not monotone: fifo, load 1: the p90 wait is 90 s with 9 nodes and 60 s with 8 nodes",
        "not monotone: fifo, 8 nodes: the p90 wait is 75 s with load 0.5 and 60 s with load 1",
    ]


def test_not_monotone_names_the_failures_if_there_are_several() -> None:
    cases = [Case("fifo", nodes, 1.0, failures) for failures in ("off", "rsc-1") for nodes in (8, 9)]
    lines = list(not_monotone({case: (0.0, float(case.nodes)) for case in cases}, "p90"))
    assert [line.split(": the")[0] for line in lines] == [
        "not monotone: fifo, load 1, failures off", "not monotone: fifo, load 1, failures rsc-1"
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["cluster/failures=rsc-1", "cluster.failures=null"])
def test_failures_that_the_replays_vary_are_no_override(word: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{word} sets in every run what --failures varies"):
        LogWhatIfRequest(Path("log.parquet"), [3], overrides=[word])


def test_nothing_to_replay_is_refused() -> None:
    for name in ("loads", "policies", "failures", "percentiles"):
        with pytest.raises(InvalidConfigError, match=f"{name} has no value; give at least one"):
            LogWhatIfRequest(**{"log": Path("log.parquet"), "nodes": [3], name: []})
    with pytest.raises(InvalidConfigError, match="policies has no value"):
        CalibrateRequest(Path("log.parquet"), [8], policies=[])


def test_waits_are_compared_over_the_jobs_of_all_replays(tmp_path: Path) -> None:
    sacct(tmp_path / "sacct.txt", 3)
    assert main(["log", "import", "slurm", str(tmp_path / "sacct.txt"), "-o", str(tmp_path / "log.parquet")]) == 0
    horizon, policies = ("engine.horizon=80000",), ("fifo", "srtf")
    found = [
        polluxsim.calibrate(CalibrateRequest(tmp_path / "log.parquet", [8], chosen, 8, tmp_path / "runs", horizon, 1))
        for chosen in (policies, policies[::-1])
    ]
    assert found[0].recorded.tolist() == found[1].recorded.tolist()


def test_equal_replays_and_jobs_that_are_left_have_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sacct(tmp_path / "sacct.txt", 3)
    assert main(["log", "import", "slurm", "sacct.txt", "-o", "log.parquet"]) == 0
    capsys.readouterr()
    twice = ["--policies", "easy,easy(overestimate=1)"]
    assert main(["log", "calibrate", "log.parquet", "--gpus", "24,24", *twice, "engine.horizon=9000"]) == 0
    assert capsys.readouterr().out.count("│ easy") == 2
    assert main(["log", "whatif", "log.parquet", "--nodes", "3,+1", *twice, "engine.horizon=9000"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "easy(overestimate=1) in place of easy: leaves the p95 wait at " in told
    assert " never started" in told


@pytest.mark.parametrize(
    "words",
    ["log calibrate log.parquet --gpus 8 policy=fifo", "log calibrate log.parquet --gpus 8 cluster.num_nodes=2",
     "log whatif log.parquet --nodes 8 cluster.num_nodes=2", "log whatif log.parquet --nodes 8 workload.load_factor=2",
     "size --target 'p90 wait < 1 h' cluster.num_nodes=2",
     "size --target 'p90 wait < 1 h' --highest-load workload.load_factor=2"],
)  # fmt: skip
def test_a_setting_that_runs_vary_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    *command, setting = shlex.split(words)
    assert main([*command, setting]) == 2
    assert f"{setting} sets in every run what " in capsys.readouterr().err


def test_a_partition_that_cannot_be_replayed_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two partitions has no job of the user."""
    monkeypatch.chdir(tmp_path)
    sacct(tmp_path / "sacct.txt", 3)
    other = "900|j|v|a|old|COMPLETED|2026-01-02T00:00:00|2026-01-02T00:00:00|2026-01-02T01:00:00|3600|60|1|{0}|{0}"
    with Path("sacct.txt").open("a") as file:
        file.write(other.format("billing=1,cpu=1,gres/gpu=8,node=1") + "\n")
    command = ["log", "whatif", "sacct.txt", "--policies", "fifo", "--user", "u"]
    assert main(command) == 0
    sections = capsys.readouterr().out.split("partition old:")
    assert "1 more node: cuts the p95 wait from" in " ".join(sections[0].split())
    reason = "--user is 'u', which no job of partition old has; partition old has v"
    assert sections[1].splitlines()[1] == f"not replayed: {reason}"
    assert main([*command, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["partitions"]
    assert answers["old"]["not_replayed"] == reason
    assert answers["gpu"]["cases"]
    assert main(["log", "whatif", "sacct.txt", "--policies", "fifo", "--user", "w"]) == 2
    assert "--user is 'w', which no job of partition gpu has" in capsys.readouterr().err


def test_a_partition_that_cannot_be_replayed_does_not_stop_the_calibration_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of two partitions has no job of the user. A partition that no job has is a mistake in the options."""
    monkeypatch.chdir(tmp_path)
    sacct(tmp_path / "sacct.txt", 3)
    other = "900|j|v|a|old|COMPLETED|2026-01-02T00:00:00|2026-01-02T00:00:00|2026-01-02T01:00:00|3600|60|1|{0}|{0}"
    with Path("sacct.txt").open("a") as file:
        file.write(other.format("billing=1,cpu=1,gres/gpu=8,node=1") + "\n")
    assert main(["log", "import", "slurm", "sacct.txt", "-o", "log.parquet"]) == 0
    capsys.readouterr()
    command = ["log", "calibrate", "log.parquet", "--policies", "fifo", "--workers", "1"]
    apart = [*command, "--partition-gpus", "old=8,gpu=8"]
    assert main([*apart, "--user", "u"]) == 0
    first, second = capsys.readouterr().out.split("partition gpu:")
    reason = "--user is 'u', which no job of partition old has; partition old has v"
    assert first.splitlines() == ["partition old:", f"not replayed: {reason}"]
    assert "fifo on 8 GPUs explains" in " ".join(second.split())
    assert "a wait is all time without GPUs" in second
    assert main([*apart, "--user", "u", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["partitions"]
    assert answers["old"] == {"not_replayed": reason}
    assert answers["gpu"]["replays"]
    assert main([*apart, "--user", "w"]) == 2
    assert "--user is 'w', which no job of partition old has" in capsys.readouterr().err
    assert main([*command, "--partition-gpus", "gpu=8,odl=8"]) == 2
    assert "--partition-gpus is 'odl', which no job of the log has; the log has gpu, old" in capsys.readouterr().err
