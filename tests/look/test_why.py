"""A job's story: what the allocations say happened, and the policy's reasons in words."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from older_runs import forget_files

from polluxsim.cli.main import main
from polluxsim.look.why.sentences import sentence
from polluxsim.look.why.stages import cluster_at, stages
from polluxsim.look.why.story import at
from polluxsim.records.results import AllocationRecord, JobRecord, ReasonRecord, ReasonText, Result, Status
from polluxsim.records.storage import Run, read_reasons, read_run

if TYPE_CHECKING:
    from pathlib import Path

    from shared_runs import SharedRuns

COMMON = [
    "workload=philly-like",
    "workload.num_jobs=24",
    "workload.hours=1",
    "cluster.num_nodes=4",
    "engine.horizon=20000",
]


@pytest.fixture(scope="module", params=["tiresias", "optimus", "pollux", "fifo", "srtf"])
def folder(request: pytest.FixtureRequest, shared_runs: SharedRuns) -> Path:
    return shared_runs.run(request.param, *COMMON)


def test_every_kind_of_reason_has_a_sentence(folder: Path) -> None:
    """Whole, with its figures, and without a word of the program's own."""
    texts = read_run(folder).result.reason_texts
    for record in read_reasons(folder) or ():
        text = sentence(record, texts)
        assert "gives the reason" not in text
        assert text.endswith(".")
        assert not re.search(r"_|nan|inf|None|\{|\}", text.replace(" infinity", "")), text


def test_the_story_covers_a_life_without_gaps(folder: Path) -> None:
    run = read_run(folder)
    for job in run.result.job_records:
        if job.submit_time > run.result.end_time:
            continue
        found = stages(run, job)
        end = run.result.end_time if job.completion_time is None else job.completion_time
        assert found[0].start == job.submit_time
        assert found[-1].end == end
        assert [a.end for a in found[:-1]] == [b.start for b in found[1:]]
        held = sum((each.end - each.start) * sum(each.gpus.values()) for each in found)
        assert held == pytest.approx(job.gpu_seconds)
        for stage in found:
            rise = sum(max(gpus - stage.before.get(node, 0), 0) for node, gpus in stage.gpus.items())
            fall = sum(max(gpus - stage.gpus.get(node, 0), 0) for node, gpus in stage.before.items())
            # Nobody got more of what it gave up than there was; several may have given up more than it got.
            assert all(0 < gpus <= rise for gpus in stage.given_by.values())
            assert all(0 < gpus <= fall for gpus in stage.taken_by.values())


def test_every_stage_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = read_run(folder)
    for job in run.result.job_records[:8]:
        assert main(["why", str(folder), job.job]) == 0
        printed = capsys.readouterr().out
        assert f"{job.job} ({job.application}), submitted" in printed
        assert "│ –" not in printed
        assert "no reasons" not in printed.lower()
    waits = max(run.result.job_records, key=lambda job: job.queueing_delay or 0)
    assert main(["why", str(folder), waits.job, "--at", str((waits.start_time or 0) - 1)]) == 0
    assert f"{waits.job} waits without a GPU, since" in capsys.readouterr().out


