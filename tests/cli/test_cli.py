"""The command line as a user meets it: results on disk, clear errors, nothing half written."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from inspect import getsource
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_sweeps import in_process
from toy import write_artifact, write_jobs

from polluxsim.cli.commands import COMMANDS, GROUPS, PURPOSES
from polluxsim.cli.log import LOG_FORMATS as LISTED_FORMATS
from polluxsim.cli.main import main, parsed
from polluxsim.common.files import held
from polluxsim.common.shipped import shipped
from polluxsim.logs.formats import FORMATS
from polluxsim.look.plot.request import FIGURE_KINDS
from polluxsim.records.storage import RUN_FILES, read_run
from polluxsim.run.claim import claimed_anew
from polluxsim.run.interrupt import end_process

FILES = set(RUN_FILES)
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
    for word in ("out", "other", "median JCT", "99th percentile JCT", "average JCT ncf", "makespan", "GPU time"):
        assert word in table


def test_the_same_seed_gives_the_same_bytes_in_every_file(run_in: Path, profiles: Path, workload: Path) -> None:
    """In another process, with another hash seed, and after another policy in the same process."""
    common = ["run", f"workload.path={workload}", f"profiles.path={profiles}", "seed=3"]
    first = process(*common, "policy=pollux", "hydra.run.dir=first", PYTHONHASHSEED="1")
    assert first.returncode == 0, first.stderr
    # Quiet, as this is no terminal; the first run of an installation says that it compiles.
    assert [line for line in first.stderr.splitlines() if "compiling kernels" not in line] == []
    swept = process(*common, "-m", "policy=tiresias,pollux", "hydra.sweep.dir=sweep", PYTHONHASHSEED="2")
    assert swept.returncode == 0, swept.stderr
    expected = contents(run_in / "first")
    assert contents(run_in / "sweep" / "1-policy=pollux,seed=3") == expected
    assert contents(run_in / "sweep" / "0-policy=tiresias,seed=3") != expected


def test_many_runs_stand_one_below_the_other(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [f"workload.path={workload}", f"profiles.path={profiles}", "policy=fifo", "hydra.sweep.dir=sweep"]
    assert run(*common, "-m", "seed=0,1,2,3,4") == 0
    capsys.readouterr()
    assert main(["table", "sweep"]) == 0
    printed = capsys.readouterr().out
    # Seeds replicate, so that they are one row; all of it can be read at 80 columns.
    assert max(map(len, printed.splitlines())) <= 80
    assert [line.split()[0] for line in printed.splitlines() if line.startswith("FIFO")] == ["FIFO", "FIFO"]
    header = next(line for line in printed.splitlines() if "average JCT" in line)
    assert "makespan" in header


@pytest.mark.slow
def test_every_shipped_experiment_composes(run_in: Path, profiles: Path, workload: Path) -> None:
    folder = Path(__file__).parents[2] / "experiments"
    paths = sorted((folder / "experiment").glob("*.yaml"))
    assert paths
    for path in paths:
        arguments = [
            "engine.horizon=120",
            "hydra.sweeper.workers=1",
            *(["seed=0"] if "seed: range" in path.read_text() else []),
        ]
        if "override /workload" not in path.read_text():
            arguments += [f"workload.path={workload}", f"profiles.path={profiles}"]
        assert run("--config-dir", str(folder), f"+experiment={path.stem}", "hydra.sweep.dir=sweep", *arguments) == 0
        assert len(list((run_in / "sweep").glob("*/run.json"))) > 1


def test_a_policy_of_ones_own_needs_a_class_and_a_config(run_in: Path, profiles: Path, workload: Path) -> None:
    (run_in / "mine.py").write_text(
        "from polluxsim.policies.tools.free_gpus import pack, remove\n"
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


POLICY_NAMES = ", ".join(sorted(path.stem for path in (shipped("configs") / "policy").glob("*.yaml")))
BAD = [
    (["policy=nope"], f"policy=nope is unknown, must be one of {POLICY_NAMES[:150]}"),
    (["policy=nope"], "; to use your policy/nope.yaml, add --config-dir FOLDER"),
    (["policy.speed=1"], "there is no setting 'policy.speed'"),
    (["+policy.speed=1", "policy=fifo"], "policy.speed is not a setting of polluxsim.policies.ordered.classic.Fifo"),
    (["policy.p=fast"], "policy.p is 'fast', must be a number"),
    (["policy=quotas", "policy.gpus=8"], "policy.gpus is 8, must be numbers by name, like {NAME: 2}"),
    (["policy=fair-queues", "policy.weights=2"], "policy.weights is 2, must be numbers by name, like {NAME: 2}"),
    (["policy=tiresias-l", "policy.queue_limits=5"], "policy.queue_limits is 5, must be a list of GPU times"),
    ([f"policy.p=1{'0' * 400}"], "must be a number below 1e308"),
    (["policy.search=guess"], "policy.search is 'guess', must be one of annealing, genetic"),
    (["policy._target_=nowhere.Policy"], "'nowhere.Policy' does not exist: there is no module nowhere; start"),
    (
        ["+horizon=300"],
        "there is no setting 'horizon'; choose from agent, cluster, engine, policy, profiles, workload, metrics, seed",
    ),
    (["+horizon=300"], "did you mean engine.horizon?"),
    (["policy=polux"], "; did you mean pollux?"),
    (
        ["polcy=fifo"],
        "there is no setting 'polcy'; 'polluxsim run --help' lists them; did you mean policy?",
    ),
    (["policy=tiresias", "policy.queue_treshold=3"], "did you mean policy.queue_threshold?"),
    (["policy=gavel"], "proportional-shares, water-filling; to use your policy/gavel.yaml, add --config-dir FOLDER"),
    (["workload.load=2"], "and +workload.load=VALUE adds one for a class of your own\n"),
    (
        ["policy=tiresias", "policy.queue_threshold=4x"],
        "policy.queue_threshold is '4x', must be a number of GPU seconds, or a GPU time with a unit like 90s",
    ),
    (
        ["cluster/spot=reclaimed"],
        "cluster.spot.rate is missing; give it as cluster.spot.rate=VALUE (reclaims of a node in 1,000 node-days)",
    ),
    (["+policy.serch=exact"], "did you mean search?"),
    (["policy._target_=polluxsim.policies.ordered.classic.Fiffo"], "did you mean Fifo?"),
    (["policy=fifo", "~policy.backfill", "policy._target_=mine.X", "+policy.a=nan"], "policy.a is nan, must be"),
    (["policy._target_=5"], "policy._target_ is 5, must be the dotted name of a class or function"),
    (["policy._target_=syntax.Policy"], "cannot be used: SyntaxError: invalid syntax (syntax.py, line 1)"),
    (["policy._target_=builtins.dict"], "cannot be used"),
    (["policy._target_=os.remove"], "cannot be used: TypeError: it is a function of Python's own library, must be a"),
    (["policy=fifo", "policy._target_=datetime.timedelta", "~policy.backfill", "+policy.days=1"], "cannot be used"),
    (
        ["policy=fifo", "policy._target_=fractions.Fraction", "~policy.backfill"],
        "policy is a Fraction, must be an object with a method allocate",
    ),
    (["--config-dir", "conf", "policy=broken"], "broken.yaml, line 2: not YAML (mapping values are not allowed here)"),
    (["--config-dir", "conf", "policy=latin"], "conf/policy/latin.yaml: not UTF-8 text (invalid"),
    (["+engine._partial_=true"], "engine._partial_ is not a setting of polluxsim.engine.settings.EngineSettings"),
    (["++policy._recursive_=5"], "policy._recursive_ is not a setting of polluxsim."),
    (["seed=???"], "seed is missing; give it as seed=VALUE"),
    (
        ["cluster.gpus_per_node=4611686018427387904"],
        "cluster.gpus_per_node is 4611686018427387904, must be a whole number from 1 to 1000000",
    ),
    (
        [
            "workload._target_=polluxsim.workloads.philly.PhillyLike",
            "~workload.path",
            "+workload.num_jobs=100000000",
        ],
        "workload.num_jobs is 100000000, must be a whole number from 1 to 10000000",
    ),
    (["policy=null"], "there is no policy in the configuration, and each run needs one; choose one with policy=NAME"),
    (["=3"], ""),
    (["cluster.gpus_per_node=4.5"], "cluster.gpus_per_node is 4.5, must be a whole number"),
    (["cluster=mixed", "cluster.groups=[[3]]"], "must be [nodes, GPUs per node]"),
    (["cluster=mixed", "cluster.groups=[[16,4.5]]"], "node 0 has 4.5 GPUs, must have a whole number of GPUs"),
    (["cluster.num_nodes=1000000000000"], "cluster.num_nodes is 1000000000000, must be a whole number from 1 to"),
    (["cluster.num_nodes=-4"], "cluster.num_nodes is -4, must be a whole number from 1 to"),
    (["hydra.run.dir=w.csv"], "w.csv"),
    (["hydra.run.dir=w.csv/inside"], "w.csv"),
    (["workload.path=/proc/self/mem"], "/proc/self/mem: cannot be read"),
    (["seed=-1"], "seed is -1, must be a whole number of at least 0"),
    (["seed=1.5"], "seed is 1.5"),
    (["cluster.num_nodes=0"], "cluster.num_nodes is 0, must be a whole number from 1 to"),
    (["cluster=mixed"], "cluster.groups is missing; give it as cluster.groups=VALUE"),
    (["engine.round_interval=0"], "engine.round_interval is 0, must be a number from 1e-09 to 1e+11"),
    (["engine.whole_seconds=maybe"], "engine.whole_seconds is 'maybe', must be true or false"),
    (["workload.path=nowhere.csv"], "nowhere.csv: no such file"),
    (["profiles.path=nowhere"], "profiles.path is nowhere, must be a folder with cards"),
    (
        ["cluster.num_nodes=1", "cluster.gpus_per_node=3"],
        "num_replicas is 4, must be at most 3, the number of GPUs; use a larger cluster, or leave out larger jobs",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_settings_get_one_line_and_status_2(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    common = [f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    (run_in / "syntax.py").write_text("def x(:\n")
    (run_in / "conf" / "policy").mkdir(parents=True)
    (run_in / "conf" / "policy" / "broken.yaml").write_text("_target_: a\n  b: [\n")
    (run_in / "conf" / "policy" / "latin.yaml").write_bytes(b"_target_: a # \xff\n")
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
    assert "over-allocated node 0: with job 'cifar10-1' jobs would hold 8 GPUs" in capsys.readouterr().err
    assert not (run_in / "out").exists()


def test_a_sweep_with_a_run_that_cannot_begin_makes_no_run(run_in: Path, profiles: Path, workload: Path) -> None:
    done = in_process(
        "-m", "policy=fifo", "seed=1,-2,3", f"workload.path={workload}", f"profiles.path={profiles}",
        "hydra.sweep.dir=sweep",
    )  # fmt: skip
    assert done.returncode == 2
    assert "seed is -2" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((run_in / "sweep").glob("*/run.json")) == []


def test_a_sweep_goes_on_after_a_run_that_fails(run_in: Path, profiles: Path, workload: Path) -> None:
    (run_in / "fails.py").write_text(
        "from polluxsim.policies.ordered.classic import Fifo\n\n\n"
        "class AtSeed(Fifo):\n"
        "    def allocate(self, view, rng):\n"
        "        if rng.bit_generator.seed_seq.entropy == 2:\n"
        "            raise ValueError('this seed')\n"
        "        return super().allocate(view, rng)\n"
    )
    (run_in / "conf" / "policy").mkdir(parents=True)
    (run_in / "conf" / "policy" / "fails.yaml").write_text("_target_: fails.AtSeed\n")
    done = in_process(
        "-m", "--config-dir", "conf", "policy=fails", "seed=1,2,3", "engine.horizon=200", f"workload.path={workload}",
        f"profiles.path={profiles}", "hydra.sweep.dir=sweep",
    )  # fmt: skip
    assert done.returncode == 2
    assert "ValueError: this seed" in done.stderr
    assert "Traceback" not in done.stderr
    made = [path.parent.name for path in (run_in / "sweep").glob("*/run.json")]
    assert sorted(name.partition("-")[0] for name in made) == ["0", "2"]


OPTIONS = {
    ("--nope",): "there is no option --nope",
    ("--multirn", "seed=0"): "there is no option --multirn; did you mean --multirun?",
    ("--liv",): "there is no option --liv; did you mean --live?",
    ("--nope=3",): "there is no option --nope",
    ("--config-dir",): "--config-dir/-cd has no value; give one after it",
    ("--cfg", "everything"): "--cfg/-c is 'everything', must be one of",
}


@pytest.mark.parametrize("arguments", OPTIONS)
def test_a_wrong_option_of_run_is_one_line(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    printed, errors = capsys.readouterr()
    assert not printed
    assert errors.count("\n") == 1
    assert errors.startswith(f"polluxsim: run: {OPTIONS[arguments]}")


def test_ctrl_c_while_the_program_is_loaded_is_one_line(tmp_path: Path) -> None:
    """A module of Python's that raises what Ctrl-C raises stands in for a hand that is quick."""
    (tmp_path / "argparse.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "polluxsim", "table"], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "polluxsim: interrupted, nothing was written\n")


def test_an_interrupted_run_takes_only_its_own_dated_folders_with_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for other in ("", "note"):
        since = later_than_folders()
        folder = mine / "outputs" / "2026-01-01" / "12-00-00"
        with claimed_anew(folder, since):
            if other:
                (mine / "outputs" / "2026-01-01" / other).touch()
        assert not folder.exists()
        assert (mine / "outputs").exists() == folder.parent.exists() == bool(other)
    assert mine.exists()


def later_than_folders() -> float:
    """Return a time after which no folder was made yet; clocks of file systems are some milliseconds late."""
    time.sleep(0.02)
    since = time.time()
    time.sleep(0.02)
    return since


class Stuck:
    """A policy whose round never ends, and which says that it has begun."""

    def allocate(self, view: object, rng: object) -> None:
        Path("begun").touch()
        threading.Event().wait()


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("output", ["hydra.run.dir=out", "seed=0"])
def test_ctrl_c_in_a_long_round_leaves_no_folder(
    run_in: Path, profiles: Path, workload: Path, number: int, output: str
) -> None:
    (run_in / "mine.py").write_text(f"import threading\nfrom pathlib import Path\n{getsource(Stuck)}")
    command = [
        sys.executable,
        "-m",
        "polluxsim",
        "run",
        "policy=fifo",
        "policy._target_=mine.Stuck",
        "~policy.backfill",
    ]
    running = subprocess.Popen(
        [*command, output, f"workload.path={workload}", f"profiles.path={profiles}"], stderr=subprocess.PIPE, text=True
    )
    while not (run_in / "begun").exists():
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(number)
    assert running.communicate()[1] == "polluxsim: interrupted, nothing was written\n"
    assert running.returncode == 130
    assert not (run_in / "out").exists()
    assert not (run_in / "outputs").exists()


@pytest.mark.parametrize("output", ["a/out", "out"])
def test_ctrl_c_before_a_run_has_reserved_its_folder_leaves_none(
    run_in: Path, profiles: Path, workload: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def exit_at_once(status: int) -> None:
        raise KeyboardInterrupt(status)

    def interrupt(config: object, since: float) -> None:
        assert not (run_in / output).exists()
        end_process()

    monkeypatch.setattr("polluxsim.run.interrupt.exit_at_once", exit_at_once)
    monkeypatch.setattr("polluxsim.cli.run._own_folder", interrupt)
    before = set(run_in.iterdir())
    time.sleep(0.02)  # the time of a folder may be up to 10 ms before its making
    common = ["run", "policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}"]
    assert main([*common, f"hydra.run.dir={output}"]) == 130
    assert set(run_in.iterdir()) == before


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("after", "number"),
    [(0.1, signal.SIGINT), (0.15, signal.SIGTERM), (0.3, signal.SIGINT), (1.0, signal.SIGTERM), (2.0, signal.SIGINT)],
)
def test_ctrl_c_ends_a_run_and_leaves_nothing(
    run_in: Path, profiles: Path, tmp_path: Path, after: float, number: signal.Signals
) -> None:
    many = [f"cifar10-{i},{40 * i},cifar10,4,2048" for i in range(2000)]
    workload = write_jobs(tmp_path / "long.csv", *many)
    command = [sys.executable, "-m", "polluxsim", "run", "policy=pollux", "hydra.run.dir=out"]
    running = subprocess.Popen(
        [*command, f"workload.path={workload}", f"profiles.path={profiles}"], stderr=subprocess.PIPE, text=True
    )
    time.sleep(after)
    running.send_signal(number)
    _, errors = running.communicate()  # it would otherwise run for minutes
    # Before the program itself begins, a signal is Python's or the system's affair.
    untouched = after <= 0.3 and running.returncode != 0 and "polluxsim/cli" not in errors
    assert (running.returncode == 130 and "Traceback" not in errors) or untouched
    assert not (run_in / "out").exists()


@pytest.mark.parametrize("limit", [2, 4])
def test_a_full_disk_leaves_the_run_before_untouched(run_in: Path, profiles: Path, workload: Path, limit: int) -> None:
    """A limit on the size of files stands in for the disk."""
    common = ["run", "policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    common.append("engine.round_interval=0.5")
    assert main(common) == 0
    before = contents(run_in / "out")
    # Without -B, Python could write a part of a compiled module.
    command = f'ulimit -f {limit}; exec {sys.executable} -B -m polluxsim "$@"'
    failed = subprocess.run(
        ["bash", "-c", command, "-", *common],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 2
    assert failed.stderr == f"polluxsim: {run_in / 'out'}: File too large\n"
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
    words = ["workload=philly", f"workload.path={osdi21 / 'traces' / 'philly.csv'}", f"profiles.path={osdi21}"]
    assert main(["workload", *words, "-o", output]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert output.split("/", maxsplit=1)[0] in printed


def test_an_unfinished_folder_is_no_run(run_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_in / "half").mkdir()
    assert main(["table", "half"]) == 2
    assert "half: not a finished run" in capsys.readouterr().err
    (run_in / "half" / "run.json").write_text("{")
    assert main(["table", "half"]) == 2
    assert "not written by polluxsim" in capsys.readouterr().err


def test_a_run_replaces_one_of_its_own_settings_and_no_other(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    assert run(*common) == 0
    before = contents(run_in / "out")
    assert run(*common, "engine.restart_delay=60") == 2
    assert (
        "out: a finished run of other settings is there (engine.restart_delay is 30.0 there, 60 here); name another"
        in (capsys.readouterr().err)
    )
    assert contents(run_in / "out") == before
    workload.write_text(workload.read_text().replace("cifar10-5,300", "cifar10-5,301"))
    assert run(*common, "engine.restart_delay=30") == 0
    assert contents(run_in / "out")["jobs.parquet"] != before["jobs.parquet"]


def test_a_folder_that_another_run_is_at_work_in_is_refused(
    run_in: Path, profiles: Path, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["policy=fifo", f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out"]
    (run_in / "out").mkdir()
    with held(run_in / "out"):
        assert run(*common) == 2
    assert "out: another run is at work in this folder" in capsys.readouterr().err
    assert run(*common) == 0


def test_runs_of_one_moment_have_a_folder_each(run_in: Path, profiles: Path, workload: Path) -> None:
    pattern = "hydra.run.dir='outputs/${now:%Y}-${seed}'"  # as by default, with a moment that lasts
    common = [sys.executable, "-m", "polluxsim", "run", "policy=fifo", pattern]
    common += [f"workload.path={workload}", f"profiles.path={profiles}"]
    running = [subprocess.Popen([*common, f"engine.horizon={100 * (i + 1)}"]) for i in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    assert main([*common[3:], "engine.horizon=400"]) == 0
    kept = {path.name: read_run(path) for path in (run_in / "outputs").iterdir()}
    assert [name.partition("-0")[2] for name in sorted(kept)] == ["", "-2", "-3", "-4"]
    assert sorted(kept[name].info["config"]["engine"]["horizon"] for name in kept) == [100, 200, 300, 400]
    assert kept[max(kept)].info["config"]["engine"]["horizon"] == 400


def test_no_run_takes_a_folder_named_by_the_time_that_another_has(run_in: Path) -> None:
    since = later_than_folders()
    with claimed_anew(run_in / "a", since) as first, claimed_anew(run_in / "a", since) as second:
        assert (first.name, second.name) == ("a", "a-2")
    assert not list(run_in.iterdir())  # nothing was written


INFINITE = [
    ("policy=tiresias", "policy.queue_threshold=inf", None),
    ("policy=tiresias", "policy.queue_threshold=-inf", "policy.queue_threshold is -inf, must be a number > 0"),
    ("policy=pollux", "policy.p=inf", "policy.p is inf, must be a finite number"),
    (
        "policy=fifo",
        "engine.round_interval=inf",
        "engine.round_interval is inf, must be a number from 1e-09 to 1e+11",
    ),
    ("policy=fifo", "engine.restart_delay=inf", "engine.restart_delay is inf, must be a number from 0"),
    ("policy=fifo", "engine.interference=inf", "engine.interference is inf, must be a number in [0, 1)"),
    ("policy=fifo", "engine.horizon=inf", "engine.horizon is inf, must be a finite number > 0, or null"),
    ("cluster=elastic", "cluster.node_price=inf", "cluster.node_price is inf, must be a finite number"),
    ("cluster=elastic", "cluster.startup_time=inf", "cluster.startup_time is inf, must be a finite number"),
]


@pytest.mark.parametrize(("group", "setting", "message"), INFINITE)
def test_an_infinite_setting_is_kept_or_refused_at_once(
    run_in: Path,
    profiles: Path,
    workload: Path,
    capsys: pytest.CaptureFixture[str],
    group: str,
    setting: str,
    message: str | None,
) -> None:
    common = [f"workload.path={workload}", f"profiles.path={profiles}", "hydra.run.dir=out", group, setting]
    assert run(*common) == (0 if message is None else 2)
    assert message is None or message in capsys.readouterr().err
    assert (run_in / "out").exists() == (message is None)


def test_a_policy_that_asks_for_no_nodes_of_an_elastic_cluster_is_told(
    run_in: Path, profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = write_jobs(run_in / "small.csv", "a,0,cifar10,1,512", "b,9,cifar10,4,2048")
    common = ["policy=fifo", f"profiles.path={profiles}", "cluster=elastic"]
    assert run(*common, f"workload.path={small}", "hydra.run.dir=out") == 0
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "out: the policy never asked for more than 1 of the 16 nodes" in printed
    assert run(*common, f"workload.path={small}", "hydra.run.dir=all", "cluster.least_nodes=16") == 0
    large = write_jobs(run_in / "large.csv", "a,0,cifar10,8,4096")
    assert capsys.readouterr().err == ""
    assert run(*common, f"workload.path={large}", "hydra.run.dir=none") == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 2
    assert "none: no job ever got a GPU" in printed
    assert "none: cut off, as none of the 1 jobs left" in printed
    assert "only 1 of up to 16 nodes are up, as the policy asked for no more" in printed


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
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert main([]) == 0
    assert capsys.readouterr().out == shown
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80
    # A command stands on a line of its own, or on that of its purpose if it is the only one.
    commands = re.findall(r"^(?:    |[^:]+: )(\w+)(?: -)? ", shown.partition("\n")[2], re.MULTILINE)
    assert commands == [name for names in PURPOSES.values() for name in names]
    assert set(commands) == {name.partition(" ")[0] for name in COMMANDS}
    assert len(re.findall(r"^\S.*:$", shown, re.MULTILINE)) == 3  # what they are for, besides the line of `twin`
    helped = in_process("--help", "cluster/failures=drawn", "policy=scaled", "cluster=elastic")
    assert "    rate: ???                     failures of a node in 1,000 node-days\n" in helped.stdout
    assert "  idle_time: 600.0                time without need after which nodes are released [s]\n" in helped.stdout
    assert in_process("--help", "policy=polux").stdout == ""
    helped = in_process("--help")
    assert helped.returncode == 0
    assert f"policy: {POLICY_NAMES}" in helped.stdout


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_lists_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^    (\w+) ", shown, re.MULTILINE) == list(GROUPS[group].commands)
    assert main([group, "--help"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    "name", [*(name for name in COMMANDS if name != "run"), *(f"plot {kind}" for kind in FIGURE_KINDS)]
)
def test_the_help_of_a_command_begins_with_a_sentence_and_ends_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    paragraphs = capsys.readouterr().out.strip().split("\n\n")
    assert paragraphs[0].startswith(f"usage: polluxsim {name} ")
    assert re.match(r"[A-Z][a-z]+ [^.]+\.(\s|$)", paragraphs[1].replace("\n", " "))
    assert paragraphs[-2].startswith("Exit status: 0 after success, ")
    example = paragraphs[-1].removeprefix("Example: ")
    assert example.startswith(f"polluxsim {name} ")
    parsed(shlex.split(example)[1:])


def test_the_help_of_import_lists_the_formats() -> None:
    assert list(LISTED_FORMATS) == list(FORMATS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel"], "there is no command 'tabel', must be one of"),
        (
            ["log", "imprt"],
            "must be one of import, extract, nodes, calibrate, whatif, judge, decisions; did you mean import?",
        ),
        (["--nope"], "--nope stands before the command"),
        (["tabel"], "did you mean table?"),
        (["plot", "jct-cfd", "out"], "plot: KIND is 'jct-cfd', must be one of"),
        (["plot", "jct-cfd", "out"], "did you mean jct-cdf?"),
        (["workload", "-o", "w.csv", "--jobs", "many"], "workload: there is no option --jobs"),
        (["table", "out", "--nope"], "table: there is no option --nope"),
        (
            ["table", "out", "-o", "t.tex"],
            "-o in 'polluxsim table', which prints its result; write it to a file with >",
        ),
        (["run", "--policy", "easy"], "there is no option --policy; write policy=VALUE"),
        (["table", "out", "--metrc", "x"], "table: there is no option --metrc; did you mean --metric?"),
        (["why", "run", "job", "--target", "x"], "no option --target in 'polluxsim why'; 'polluxsim size' has it"),
    ],
)
def test_a_command_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("polluxsim: ")
    assert printed.count("\n") == 1
    assert message in printed


@pytest.mark.parametrize("values", ["range(2),5", "5, range(2)", "choice(1,2),3"])
def test_a_range_among_other_values_is_one_line(values: str, run_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-m", f"seed={values}", "policy=fifo", "hydra.sweep.dir=out") == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"polluxsim: seed={values}: ")
    assert "(…) cannot stand among other values; write every value, as in seed=0,1,5" in errors
    assert not list(run_in.iterdir())


@pytest.mark.parametrize(
    ("part", "said", "form"),
    [
        ("policy: mine", "policy is 'mine', must be a mapping", ["hydra.run.dir=out"]),
        ("policy: mine", "policy is 'mine', must be a mapping", ["-m", "hydra.sweep.dir=out"]),
        ("profiles: null", "profiles is None, must be a mapping", ["hydra.run.dir=out"]),
        ("policy: {_target_: [1]}", "policy._target_ is [1], must be the dotted name", ["hydra.run.dir=out"]),
        (
            "engine: {checkpoints: {_target_: 1.5}}",
            "engine.checkpoints._target_ is 1.5, must be the dotted name",
            ["hydra.run.dir=out"],
        ),
    ],
)
def test_an_experiment_with_a_part_of_another_kind_is_one_line(
    part: str, said: str, form: list[str], run_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_in / "conf" / "experiment").mkdir(parents=True)
    (run_in / "conf" / "experiment" / "odd.yaml").write_text(f"# @package _global_\n{part}\n")
    small = ["policy=fifo", "workload=philly-like", "workload.num_jobs=2", "workload.hours=1"]
    assert run("--config-dir", "conf", "+experiment=odd", *small, *form) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1
    assert errors.startswith("polluxsim: ")
    assert not (run_in / "out").exists()


def test_a_policy_that_closes_standard_output_is_one_line(
    run_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.syspath_prepend(str(run_in))
    (run_in / "closing.py").write_text(
        "import sys\nfrom polluxsim.policies.ordered.classic import Fifo\n"
        "class Closing(Fifo):\n"
        "    def allocate(self, view, rng):\n        sys.stdout.close()\n        return super().allocate(view, rng)\n"
    )
    small = ["policy=fifo", "workload=philly-like", "workload.num_jobs=2", "workload.hours=1"]
    assert run("policy._target_=closing.Closing", *small, "hydra.run.dir=out") == 2
    assert capsys.readouterr().err.startswith("polluxsim: standard output was closed by code of the run")
    assert read_run(run_in / "out").result.job_records


@pytest.mark.parametrize("lengths", [(100, 1), (500, 1)])
def test_no_error_is_longer_than_a_screen(lengths: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * lengths[0]
    assert main(["table", f"{name}\n{name}"]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert len(errors) < 400
    assert "there is no such folder" in errors or "File name too long" in errors


AT_EXIT = """
import os, signal, sys, threading
import polluxsim.__main__, polluxsim.cli.main
number, moment = int(sys.argv[1]), sys.argv[2]
def command():
    polluxsim.cli.main.begin_command()
    with polluxsim.cli.main.ending_at_once():
        if moment == "loaded": os.kill(os.getpid(), number)
        print("result", flush=True)
        polluxsim.cli.main.results_written()
        if moment == "written": os.kill(os.getpid(), number)
    if moment == "left": os.kill(os.getpid(), number)
    return 0
class Late:
    def __del__(self): os.kill(os.getpid(), number)
if moment == "exit": sys.modules["late"] = Late()
polluxsim.cli.main.main = command
raise SystemExit(polluxsim.__main__.main())
"""


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["loaded", "written", "left", "exit"])
def test_ctrl_c_after_the_result_is_written_changes_nothing(number: int, moment: str) -> None:
    command = [sys.executable, "-c", AT_EXIT, str(int(number)), moment]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if moment == "loaded":
        assert (done.returncode, done.stdout) == (130, "")
        assert done.stderr == "polluxsim: interrupted, nothing was written\n"
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "result\n", "")


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_at_the_first_statement_is_one_line(tmp_path: Path) -> None:
    """A module that Python loads before polluxsim sends the signal as soon as polluxsim looks at its arguments."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Arguments(list):\n"
        "    def __contains__(self, word):\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.001)\n"
        "        return super().__contains__(word)\n"
        "sys.orig_argv = Arguments(sys.orig_argv)\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "polluxsim", "table", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "polluxsim: interrupted, nothing was written\n")
