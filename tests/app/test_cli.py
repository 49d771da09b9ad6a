"""The command line as a user meets it: results on disk, clear errors, nothing half written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from toy import write_artifact, write_jobs

from polluxsim.app.cli import main
from polluxsim.storage import read_run

FILES = {"jobs.parquet", "rounds.parquet", "allocations.parquet", "reasons.parquet", "timing.parquet", "run.json"}
JOBS = [f"cifar10-{i},{60 * i},cifar10,{1 + i % 4},{512 * (1 + i % 4)}" for i in range(6)] + ["ncf-0,5,ncf,1,4096"]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("artifact"))


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    return write_jobs(tmp_path / "w.csv", *JOBS)


@pytest.fixture
def run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return main(["run", *arguments])


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "polluxsim", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Return everything a run left but its wall-clock times."""
    assert {path.name for path in folder.iterdir()} == FILES
    return {name: (folder / name).read_bytes() for name in FILES - {"timing.parquet"}}


def test_a_run_leaves_its_files_and_prints_a_table(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [f"workload.path={workload}", f"profiles.path={profiles}"]
    assert run("policy=tiresias", "engine=osdi21", *common, "hydra.run.dir=out") == 0
    assert "average JCT" in capsys.readouterr().out
    stored = read_run(run_in / "out")
    assert stored.info["config"]["engine"]["whole_seconds"] is True
    assert stored.info["summary"]["num_jobs"] == 7
    assert [record.status for record in stored.result.job_records] == ["completed"] * 7
    schema = pq.read_schema(run_in / "out" / "jobs.parquet")
    assert schema.names[:6] == ["job", "application", "submit_time", "start_time", "completion_time", "jct"]
    assert schema.field("gpu_seconds").metadata == {b"unit": b"GPU s"}
    timing = pq.read_table(run_in / "out" / "timing.parquet").to_pydict()
    assert {"load", "simulate", "decide"} <= set(timing["phase"])
    assert run("policy=fifo", *common, "hydra.run.dir=other") == 0
    capsys.readouterr()
    assert main(["table", "out", "other"]) == 0
    table = capsys.readouterr().out
    for word in ("out", "other", "median JCT", "99th percentile JCT", "mean JCT ncf", "makespan", "GPU-hours"):
        assert word in table


def test_the_same_seed_gives_the_same_bytes_in_every_file(run_in: Path, profiles: Path, workload: Path) -> None:
    """In another process, with another hash seed, and after another policy in the same process."""
    common = ["run", f"workload.path={workload}", f"profiles.path={profiles}", "seed=3"]
    first = process(*common, "policy=pollux", "hydra.run.dir=first", PYTHONHASHSEED="1")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""  # quiet: this is no terminal
    process(*common, "policy=pollux", "hydra.run.dir=second", PYTHONHASHSEED="2")
    swept = process(*common, "-m", "policy=tiresias,optimus,pollux", "hydra.sweep.dir=sweep", PYTHONHASHSEED="3")
    assert swept.returncode == 0, swept.stderr
    expected = contents(run_in / "first")
    assert contents(run_in / "second") == expected
    assert contents(run_in / "sweep" / "2-policy=pollux,seed=3") == expected
    assert contents(run_in / "sweep" / "0-policy=tiresias,seed=3") != expected


def test_an_imported_folder_gives_the_same_results(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "osdi21", str(profiles), "imported"]) == 0
    assert "2 profiles (cifar10, ncf)" in capsys.readouterr().out
    for name, path in (("a", profiles), ("b", "imported")):
        assert run("policy=optimus", f"workload.path={workload}", f"profiles.path={path}", f"hydra.run.dir={name}") == 0
    assert (run_in / "a" / "jobs.parquet").read_bytes() == (run_in / "b" / "jobs.parquet").read_bytes()


