"""Verdicts on drawn logs whose waits have a known cause; `benchmarks/credible_answers.py` has the whole draw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from credible_answers import judged
from drawn_logs import Drawn, World, as_sacct, draw_jobs, draw_world, starts

from polluxsim.cli.main import main
from polluxsim.studies.log_sections import sections_of_nodes
from polluxsim.studies.logged_jobs import logged_jobs
from polluxsim.studies.verdicts import Agreement, Grade, agreement


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("cause", "first"),
    [("none", ""), ("user-limits", "limits of users"), ("second-partition", "partitions"),
     ("cpu-jobs", "jobs without GPUs")],
)  # fmt: skip
def test_the_verdict_tells_logs_with_a_hidden_cause(cause: str, first: str, seed: int) -> None:
    verdict = judged(cause, seed)
    assert verdict.is_explained == (cause == "none")
    assert verdict.first == first


@pytest.mark.parametrize(
    ("recorded", "period_error", "grade"),
    [(3600.0, 360.0, Grade.MOST), (3600.0, 1500.0, Grade.HALF), (3600.0, 2000.0, Grade.LITTLE),
     (3600.0, 7200.0, Grade.LITTLE), (100.0, 59.0, Grade.MOST), (0.0, 0.0, Grade.MOST), (0.0, 600.0, Grade.LITTLE)],
)  # fmt: skip
def test_a_grade_follows_from_the_share_of_the_waits(recorded: float, period_error: float, grade: Grade) -> None:
    assert Agreement("all jobs", 2, recorded, 0.0, 0.0, period_error).grade is grade


def test_waits_that_two_jobs_exchange_within_a_period_are_explained() -> None:
    """The first two jobs are submitted within 6 h, and the third one later."""
    found = agreement("all jobs", np.array([0.0, 7200.0, 30000.0]), np.array([0.0, 3600.0, 60.0]),
                      np.array([3600.0, 0.0, 0.0]))  # fmt: skip
    assert found.error == pytest.approx(7260 / 3)
    assert found.period_error == pytest.approx(60 / 3)
    assert found.explained == pytest.approx(1 - 60 / 3660)


def of(submit: float, gpus: int, duration: float, **more: object) -> Drawn:
    return Drawn(0, submit, gpus, duration, duration, "user00")._replace(**more)


def test_the_small_simulation_starts_jobs_as_by_hand() -> None:
    """Four GPUs. `b` needs all of them; `c` fits beside `a` and ends before it, so only EASY starts it early."""
    jobs = [of(0, 2, 100), of(10, 4, 50), of(20, 2, 60)]
    world = World("none", "fifo", {"gpu": 4}, float("inf"), {}, 1, 0)
    assert starts(world, jobs) == [0, 100, 150]
    assert starts(World("none", "easy", {"gpu": 4}, float("inf"), {}, 1, 0), jobs) == [0, 100, 20]
    limited = World("user-limits", "fifo", {"gpu": 8}, 4.0, {}, 1, 0)
    assert starts(limited, [*jobs[:2], jobs[2]._replace(user="user01")]) == [0, 100, 20]
    apart = World("second-partition", "fifo", {"gpu": 2, "long": 4}, float("inf"), {}, 1, 0)
    assert starts(apart, [jobs[0], jobs[1]._replace(partition="long"), jobs[2]]) == [0, 10, 100]


def _each_partition(gpus: Mapping[str, int], policies: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Check the sections of `log whatif` and `log calibrate` with a list of nodes, and return what they print."""
    small, large = gpus["gpu"], gpus["long"]
    rows = [f"g{number}|gpu|gpu:1|idle|8" for number in range(small)]
    rows += [f"l{number}|long|gpu:1|idle|8" for number in range(large)]
    Path("nodes.txt").write_text("\n".join(["NODELIST|PARTITION|GRES|STATE|CPUS", *rows]) + "\n")
    assert main(["log", "whatif", "log.parquet", "--nodes-from", "nodes.txt", *policies, "--extra", "2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    first, second = told.split("partition long: ")
    words = "nodes of 1 GPU, according to nodes.txt"
    assert first.startswith(f"partition gpu: partition gpu has {small} {words}")
    assert second.startswith(f"partition long has {large} {words}")
    assert first.count("2 more nodes: ") == second.count("2 more nodes: ") == 1
    whole = told
    assert main(["log", "calibrate", "log.parquet", "--nodes-from", "nodes.txt", *policies, "-o", "from"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"partition long: partition long has {large} {words}" in told
    assert main(["log", "whatif", "log.parquet", "--nodes-from", "nodes.txt", "--nodes", "8"]) == 2
    assert "--nodes-from and --nodes contradict each other" in capsys.readouterr().err
    rows.append("g0|long|gpu:1|idle|8")  # node g0 is in both partitions
    Path("nodes.txt").write_text("\n".join(["NODELIST|PARTITION|GRES|STATE|CPUS", *rows]) + "\n")
    sections = sections_of_nodes(Path("nodes.txt"), list(logged_jobs(Path("log.parquet")).values()))
    assert [(section.partition, section.nodes) for section in sections] == [("gpu,long", small + large)]
    assert sections[0].sentences[0].startswith("partitions gpu and long share nodes and are pooled: each job may use")
    return whole + told


def test_a_calibration_finds_the_limit_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log was drawn under FIFO with at most 8 GPUs of each user, and the replay with this limit explains it."""
    monkeypatch.chdir(tmp_path)
    world = draw_world("user-limits", 3, days=10.0)
    assert (world.policy, world.gpus, world.user_limit) == ("fifo", {"gpu": 24}, 8)
    jobs = draw_jobs(world)
    Path("sacct.txt").write_text(as_sacct(jobs, starts(world, jobs)))
    assert main(["log", "import", "slurm", "sacct.txt", "-o", "log.parquet"]) == 0
    replays = ["log.parquet", "--policies", "fifo", "--gpus-per-node", "1"]
    assert main(["log", "calibrate", *replays, "--gpus", "24"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "not explained" in told
    assert "the site seems to limit its users: with at most 8 GPUs of each user, fifo on 24 GPUs explains 100 %" in told
    assert "add engine.limits.all.user_gpus=8" in told
    whatif = ["log", "whatif", *replays, "--nodes", "24", "--user-gpus", "16"]
    assert main([*whatif, "engine.limits.all.user_gpus=8"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("fifo on 24 GPUs explains most of the waits in the log: 100 %")
    assert "at most 16 GPUs of each user: " in told


def test_pooled_partitions_are_stated_first_and_replayed_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    world = draw_world("second-partition", 1, days=6.0)
    jobs = draw_jobs(world)
    Path("sacct.txt").write_text(as_sacct(jobs, starts(world, jobs)))
    assert main(["log", "import", "slurm", "sacct.txt", "-o", "log.parquet"]) == 0
    small, large = world.gpus["gpu"], world.gpus["long"]
    command = ["log", "calibrate", "log.parquet", "--gpus-per-node", "1", "--workers", "1"]
    capsys.readouterr()
    assert main([*command, "--gpus", str(small + large)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("pooled: the log has 2 partitions, and this replay lets every job use the GPUs of all")
    assert "partition gpu │" in told
    policies = ["--policies", world.policy]
    assert main([*command, *policies, "--partition-gpus", f"gpu={small},long={large}", "-o", "apart"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    first, second = told.split("partition long:")
    assert first.startswith(f"partition gpu: {world.policy} on {small} GPUs explains most of the waits in the log")
    assert f"{world.policy} on {large} GPUs" in second
    assert "pooled" not in told
    whatif = ["log", "whatif", "log.parquet", "--partition", "gpu", "--gpus-per-node", "1", *policies]
    assert main([*whatif, "--user", "user00"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"inferred from the log: at most {small} GPUs were in use at once, so the cluster has")
    number = sum(job.user == "user00" and job.partition == "gpu" for job in jobs)
    assert f"{number} jobs waited" in told
    assert "1 more node: " in told
    assert "95 % interval" in told
    told_of_each = _each_partition(world.gpus, policies, capsys)
    assert "pooled" not in told_of_each
    assert main([*command, "--gpus", "8", "--partition-gpus", "gpu=8"]) == 2
    assert "--gpus and --partition-gpus contradict each other; leave one out" in capsys.readouterr().err
