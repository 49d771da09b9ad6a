"""Forecasts from the present state of a real cluster, against starts known by hand, and against drawn truths."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from polluxsim.cli.main import main
from polluxsim.logs.importing import import_trace

NOW = datetime(2026, 3, 4, 14, tzinfo=UTC)
COLUMNS = ("JOBID", "USER", "PARTITION", "STATE", "SUBMIT_TIME", "START_TIME", "TIME", "TIME_LIMIT", "NODES",
           "TRES_PER_NODE", "NODELIST", "REASON", "DEPENDENCY")  # fmt: skip


def clock(seconds: float) -> str:
    """Return a duration as Slurm writes it."""
    whole = int(seconds)
    return f"{whole // 86400}-{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def instant(seconds: float) -> str:
    """Return the time that is a number of seconds from now, as Slurm writes it."""
    return f"{NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def job(name: str, gpus: int, limit: float | None, **values: str) -> dict[str, str]:
    """Return a waiting job on one node."""
    return {"JOBID": name, "USER": "ada", "PARTITION": "gpu", "STATE": "PENDING",
            "SUBMIT_TIME": instant(-9000 + int(name)), "START_TIME": "N/A", "TIME": "0:00",
            "TIME_LIMIT": "UNLIMITED" if limit is None else clock(limit), "NODES": "1",
            "TRES_PER_NODE": f"gres:gpu:{gpus}", "NODELIST": "", "REASON": "Priority", "DEPENDENCY": "(null)",
            } | values  # fmt: skip


def running(name: str, gpus: int, ran: float, limit: float | None, nodes: str, **values: str) -> dict[str, str]:
    """Return a job that has run for a time [s]."""
    times = {"SUBMIT_TIME": instant(-ran - 60), "START_TIME": instant(-ran), "TIME": clock(ran)}
    return job(name, gpus, limit, STATE="RUNNING", NODELIST=nodes, REASON="None", **times, **values)


def write_queue(path: Path, jobs: Sequence[Mapping[str, str]]) -> Path:
    rows = ["|".join(COLUMNS), *("|".join(job[column] for column in COLUMNS) for job in jobs)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def write_nodes(path: Path, *nodes: tuple[str, str, str]) -> Path:
    """Write a list of nodes with 4 GPUs, each with its partition and its state."""
    rows = ["NODELIST|PARTITION|GRES|STATE|CPUS"]
    rows += [f"{name}|{partition}|gpu:4|{state}|64" for name, partition, state in nodes]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def forecasts(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[dict[str, dict[str, float]], str]:
    """Return the forecasts of the command by job, and what it printed to standard error."""
    capsys.readouterr()
    status = main(["when", *map(str, words), "--json"])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return {row["job"]: row for row in json.loads(printed.out)}, printed.err


def starts(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, float]:
    return {name: row["start_p50"] for name, row in forecasts(capsys, *words)[0].items()}


TWO_NODES = (("n1", "gpu", "mixed"), ("n2", "gpu", "mixed"))

KNOWN = [
    running("1", 4, 1800, 3600, "n1"),  # ends after 1800 s
    running("2", 4, 3600, 7200, "n2"),  # ends after 3600 s
    job("3", 4, 3600, NODES="2"),  # both nodes
    job("4", 4, 3600),
    job("5", 4, 1800),
]
"""Jobs whose starts are known by hand: 3 starts at 3600 s, and 4 and 5 at 7200 s. EASY starts 5 at 1800 s already."""


@pytest.mark.parametrize(("policy", "start_of_5"), [("fifo", 7200.0), ("easy", 1800.0), ("conservative", 1800.0)])
def test_starts_that_are_known_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, start_of_5: float
) -> None:
    queue, nodes = write_queue(tmp_path / "queue", KNOWN), write_nodes(tmp_path / "nodes", *TWO_NODES)
    found, said = forecasts(capsys, queue, "--site", nodes, f"policy={policy}")
    assert {name: row["start_p50"] for name, row in found.items()} == {"3": 3600.0, "4": 7200.0, "5": start_of_5}
    assert all(row["start_p10"] == row["start_p90"] for row in found.values())
    assert {row["now"] for row in found.values()} == {"2026-03-04T14:00:00+00:00"}
    assert "each job runs until its time limit, and no further jobs arrive" in said


def test_the_table_tells_clock_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue, nodes = write_queue(tmp_path / "queue", KNOWN), write_nodes(tmp_path / "nodes", *TWO_NODES)
    assert main(["when", str(queue), "--site", str(nodes), "4", "policy=fifo"]) == 0
    printed = capsys.readouterr().out
    assert "2 running and 3 waiting jobs with GPUs" in printed
    (row,) = [line for line in printed.splitlines() if "ada" in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["4", "ada", "4", "16:00:00", "2 h", "exact", "17:00:00"]
    assert "state at 2026-03-04 14:00:00 UTC" in printed


def test_a_job_that_waits_for_another_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [*KNOWN[:2], job("6", 1, 600, REASON="Dependency", DEPENDENCY="afterok:2(unfulfilled)"),
            job("7", 1, 600, REASON="BeginTime", START_TIME=instant(5000))]  # fmt: skip
    queue, nodes = write_queue(tmp_path / "queue", jobs), write_nodes(tmp_path / "nodes", *TWO_NODES)
    assert starts(capsys, queue, "--site", nodes) == {"6": 3600.0, "7": 5000.0}


def test_jobs_that_cannot_start_delay_no_other_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [*KNOWN[:2], job("3", 4, 3600, NODES="2", REASON="QOSMaxGRESPerUser"), job("4", 4, 3600),
            job("5", 4, 600, REASON="JobHeldUser"), job("6", 4, 600, NODES="3"),
            job("7", 1, 600, REASON="Dependency", DEPENDENCY="afterok:5(unfulfilled)")]  # fmt: skip
    queue, nodes = write_queue(tmp_path / "queue", jobs), write_nodes(tmp_path / "nodes", *TWO_NODES)
    found, said = forecasts(capsys, queue, "--site", nodes, "policy=fifo")
    assert {name: row["start_p50"] for name, row in found.items()} == {"4": 1800.0}
    for reason in ("wait because of a limit (QOSMaxGRESPerUser)", "are held", "do not fit on the nodes that take jobs",
                   "wait for jobs that have no forecast"):  # fmt: skip
        assert f"without forecast, and assumed to delay no other job: 1 waiting jobs that {reason}" in said
    assert main(["when", str(queue), "--site", str(nodes), "5"]) == 2
    assert "job 5 has no forecast, as all waiting jobs that are held" in capsys.readouterr().err


def test_a_drained_node_takes_no_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [*KNOWN[:2], job("4", 4, 3600)]
    queue = write_queue(tmp_path / "queue", jobs)
    nodes = write_nodes(tmp_path / "nodes", ("n1", "gpu", "draining"), ("n2", "gpu", "mixed"))
    found, said = forecasts(capsys, queue, "--site", nodes)
    assert found["4"]["start_p50"] == 3600.0  # not 1800 s, when n1 is free
    assert "left out: 1 running jobs that run on nodes that take no other jobs" in said


def write_history(folder: Path, run_times: Sequence[float], gap: float = 600.0) -> Path:
    """Write a log of jobs with 4 GPUs, the last of which began one day ago."""
    rows = ["JobID|User|Partition|State|Submit|Start|End|NNodes|AllocTRES"]
    for number, run_time in enumerate(run_times):
        begin = -86400 - gap * (len(run_times) - number)
        times = f"{instant(begin)}|{instant(begin)}|{instant(begin + run_time)}"
        rows.append(f"{1000 + number}|ada|gpu|COMPLETED|{times}|1|gres/gpu=4")
    log, trace = folder / "sacct.txt", folder / "history.parquet"
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    import_trace("slurm", log, trace)
    return trace


def test_run_times_depend_on_how_long_a_job_has_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = write_history(tmp_path, [1000.0, 5000.0] * 60)
    nodes = write_nodes(tmp_path / "nodes", ("n1", "gpu", "mixed"))
    words = ("--site", nodes, "--history", history, "--arrivals", "none")
    fresh = write_queue(tmp_path / "fresh", [running("1", 4, 10, None, "n1"), job("2", 4, None)])
    old = write_queue(tmp_path / "old", [running("1", 4, 2000, None, "n1"), job("2", 4, None)])
    # A new job ends after 1000 or 5000 s. One that has run for 2000 s ends after 5000 s, unless it is a new record.
    row = forecasts(capsys, fresh, *words)[0]["2"]
    assert row["start_p10"] < 1100
    assert row["start_p90"] > 3000
    row = forecasts(capsys, old, *words)[0]["2"]
    assert 500 < row["start_p10"] <= row["start_p50"] <= row["start_p90"]
    assert 2900 < row["start_p90"] < 3600


def test_later_jobs_do_not_go_before_earlier_ones_under_fifo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = write_history(tmp_path, [900.0] * 100, gap=1000.0)  # the node is busy for 90 % of the time
    nodes = write_nodes(tmp_path / "nodes", ("n1", "gpu", "mixed"))
    jobs = [running("1", 4, 10, 7200, "n1"), job("2", 4, 7200), job("3", 4, 3600)]
    queue = write_queue(tmp_path / "queue", jobs)
    words = (queue, "--site", nodes, "--history", history)
    alone = forecasts(capsys, *words, "policy=fifo", "--arrivals", "none")[0]["3"]
    among = forecasts(capsys, *words, "policy=fifo")[0]["3"]
    assert alone["start_p50"] == pytest.approx(among["start_p50"], rel=0.3)  # drawn anew
    _, said = forecasts(capsys, *words)
    assert "arrivals: resampled from 100 jobs of" in said


def test_intervals_contain_drawn_truths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run times of the log and of the running job are draws from one distribution."""
    rng = np.random.default_rng(0)
    nodes = write_nodes(tmp_path / "nodes", ("n1", "gpu", "mixed"))
    held, worlds = 0, 24
    for _ in range(worlds):
        history = write_history(tmp_path, np.round(rng.lognormal(8, 1, size=80) + 1).tolist())
        ran = float(np.round(rng.uniform(10, 4000)))
        total = 0.0
        while total <= ran:
            total = float(rng.lognormal(8, 1))
        queue = write_queue(tmp_path / "queue", [running("1", 4, ran, None, "n1"), job("2", 4, None)])
        row = forecasts(capsys, queue, "--site", nodes, "--history", history, "--arrivals", "none")[0]["2"]
        held += row["start_p10"] <= total - ran + 10 and total - ran <= row["start_p90"]  # rounds are 10 s apart
    assert 0.63 <= held / worlds <= 0.97  # 80 % ± 2 standard deviations of 24 draws


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the nodes of the cluster are missing; give the output of sinfo"),
        (["--site", "nodes", "--at", "3h"], "queue is a file, not a run, so that --at cannot be used"),
        (["--site", "nodes", "cluster.num_nodes=3"], "cluster.num_nodes=3 cannot be used with --site"),
        (["--site", "nodes", "workload.path=x"], "workload.path=x has no effect: the jobs are those of the queue"),
        (["--site", "nodes", "--arrivals", "none"], "--arrivals none needs --history"),
        (["--site", "nodes", "--taken", "noon"], "--taken is noon, must be a time like 2026-03-04T14:00"),
        (["--site", "nodes", "77"], "job '77' neither waits nor runs"),
        (["--site", "nodes", "--time-zone", "Mars"], "--time-zone is 'Mars', must be a name like Europe/Berlin"),
    ],
)
def test_wrong_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_queue(tmp_path / "queue", KNOWN)
    write_nodes(tmp_path / "nodes", *TWO_NODES)
    assert main(["when", "queue", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_limits_and_log_nothing_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = write_queue(tmp_path / "queue", [running("1", 4, 10, None, "n1"), job("2", 4, 60)])
    nodes = write_nodes(tmp_path / "nodes", *TWO_NODES)
    assert main(["when", str(queue), "--site", str(nodes)]) == 2
    assert "1 jobs have no time limit, like 1, so nothing is known about their run times" in capsys.readouterr().err


def test_the_log_of_a_larger_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = write_history(tmp_path, [9000.0] * 100, gap=1000.0)
    queue, nodes = write_queue(tmp_path / "queue", KNOWN), write_nodes(tmp_path / "nodes", *TWO_NODES)
    assert main(["when", str(queue), "--site", str(nodes), "--history", str(history)]) == 2
    assert "its jobs need 4.5 times the GPU time of the nodes" in capsys.readouterr().err
