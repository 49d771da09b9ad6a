"""Outages of forks that end: which GPUs jobs get, by hand, and forks of forks that repeat the outage."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import PolluxSimError
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload, write_workload

if TYPE_CHECKING:
    from polluxsim import Result

# Two nodes of 4 GPUs; rounds every 60 s, starts without delay. `a` and `b` hold a node each from 60 s on, for 6000 s.
# `c` comes at 3600 s and would start at the end of the two, at the round at 6060 s.
JOBS = Workload((Job.rigid("a", 0.0, 4, 6000.0), Job.rigid("b", 0.0, 4, 6000.0), Job.rigid("c", 3600.0, 8, 600.0)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    file = tmp_path_factory.mktemp("jobs") / "jobs.csv"
    write_workload(JOBS, file)
    settings = polluxsim.settings(restart_delay=0.0)
    return polluxsim.simulate(file, policy="fifo", cluster=(2, 4), settings=settings, progress=False)


def starts(run: Result) -> dict[str, list[tuple[float, tuple[int, ...]]]]:
    found: dict[str, list[tuple[float, tuple[int, ...]]]] = {"a": [], "b": [], "c": []}
    for record in run.result.allocation_records:
        found[record.job].append((record.time, record.nodes))
    return found


def test_the_job_of_a_node_that_goes_down_goes_on_after_the_outage(run: Result) -> None:
    assert starts(run) == {
        "a": [(60.0, (0,)), (6060.0, ())],
        "b": [(60.0, (1,)), (6060.0, ())],
        "c": [(6060.0, (0, 1)), (6660.0, ())],
    }
    fork = run.at(1800.0).fork(down=([1], "30min"))
    # `b` loses node 1 at 1800 s and gets it back at the round at 3600 s: it ends 1800 s later than before, at 7860 s.
    assert starts(fork)["b"] == [(60.0, (1,)), (1800.0, ()), (3600.0, (1,)), (7860.0, ())]
    assert {job.job: job.completion_time for job in fork.result.job_records} == {"a": 6060.0, "b": 7860.0, "c": 8460.0}
    (outage,) = fork.result.outage_records
    assert (outage.time, outage.until, outage.node, outage.kind) == (1800.0, 3600.0, 1, "outage")
    # While both nodes are down, no job holds a GPU, and the run waits for the end.
    long = run.at(1800.0).fork(down=([0, 1], 10 * 86400.0))
    assert starts(long)["a"][-2] == (1800.0 + 10 * 86400.0, (0,))
    assert all(job.completion_time is not None for job in long.result.job_records)


def test_an_outage_of_a_fork_is_a_recorded_outage_of_a_run(tmp_path: Path) -> None:
    """Draw outages, and compare each with the run whose file of failures has it, from rounds on to their ends."""
    draw = random.Random(0)
    for number in range(12):
        jobs = [
            Job.rigid(f"{index}", float(draw.randrange(4000)), draw.choice([1, 2, 4, 8]), draw.uniform(100, 4000))
            for index in range(12)
        ]
        jobs.append(Job.rigid("first", 0.0, 1, 100.0))
        workload = tmp_path / f"{number}-jobs.csv"
        write_workload(Workload(tuple(jobs)), workload)
        time = 60.0 * draw.randrange(2, 60)
        hours = draw.choice([600.0, 1234.5, 7200.0])
        nodes = draw.sample(range(4), draw.choice([1, 2]))
        file = tmp_path / f"{number}.csv"
        rows = [f"{node},{time},{time + hours},outage" for node in nodes]
        file.write_text("\n".join(["node,time,down_until,kind", *rows]) + "\n")
        # A failure of nodes that never comes lets work be lost in both runs.
        never = tmp_path / "never.csv"
        never.write_text("node,time,down_until\n0,900000000,900000001\n")
        target = "polluxsim.engine.failures.RecordedFailures"
        policy = draw.choice(["fifo", "easy", "srtf"])
        found = []
        for failures in (never, file):
            cluster = polluxsim.cluster(num_nodes=4, failures={"_target_": target, "path": str(failures)})
            found.append(polluxsim.simulate(workload, policy=policy, cluster=cluster, progress=False))
        before, recorded = found
        if before.result.end_time <= time:
            continue
        fork = before.at(time).fork(down=(nodes, hours))
        assert fork.result.job_records == recorded.result.job_records
        # A file has an outage for each node, so that the losses of one instant are in another order.
        assert sorted(fork.result.allocation_records) == sorted(recorded.result.allocation_records)
        assert fork.result.outage_records == recorded.result.outage_records


def test_forks_of_a_fork_repeat_its_outage(run: Result, tmp_path: Path) -> None:
    fork = run.at(1800.0).fork(down=([1], 1800.0))
    fork.save(tmp_path / "fork")
    saved = polluxsim.read(tmp_path / "fork")
    for time in (1800.0, 2400.0, 4800.0):
        assert saved.at(time).fork().result == fork.result
    longer = saved.at(2400.0).fork(down=([0, 1], 3600.0))
    # Node 1 is down until 6000 s instead of 3600 s, because its second outage ends later.
    assert [(each.node, each.time, each.until) for each in longer.result.outage_records] == [
        (1, 1800.0, 6000.0), (0, 2400.0, 6000.0),
    ]  # fmt: skip


def test_the_command_takes_nodes_down_for_a_time(
    run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = "name,time,num_replicas,duration\na,0,4,6000\nb,0,4,6000\nc,3600,8,600\n"
    Path("jobs.csv").write_text(file)
    settings = ("cluster.num_nodes=2", "cluster.gpus_per_node=4", "engine.restart_delay=0", "engine.round_interval=60")
    assert main(["run", "workload=file", "workload.path=jobs.csv", "policy=fifo", *settings, "-o", "r"]) == 0
    assert main(["whatif", "r", "--at", "30min", "--down", "1", "--for", "30min"]) == 0
    assert "forked from r: node 1 went down for 30 min." in " ".join(capsys.readouterr().out.split())
    fork = polluxsim.read("r-at-30min/otherwise")
    assert fork.result == run.at(1800.0).fork(down=([1], 1800.0)).result
    descent = json.loads(Path("r-at-30min/otherwise/run.json").read_text())["descent"]
    assert (descent["down_nodes"], descent["down_for"]) == ([1], 1800.0)
    for words, message in (
        (["--down", "1"], "--down needs --for, the length of the outage, like --for 6h"),
        (["--for", "6h"], "--for needs --down, the nodes that go down, like --down 3,4"),
        (["--down", "2", "--for", "6h"], "there is no node 2 to take down; name one from 0 to 1"),
        (["--down", "x", "--for", "6h"], "--down is 'x', must be numbers of nodes, like 3,4"),
        (["--down", "1", "--for", "0h"], "must be a duration above 0"),
        (["--down", "1", "--drop-node", "1", "--for", "1h"], "node 1 is down for good, so it cannot go down"),
    ):
        assert main(["whatif", "r", "--at", "30min", *words, "-o", "refused"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert not Path("refused").exists()


def test_nodes_of_an_elastic_cluster_cannot_be_taken_down() -> None:
    run = polluxsim.simulate(
        polluxsim.workload("philly-like", num_jobs=4, hours=1), policy="fifo",
        cluster=polluxsim.cluster("elastic"), progress=False,
    )  # fmt: skip
    with pytest.raises(PolluxSimError, match="a fork cannot change or drop nodes"):
        run.at(600.0).fork(down=([0], "1h"))