def test_many_runs_stand_one_below_the_other(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [f"workload.path={workload}", f"profiles.path={profiles}", "policy=fifo", "hydra.sweep.dir=sweep"]
    assert run(*common, "-m", "seed=0,1,2,3,4") == 0
    capsys.readouterr()
    assert main(["table", "sweep"]) == 0
    printed = capsys.readouterr().out
    assert [f"{i}-policy=fifo,seed={i}" in printed for i in range(5)] == [True] * 5
    header = next(line for line in printed.splitlines() if "average JCT" in line)
    assert "makespan" in header


def test_every_shipped_experiment_composes(run_in: Path, profiles: Path, workload: Path) -> None:
    folder = Path(__file__).parents[2] / "experiments"
    paths = sorted((folder / "experiment").glob("*.yaml"))
    assert paths
    for path in paths:
        arguments = ["engine.horizon=120"]
        if "override /workload" not in path.read_text():
            arguments += [f"workload.path={workload}", f"profiles.path={profiles}"]
        assert run("--config-dir", str(folder), f"+experiment={path.stem}", "hydra.sweep.dir=sweep", *arguments) == 0
        assert len(list((run_in / "sweep").glob("*/run.json"))) > 1


def test_a_policy_of_ones_own_needs_a_class_and_a_config(run_in: Path, profiles: Path, workload: Path) -> None:
    (run_in / "mine.py").write_text(
        "from polluxsim.policies.packing import pack, remove\n"
        "class Newest:\n"
        "    def __init__(self, most: int = 4): self.most = most\n"
        "    def allocate(self, view, rng):\n"
        "        free, allocation = view.gpus_per_node, {}\n"
        "        for job in reversed(view.jobs):\n"
        "            placement = pack(free, min(job.num_replicas, self.most), keep=job.placement)\n"
        "            if placement: allocation[job.job_id] = placement; free = remove(free, placement)\n"
        "        return allocation\n"
    )
    (run_in / "conf" / "policy").mkdir(parents=True)
    (run_in / "conf" / "policy" / "newest.yaml").write_text("_target_: mine.Newest\nmost: 2\n")
    done = process(
        "run", "--config-dir", "conf", "policy=newest", f"workload.path={workload}", f"profiles.path={profiles}",
        "hydra.run.dir=out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    gpus = [sum(record.gpus) for record in read_run(run_in / "out").result.allocation_records]
    assert max(gpus) == 2


BAD = [
    (
        ["policy=nope"],
        "policy=nope is unknown, allowed are autoscale-goodput, autoscale-throughput, fifo, optimus, pollux, replay, "
        "srtf, tiresias",
    ),
    (["policy.speed=1"], "there is no setting 'policy.speed'"),
    (["+policy.speed=1", "policy=fifo"], "policy.speed is not a setting of polluxsim.policies.fifo.Fifo"),
    (["policy.p=fast"], "policy.p is 'fast', allowed is a number"),
    (["policy.search=guess"], "policy.search is 'guess', allowed are exact, genetic"),
    (["policy._target_=nowhere.Policy"], "policy._target_ 'nowhere.Policy' cannot be used"),
    (["+horizon=300"], "there is no setting 'horizon', allowed are cluster, engine, policy, profiles, workload, seed"),
    (["policy=null"], ""),
    (["=3"], ""),
    (["cluster.gpus_per_node=4.5"], "cluster.gpus_per_node is 4.5, allowed is a whole number"),
    (["cluster=mixed", "cluster.groups=[[3]]"], "allowed are pairs of a number of nodes"),
    (["cluster=mixed", "cluster.groups=[[16,4.5]]"], "each with a whole number of GPUs"),
    (["cluster.num_nodes=1000000000000"], "allowed are pairs of a number of nodes up to 1000000"),
    (["hydra.run.dir=w.csv"], "w.csv"),
    (["hydra.run.dir=w.csv/inside"], "w.csv"),
    (["workload.path=/proc/self/mem"], "/proc/self/mem: cannot be read"),
    (["seed=-1"], "seed is -1, allowed is a whole number ≥ 0"),
    (["seed=1.5"], "seed is 1.5"),
    (["cluster.num_nodes=0"], "cluster: 0 nodes"),
    (["cluster=mixed"], "cluster.groups is missing, give it as cluster.groups=VALUE"),
    (["engine.round_interval=0"], "engine.round_interval is 0, allowed is a finite number > 0"),
    (["engine.whole_seconds=maybe"], "engine.whole_seconds is 'maybe', allowed is true or false"),
    (["workload.path=nowhere.csv"], "nowhere.csv: no such file"),
    (["profiles.path=nowhere"], "profiles.path nowhere: no profiles there"),
    (["cluster.num_nodes=1", "cluster.gpus_per_node=3"], "num_replicas is 4, allowed are the 3 GPUs there are"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_settings_get_one_line_and_status_2(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    common = [f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert run(*common, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("polluxsim: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert not (run_in / "out").exists()


def test_a_policy_that_gives_too_much_is_named_with_node_and_job(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_in / "greedy.py").write_text(
        "class Greedy:\n"
        "    def allocate(self, view, rng):\n"
        "        return {job.job_id: ((0, 4),) for job in view.jobs if job.job_id.startswith('cifar')}\n"
    )
    arguments = [f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert run(*arguments, "policy=fifo", "policy._target_=greedy.Greedy", "~policy.backfill") == 2
    assert "over-allocated node 0: with job 'cifar10-1' it is asked for 8 GPUs" in capsys.readouterr().err
    assert not (run_in / "out").exists()


def test_a_sweep_goes_on_after_a_run_that_fails(run_in: Path, profiles: Path, workload: Path) -> None:
    done = process(
        "run", "-m", "policy=fifo", "seed=1,-2,3", f"workload.path={workload}", f"profiles.path={profiles}",
        "hydra.sweep.dir=sweep",
    )  # fmt: skip
    assert done.returncode == 2
    assert "seed is -2" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.parent.name for path in (run_in / "sweep").glob("*/run.json")} == {
        "0-policy=fifo,seed=1",
        "2-policy=fifo,seed=3",
    }


@pytest.mark.parametrize("after", [0.1, 0.15, 0.3, 1.5, 3.0])
def test_ctrl_c_ends_within_a_second_and_leaves_nothing(
    run_in: Path, profiles: Path, tmp_path: Path, after: float
) -> None:
    many = [f"cifar10-{i},{40 * i},cifar10,4,2048" for i in range(2000)]
    workload = write_jobs(tmp_path / "long.csv", *many)
    command = [sys.executable, "-m", "polluxsim", "run", "policy=pollux", "hydra.run.dir=out"]
    running = subprocess.Popen(
        [*command, f"workload.path={workload}", f"profiles.path={profiles}"], stderr=subprocess.PIPE, text=True
    )
    time.sleep(after)
    started = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert time.monotonic() - started < 2  # a second, and room for a machine that others use too
    # A shell says 130 of both: before Python handles signals at all, the system ends the process by SIGINT itself.
    untouched = after <= 0.15 and running.returncode == -signal.SIGINT and not errors
    assert running.returncode == 130 or untouched
    assert "Traceback" not in errors
    assert not (run_in / "out").exists()


@pytest.mark.parametrize("limit", [2, 20])
def test_a_full_disk_leaves_the_run_before_untouched(run_in: Path, profiles: Path, workload: Path, limit: int) -> None:
    """A limit on the size of files stands in for the disk."""
    common = ["run", "policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert process(*common).returncode == 0
    before = contents(run_in / "out")
    command = f'ulimit -f {limit}; exec {sys.executable} -m polluxsim "$@"'
    failed = subprocess.run(
        ["bash", "-c", command, "-", *common, "seed=1", "engine.round_interval=0.5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 2
    assert failed.stderr.startswith("polluxsim: ")
    assert failed.stderr.count("\n") == 1
    assert contents(run_in / "out") == before


def test_names_are_printed_as_they_are(run_in: Path, profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = write_jobs(run_in / "odd.csv", "[/b]x,0,cifar10,1,512", "[red]y,0,cifar10,1,512")
    common = ["policy=fifo", f"workload.path={jobs}", f"profiles.path={profiles}", "hydra.run.dir='out[bold]'"]
    assert run(*common, "engine.horizon=100") == 0
    printed = capsys.readouterr().out
    for name in ("[/b]x", "[red]y", "out[bold]"):
        assert name in printed


def test_jobs_that_never_came_are_told_apart(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert run(*common, "engine.horizon=100") == 0
    summary = read_run(run_in / "out").info["summary"]
    assert summary["not_submitted"] == [f"cifar10-{i}" for i in range(2, 6)]
    assert summary["avg_jct"] == pytest.approx((100 + 95 + 40) / 3)
    assert summary["makespan"] == 100
    assert "not even submitted" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["isdir.csv", "afile/x.csv", "w.parquet"])
def test_a_sample_that_cannot_be_written_is_named(
    run_in: Path, osdi21: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (run_in / "isdir.csv").mkdir()
    (run_in / "afile").write_text("")
    assert main(["sample", str(osdi21 / "traces" / "philly.csv"), output, "--profiles", str(osdi21)]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert output.split("/", maxsplit=1)[0] in printed


def test_an_unfinished_folder_is_no_run(run_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_in / "half").mkdir()
    assert main(["table", "half"]) == 2
    assert "half: not a finished run" in capsys.readouterr().err
    (run_in / "half" / "run.json").write_text("{")
    assert main(["table", "half"]) == 2
    assert "not what polluxsim writes" in capsys.readouterr().err


def test_a_run_over_an_older_one_replaces_it(run_in: Path, profiles: Path, workload: Path) -> None:
    common = ["policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert run(*common) == 0
    before = contents(run_in / "out")
    assert run(*common, "engine.restart_delay=60") == 0
    after = contents(run_in / "out")
    assert before["jobs.parquet"] != after["jobs.parquet"]
    assert json.loads(after["run.json"])["config"]["engine"]["restart_delay"] == 60


def test_cut_off_jobs_are_counted_and_named(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert run(*common, "engine.horizon=200") == 0
    printed = capsys.readouterr().out
    assert "cut off" in printed
    assert "≥ " in printed
    assert "cifar10-0" in printed


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert {"run", "table", "import", "sample"} <= set(capsys.readouterr().out.split())
    helped = process("run", "--help")
    assert helped.returncode == 0
    assert (
        "policy: autoscale-goodput, autoscale-throughput, fifo, optimus, pollux, replay, srtf, tiresias"
        in helped.stdout
    )