def test_runs_and_policies_without_reasons_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["run", "policy=fifo", *COMMON, f"hydra.run.dir={tmp_path}"]
    assert main([*common, "engine.reasons=none"]) == 0
    name = read_run(tmp_path).result.job_records[3].job
    capsys.readouterr()
    assert main(["why", str(tmp_path), name]) == 0
    assert "The policy gave no reasons for this job" in capsys.readouterr().out
    forget_files(tmp_path)
    (tmp_path / "reasons.parquet").unlink()
    assert main(["why", str(tmp_path), name, "--at", "1:00"]) == 0
    printed = capsys.readouterr().out
    assert "No reasons were recorded in this run (it has no reasons.parquet)" in printed
    assert "was recorded at" not in printed
    assert main(["table", str(tmp_path)]) == 0


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "policy=fifo", *COMMON, f"hydra.run.dir={tmp_path}"]) == 0
    name = read_run(tmp_path).result.job_records[3].job
    for arguments, words in (
        ([str(tmp_path), name[:-1] + "x"], "nearest are"),
        ([str(tmp_path), "zzz"], "has no job 'zzz'; it has 24 jobs, like"),
        (
            [str(tmp_path), name, "--at", "1:75"],
            "--at is 1:75, must be a time like 90min, 1.5h, H:MM:SS, or a number of seconds",
        ),
        ([str(tmp_path), name, "--at", "-"], "--at is -, must be a time"),
        (["nowhere", name], "nowhere: there is no such folder"),
        ([str(tmp_path.parent), name], "because it has no run.json; name one of its runs: "),
    ):
        capsys.readouterr()
        assert main(["why", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def made_by_hand() -> Run:
    """Return a run in which job b takes GPUs from job a, and a gets them back when b is complete."""
    job = JobRecord("a", "toy", 10.0, 60.0, None, None, 50.0, 1, 0.0, Status.CUT_OFF)
    other = JobRecord("b", "toy", 70.0, 120.0, 200.0, 130.0, 50.0, 0, 160.0, Status.COMPLETED)
    changes = (
        AllocationRecord(60.0, "a", (0,), (4,), 40, 0),
        AllocationRecord(120.0, "a", (0,), (2,), 20, 0),
        AllocationRecord(120.0, "b", (0,), (2,), 20, 0),
        AllocationRecord(200.0, "b", (), (), 0, 0),
        AllocationRecord(240.0, "a", (0,), (2,), 30, 0),
    )
    return Run("made", {}, Result((job, other), (), changes, 300.0))


def test_the_facts_of_a_small_run_by_hand() -> None:
    run = made_by_hand()
    waits, started, shrank = stages(run, run.result.job_records[0])
    assert (waits.event, started.event, shrank.event) == ("waits", "started", "shrank")
    assert shrank.taken_by == Counter(b=2)
    assert shrank.batch_sizes == (20, 30)
    assert stages(run, run.result.job_records[1])[-1].given_by == Counter(a=2)
    assert cluster_at(run, 199.0).gpus_of == {"a": 2, "b": 2}
    assert cluster_at(run, 200.0).gpus_of == {"a": 2}
    text = at(run, (), run.result.job_records[0], 150.0)
    assert "At 0:02:30 a holds 2 GPUs of node 0, since 0:02:00." in text
    assert "shrank from 4 to 2 GPUs of node 0, batch size 20 to 30; gave way to b (2)" in text
    assert "4 GPUs of the cluster were held by 2 of 2 active jobs, most by a (2), b (2)." in text
    assert "was not submitted yet" in at(run, (), run.result.job_records[1], 0.0)
    assert "was complete" in at(run, (), run.result.job_records[1], 200.0)
    assert "The run ended at 0:05:00" in at(run, (), run.result.job_records[0], 301.0)


def test_reasons_without_a_sentence_are_printed_with_their_numbers() -> None:
    record = ReasonRecord(60.0, "a", "too-greedy", (("greed", 0.5), ("gpus", 3.0)), ("b", "a"))
    said = "The policy gives the reason too-greedy (greed = 0.5; gpus = 3 GPUs; jobs b, this job itself)."
    for template in ("", "It lacks {nodes:node}.", "It has {gpus", "It has [{gpus:GPU}.", "It has {gpus.real}."):
        assert sentence(record, {"too-greedy": ReasonText(template, {"gpus": "GPUs"})}) == said
    assert sentence(ReasonRecord(0.0, "a", "luck", (), ()), {}) == "The policy gives the reason luck."


def test_a_job_submitted_as_the_run_ends_has_no_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(
        "name,time,application,num_replicas,batch_size,cancel_time\n"
        "a,0,cifar10,1,512,\nb,600,cifar10,1,512,\nc,0,cifar10,1,512,300\n"
        "d,900,cifar10,1,512,\n"
    )
    folder = tmp_path / "run"
    settings = ["policy=fifo", f"workload.path={jobs}", "engine.horizon=600", f"hydra.run.dir={folder}"]
    assert main(["run", *settings]) == 0
    capsys.readouterr()
    for job, said in (
        ("b", "b was submitted at 0:10:00, as the run ended."),
        ("c", "c was cancelled, since 0:05:00."),
        ("d", "d (cifar10), not submitted before the run ended, at 0:10:00"),
    ):
        assert main(["why", str(folder), job]) == 0
        assert main(["why", str(folder), job, "--at", "600"]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_a_job_that_was_never_submitted_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,time,num_replicas,duration,after,cancel_time\na,0,4,7200,,600\nb,10,4,600,a,\n")
    assert main(["run", "policy=fifo", f"workload.path={jobs}", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    never = "never submitted: a job that it waited for did not complete"
    for time, said in (([], f"b (rigid), {never}"), (["--at", "100"], f"b was {never}.")):
        assert main(["why", str(tmp_path / "run"), "b", *time]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_a_rejected_job_has_the_reason_of_its_rejection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,time,num_replicas,duration,deadline\na,0,4,600,7200\nlate,30,4,3600,600\n")
    assert main(["run", "policy=elasticflow", f"workload.path={jobs}", "-o", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    for time in ([], ["--at", "60"]):
        assert main(["why", str(tmp_path / "run"), "late", *time]) == 0
        assert "The policy rejects the job, because it would be complete at" in " ".join(
            capsys.readouterr().out.split()
        )
