"""Users and queues in order of how long their jobs wait, in `table` and `compare`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.cli.main import main
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.statistics.job_values import UNNAMED, ranks
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

owners = st.lists(st.sampled_from([None, "ann", "bob", "cy"]), min_size=1, max_size=8)


@given(owners.filter(any), st.integers(0, 2**32 - 1))
def test_who_waits_longest_is_first_and_everything_is_counted_once(users: list[str | None], seed: int) -> None:
    jobs = tuple(Job.rigid(f"j{i}", 10.0 * i, 1 + (seed >> i) % 4, 600.0, user=user) for i, user in enumerate(users))
    result = simulate(Workload(jobs), {}, Cluster.uniform(1, 4), Fifo())
    found = ranks([result, result], "user")
    assert list(found) == sorted(found, key=lambda name: found[name].place)
    waits = [rank.wait for rank in found.values()]
    assert waits == sorted(waits, reverse=True)
    assert set(found) == {user or UNNAMED for user in users}
    assert sum(rank.jobs for rank in found.values()) == 2 * len(jobs)
    whole = sum(job.queueing_delay or 0.0 for job in result.job_records) * 2
    assert sum(rank.wait * rank.jobs for rank in found.values()) == pytest.approx(whole)
    total = sum((job.completion_time or 0.0) - job.submit_time - job.run_time for job in result.job_records) * 2
    assert sum(rank.total_wait * rank.jobs for rank in found.values()) == pytest.approx(total)
    assert sum(rank.gpu_seconds for rank in found.values()) == pytest.approx(
        2 * sum(job.gpu_seconds for job in result.job_records)
    )


def test_a_job_that_is_submitted_when_the_run_ends_is_in_the_ranks() -> None:
    jobs = (Job.rigid("a", 0.0, 1, 600.0, user="ann"), Job.rigid("b", 300.0, 1, 600.0, user="bob"))
    result = simulate(Workload(jobs), {}, Cluster.uniform(1, 4), Fifo(), settings=EngineSettings(horizon=300.0))
    assert set(ranks([result], "user")) == {"ann", "bob"}


def test_ranks_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.csv"
    rows = ["long,0,4,9000,ann,prod", "short,1,4,60,bob,prod", "later,2,4,600,bob,test"]
    path.write_text("name,time,num_replicas,duration,user,queue\n" + "\n".join(rows) + "\n")
    runs = [str(tmp_path / policy) for policy in ("fifo", "srtf")]
    for policy, folder in zip(("fifo", "srtf"), runs, strict=True):
        shape = ("cluster.num_nodes=1", "workload=file", f"workload.path={path}")
        assert main(["run", *shape, f"policy={policy}", f"hydra.run.dir={folder}"]) == 0
    capsys.readouterr()
    assert main(["table", *runs, "--ranks", "user"]) == 0
    cells = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    assert [cells_of[:3] for cells_of in cells if cells_of and cells_of[0] in ("ann", "bob")] == [
        ["bob", "2", "1"],
        ["ann", "1", "2"],
    ]
    assert main(["compare", *runs, "--ranks", "queue"]) == 0
    assert "By queue, longest mean time to the first GPU first" in capsys.readouterr().out
    assert main(["table", *runs, "--ranks", "user", "--csv"]) == 2
    assert "--ranks cannot be used with --csv, because it prints text" in capsys.readouterr().err


def test_runs_without_names_have_no_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.csv"
    path.write_text("name,time,num_replicas,duration\na,0,1,60\n")
    assert (
        main(["run", "policy=fifo", "workload=file", f"workload.path={path}", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    )
    assert main(["table", str(tmp_path / "run"), "--ranks", "queue"]) == 2
    assert "no job of these runs has a queue" in capsys.readouterr().err
