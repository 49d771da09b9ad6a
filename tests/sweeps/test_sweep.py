"""Sweeps: each run once, recognised later, all in one table."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import split
from shutil import copytree
from threading import Event
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from small_sweeps import HereAndNow, Inputs, command, dataset, in_process, planned, process, results, write_inputs
from toy import write_jobs

from polluxsim.cli.main import main
from polluxsim.common import progress_line
from polluxsim.common.errors import InvalidConfigError, SweepError
from polluxsim.common.files import TEMPORARY, appearing_together, lock
from polluxsim.records.storage import read_run
from polluxsim.run.composing import chosen_launcher
from polluxsim.run.spec import RunSpec, settled
from polluxsim.studies import driver
from polluxsim.studies.driver import CACHE_LOCK, LOCK, complete_sweep, locked, run_sweep, sweep_progress
from polluxsim.studies.launching import StartOrder, chosen_workers
from polluxsim.studies.plan import Entry, composer

if TYPE_CHECKING:
    from collections.abc import Sequence

MIXED = (
    "policy=tiresias policy.queue_threshold=100 seed=1",
    "policy=pollux policy.p=1 engine.horizon=600",
    "policy=fifo engine.horizon=100",
    "cluster=mixed cluster.groups=[[2,4],[3,2]] policy=srtf",
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 600  # for a test that fails, not for a machine that is busy
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)


def done(entries: Sequence[Entry], folder: Path, cache: Path | None = None) -> list[str]:
    """Complete a sweep and return the keys of the runs that had to be done."""
    workers = HereAndNow()
    complete_sweep(entries, folder, workers, cache)
    return [entry.key for entry in workers.done]


def test_a_sweep_of_different_runs_is_one_table(tmp_path: Path, inputs: Inputs) -> None:
    plan = [[*inputs.overrides, *run.split()] for run in (*MIXED, MIXED[0])]
    frame = run_sweep(plan, tmp_path, workers=2)
    assert (len(frame), frame["key"].nunique()) == (5, 4)  # the one that stands there twice is one run
    assert frame["folder"][4] == frame["folder"][0]
    assert frame["policy.p"].isna().tolist() == [True, False, True, True, True]
    assert frame["policy.queue_threshold"].tolist()[0] == 100
    assert frame["seed"].tolist() == [1, 0, 0, 0, 1]
    assert frame["cluster.groups"].tolist()[3] == "[[2, 4], [3, 2]]"
    for folder, jct, cut_off in zip(frame["folder"], frame["avg_jct"], frame["cut_off"], strict=True):
        summary = read_run(Path(folder)).info["summary"]
        assert (summary["avg_jct"], summary["cut_off"]) == (jct, list(cut_off))
    before = results(tmp_path)
    again = run_sweep(plan, tmp_path)
    pd.testing.assert_frame_equal(frame, again)
    assert results(tmp_path) == before


def test_three_readers_read_the_same_table(tmp_path: Path, inputs: Inputs) -> None:
    complete_sweep(planned(tmp_path, inputs, *MIXED), tmp_path, HereAndNow())
    path = str(tmp_path / "sweep.parquet")
    columns = ["folder", "policy.p", "engine.horizon", "avg_jct", "jct_by_application.ncf", "num_jobs"]
    names = ", ".join(f'"{name}"' for name in columns)
    by_duckdb = duckdb.sql(f"select {names} from '{path}'").fetchall()
    by_polars = pl.read_parquet(path).select(columns).rows()
    by_pandas = pd.read_parquet(path)[columns].astype(object)
    assert by_duckdb == by_polars
    assert [tuple(row) for row in by_pandas.where(by_pandas.notna(), None).values.tolist()] == by_polars


def test_a_columns_type_is_the_settings_and_not_its_values(tmp_path: Path, inputs: Inputs) -> None:
    """So tables of two sweeps can be put one below the other."""
    types = []
    for number, run in enumerate(("policy.p=1 engine.horizon=50", "policy.p=-0.5 engine.horizon=60.5")):
        folder = tmp_path / str(number)
        complete_sweep(planned(folder, inputs, run), folder, HereAndNow())
        types.append(pq.read_schema(folder / "sweep.parquet"))
    assert types[0] == types[1]
    assert str(types[0].field("policy.p").type) == "double"


def test_a_finished_run_is_recognised_whatever_its_place_in_the_plan(tmp_path: Path, inputs: Inputs) -> None:
    first = planned(tmp_path, inputs, "policy=fifo seed=1", "policy=fifo seed=2")
    assert done(first, tmp_path) == [entry.key for entry in first]
    more = planned(tmp_path, inputs, "policy=fifo seed=3", "policy=fifo seed=2", "seed=1 policy=fifo")
    assert done(more, tmp_path) == [more[0].key]
    assert pd.read_parquet(tmp_path / "sweep.parquet")["seed"].tolist() == [3, 2, 1]
    assert done(first, tmp_path) == []
    assert pd.read_parquet(tmp_path / "sweep.parquet")["seed"].tolist() == [1, 2]


def test_a_run_whose_data_changed_is_done_again(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    folder = tmp_path / "sweep"
    for change in (None, inputs.workload, inputs.profiles / "traces" / "ncf" / "placements.csv"):
        if change is not None:
            lines = change.read_text().splitlines()
            change.write_text("\n".join(lines[:-1]) + "\n")
        entries = planned(folder, inputs, "policy=fifo")
        assert done(entries, folder) == [entries[0].key]
        assert done(planned(folder, inputs, "policy=fifo"), folder) == []


def test_data_that_change_while_a_run_reads_them_are_noticed(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    entries = planned(tmp_path / "sweep", inputs, "policy=fifo")
    inputs.workload.write_text(inputs.workload.read_text().replace("cifar10-5,300", "cifar10-5,301"))
    with pytest.raises(SweepError, match="changed while it ran"):
        complete_sweep(entries, tmp_path / "sweep", HereAndNow())
    assert not (tmp_path / "sweep" / "sweep.parquet").exists()


def test_a_cache_serves_other_sweeps(tmp_path: Path, inputs: Inputs) -> None:
    first = planned(tmp_path / "a", inputs, "policy=fifo seed=1", "policy=fifo seed=2")
    cache = tmp_path / "cache"
    assert len(done(first, tmp_path / "a", cache)) == 2
    second = planned(tmp_path / "b", inputs, "policy=fifo seed=2", "policy=fifo seed=3")
    assert done(second, tmp_path / "b", cache) == [second[1].key]
    third = planned(tmp_path / "c", inputs, "policy=fifo seed=2", "policy=fifo seed=3")
    assert done(third, tmp_path / "c", tmp_path / "b") == []  # a sweep's folder is a cache, too
    assert dataset(tmp_path / "c") == dataset(tmp_path / "b")
    assert read_run(tmp_path / "b" / second[0].folder.name).result.job_records


def test_two_sweeps_that_end_together_fill_a_cache_one_after_the_other(tmp_path: Path, inputs: Inputs) -> None:
    cache = tmp_path / "cache"
    entries = planned(tmp_path / "a", inputs, "policy=fifo")
    copy = cache / entries[0].key
    half_way = Event()

    def give_slowly() -> None:
        with locked(cache, CACHE_LOCK, waiting=True), appearing_together(copy, last="run.json") as temporary:
            half_way.set()
            wait_for(tmp_path / "a" / "sweep.parquet")
            time.sleep(0.3)
            (temporary / "run.json").write_text("{}")

    cache.mkdir()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(give_slowly)
        half_way.wait()
        assert done(entries, tmp_path / "a", cache) == [entries[0].key]
        other.result()
    assert done(planned(tmp_path / "b", inputs, "policy=fifo"), tmp_path / "b", cache) == []


def test_a_run_does_not_take_the_folder_of_another(tmp_path: Path, inputs: Inputs) -> None:
    """As happens where folders are numbered, and a plan grows in front."""

    def numbered(*plan: str) -> list[Entry]:
        entries = planned(tmp_path, inputs, *plan)
        return [Entry(entry.overrides, entry.spec, entry.key, tmp_path / str(i)) for i, entry in enumerate(entries)]

    assert len(done(numbered("policy=fifo", "policy=srtf"), tmp_path)) == 2
    grown = numbered("policy=tiresias", "policy=fifo", "policy=srtf")
    assert done(grown, tmp_path) == [grown[0].key]
    frame = pd.read_parquet(tmp_path / "sweep.parquet")
    assert frame["folder"].tolist() == [f"0-{grown[0].key[:8]}", "0", "1"]
    for folder, target in zip(frame["folder"], frame["policy._target_"], strict=True):
        assert read_run(tmp_path / folder).info["config"]["policy"]["_target_"] == target


def test_a_second_sweep_into_a_folder_keeps_the_runs_of_the_first(
    run_in: Path, inputs: Inputs, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even where nothing in the names tells them apart, as with workloads."""
    other = write_jobs(run_in / "other.csv", "a,0,cifar10,1,512", "b,9,cifar10,1,512")
    common = ["-m", "policy=fifo,srtf", *inputs.overrides, "hydra.sweep.dir=out"]
    assert main(["run", *common]) == 0
    before = results(run_in / "out")
    assert main(["run", *common, f"workload.path={other}"]) == 0
    both = results(run_in / "out")
    assert {name: both[name] for name in before if "/" in name} == {
        name: text for name, text in before.items() if "/" in name
    }
    assert len(both) == 2 * len(before) - 1
    for path, runs in ((inputs.workload, common), (other, [*common, f"workload.path={other}"])):
        capsys.readouterr()
        assert main(["run", *runs]) == 0
        assert "2 runs, 2 of them found finished" in capsys.readouterr().out
        assert set(pd.read_parquet(run_in / "out" / "sweep.parquet")["workload.path"]) == {str(path)}


def test_runs_may_be_in_folders_of_folders(run_in: Path, inputs: Inputs, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["-m", "policy=fifo,srtf", "seed=1,2", *inputs.overrides, "hydra.sweep.dir=out"]
    common += ["hydra.sweep.subdir='a/${seed}/${hydra:runtime.choices.policy}'"]
    for found in ("4 runs\n", "4 runs, 4 of them found finished\n"):
        assert main(["run", *common]) == 0
        assert found in capsys.readouterr().out
    kept = {path.parent.relative_to(run_in / "out").as_posix() for path in (run_in / "out").rglob("run.json")}
    assert kept == {f"a/{seed}/{policy}" for seed in (1, 2) for policy in ("fifo", "srtf")}
    assert main(["table", "out"]) == 0
    assert "FIFO" in capsys.readouterr().out


def test_runs_that_replicate_nothing_are_told(run_in: Path, inputs: Inputs, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["run", "-m", *inputs.overrides, "hydra.sweep.dir=out", "policy=fifo"]
    assert main([*common, "seed=1,2,3"]) == 0
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "0-policy=fifo,seed=1 and 2 more differ in their seed and in no result" in printed
    assert main([*common, "seed=1", "engine.horizon=100,200"]) == 0
    assert main([*common, "seed=1,2", "policy=pollux", "policy.search=genetic", "engine.horizon=900"]) == 0
    assert capsys.readouterr().err == ""


def test_progress_counts_the_plans_runs_and_not_what_is_in_their_folders(
    tmp_path: Path, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = planned(tmp_path, inputs, "policy=fifo", "policy=srtf")
    for entry in entries:
        entry.folder.mkdir()
        (entry.folder / "run.json").write_text('{"key": "of another run"}')
    shown = io.StringIO()
    monkeypatch.setattr(progress_line, "Console", lambda **_: Console(file=shown, force_terminal=True, width=120))
    monkeypatch.setattr(driver, "PAUSE", 0.01)

    def counts() -> set[str]:
        return set(re.findall(r"([0-9]/2)", shown.getvalue()))

    with sweep_progress(entries, num_finished=0):
        while not counts():
            time.sleep(0.01)
        assert counts() == {"0/2"}
        for entry in entries:
            (entry.folder / "run.json").write_text(json.dumps({"key": entry.key}))
        while "2/2" not in counts():
            time.sleep(0.01)


def test_an_infinite_setting_is_kept(run_in: Path, inputs: Inputs, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["policy=tiresias", *inputs.overrides]
    assert main(["run", *common, "policy.queue_threshold=inf", "hydra.run.dir=out"]) == 0
    assert read_run(run_in / "out").info["config"]["policy"]["queue_threshold"] == math.inf
    assert main(["run", *common, "policy.queue_threshold=inf", "hydra.run.dir=out"]) == 0  # the same settings
    capsys.readouterr()
    plan = ["-m", *common, "policy.queue_threshold=inf,1e300", "hydra.sweep.dir=sweep"]
    for found in ("2 runs\n", "2 runs, 2 of them found finished\n"):
        assert main(["run", *plan]) == 0
        assert found in capsys.readouterr().out
    assert pd.read_parquet(run_in / "sweep" / "sweep.parquet")["policy.queue_threshold"].tolist() == [math.inf, 1e300]
    # JSON has no word for infinity, and others than Python read the file too.
    json.loads((run_in / "out" / "run.json").read_text(), parse_constant=pytest.fail)


def test_a_table_is_there_only_when_the_sweep_is_complete(tmp_path: Path, inputs: Inputs) -> None:
    complete_sweep(planned(tmp_path, inputs, "policy=fifo"), tmp_path, HereAndNow())
    with pytest.raises(SweepError, match=r"policy=fifo seed=-1: seed is -1, must be a whole number") as caught:
        run_sweep([[*inputs.overrides, *run.split()] for run in ("policy=fifo", "policy=fifo seed=-1")], tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sweep.parquet").exists()


def test_two_sweeps_do_not_work_in_one_folder(tmp_path: Path, inputs: Inputs) -> None:
    with (tmp_path / LOCK).open("a") as file:
        lock(file)
        with pytest.raises(SweepError, match="another sweep is at work here"):
            complete_sweep(planned(tmp_path, inputs, "policy=fifo"), tmp_path, HereAndNow())


def test_a_policy_of_ones_own_that_changed_is_run_again(run_in: Path, inputs: Inputs) -> None:
    (run_in / "conf" / "policy").mkdir(parents=True)
    (run_in / "conf" / "policy" / "mine.yaml").write_text("_target_: mine.Policy\n")
    counts = []
    for body in ("return {}", "return {}", "return dict()"):
        (run_in / "mine.py").write_text(f"class Policy:\n    def allocate(self, view, rng):\n        {body}\n")
        swept = in_process(
            "-m", "--config-dir", "conf", "policy=mine", "engine.horizon=50", "hydra.sweep.dir=out", *inputs.overrides
        )
        assert "no job ever got a GPU" in swept.stderr
        assert swept.returncode == 1, swept.stderr
        counts.append("1 of them found finished" in swept.stdout)
    assert counts == [False, True, False]


def test_a_sweep_may_work_in_the_folder_of_its_data(run_in: Path, inputs: Inputs) -> None:
    copytree(inputs.profiles, run_in, dirs_exist_ok=True)
    arguments = ["-m", "policy=fifo", "seed=0,1", "profiles.path=.", "hydra.sweep.dir=."]
    arguments.append(f"workload.path={inputs.workload}")
    found = []
    for change in (False, False, True):
        if change:
            file = run_in / "traces" / "ncf" / "placements.csv"
            file.write_text("\n".join(file.read_text().splitlines()[:-1]) + "\n")
        swept = in_process(*arguments)
        assert swept.returncode == 0, swept.stderr
        found.append("2 of them found finished" in swept.stdout)
    assert found == [False, True, False]


def test_the_command_line_gives_the_same_sweep(run_in: Path, inputs: Inputs) -> None:
    arguments = ["-m", "policy=fifo,srtf", "seed=1,2", *inputs.overrides, "hydra.sweep.dir=out"]
    swept = in_process(*arguments)
    assert swept.returncode == 0, swept.stderr
    assert "replicate nothing" in swept.stderr
    assert swept.stderr.count("\n") == 1  # else quiet: this is no terminal
    assert "wrote out/sweep.parquet: 4 runs\n" in swept.stdout
    before = results(run_in / "out")
    assert "4 runs, 4 of them found finished" in in_process(*arguments).stdout
    assert results(run_in / "out") == before
    plan = [["policy=" + policy, f"seed={seed}", *inputs.overrides] for policy in ("fifo", "srtf") for seed in (1, 2)]
    frame = run_sweep(plan, run_in / "out")
    assert dataset(run_in / "out") == before["sweep.parquet"]
    other = run_sweep(plan, run_in / "other")
    pd.testing.assert_frame_equal(frame.drop(columns="folder"), other.drop(columns="folder"))


BAD = [
    (["policy=fifo,nope"], "policy=nope is unknown, must be one of afs, allox, antman, autoscale-goodput"),
    (["policy.speed=1,2"], "there is no setting 'policy.speed'"),
    (["seed=1,2", "hydra/launcher=nowhere"], "hydra/launcher=nowhere is unknown, must be one of basic"),
    (["seed=1,2", "hydra.sweeper.workers=0"], "workers is 0, must be a whole number"),
    (["seed=1,2", "hydra.sweeper.workers=two"], "workers is 'two', must be a whole number"),
    (["seed=1,2", "hydra.sweep.dir=w.csv"], "w.csv"),
    (["policy.p=interval(0,1)"], "policy.p=interval(0,1): an interval, must be values"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: " ".join(value) if list(value) else "")
def test_a_sweep_that_cannot_be_is_one_line_and_leaves_nothing(
    run_in: Path, inputs: Inputs, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (run_in / "w.csv").write_text("")
    assert main(["run", "-m", *inputs.overrides, "hydra.sweep.dir=out", *arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("polluxsim: ")
    assert printed.count("\n") == 1
    assert message in printed
    assert not (run_in / "out").exists()


COMPOSED = (
    "",
    "seed=3",
    "policy=tiresias policy.queue_threshold=7 workload=philly-like workload.hours=2 seed=9",
    "policy.p=1 engine=osdi21 engine.horizon=null",
    "cluster=mixed cluster.groups=[[2,4],[3,2]]",
    "+policy.more=1 seed=2 ~policy.search",
    "profiles.path=\"'a b'\" workload.path=x-y",
)


def test_composing_quickly_gives_what_hydra_gives() -> None:
    composing = composer()
    lines = [split(overrides) for overrides in COMPOSED]
    for words, expected in zip(lines, printed_settings(lines), strict=True):
        for _ in range(2):
            assert composing.compose(words).config == expected
            composing.compose([*words, "seed=77"])


def printed_settings(lines: Sequence[Sequence[str]]) -> list[Any]:
    """Return the settings that Hydra composes from the words of each line, in a new process, which remembers none."""
    code = (
        "import json, sys; from hydra import compose, initialize_config_dir; from omegaconf import OmegaConf\n"
        "from polluxsim.common.shipped import shipped\n"
        "with initialize_config_dir(str(shipped('configs')), version_base='1.3'):\n"
        "    composed = [compose('run', words) for words in json.load(sys.stdin)]\n"
        "print(json.dumps([OmegaConf.to_container(each, resolve=True) for each in composed]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(lines), capture_output=True, text=True, check=True
    )
    return [settled(settings) for settings in json.loads(done.stdout)]


def test_a_plan_that_cannot_be_composed_says_which_run(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfigError, match=r"policy=fifo policy\.p=1: no chosen policy has the setting policy\.p"
    ):
        run_sweep([["policy=fifo"], ["policy=fifo", "policy.p=1"]], tmp_path / "out")
    with pytest.raises(InvalidConfigError, match=r"^policy=fif is unknown"):
        run_sweep([["policy=fifo"], ["policy=fif"]], tmp_path / "out")
    with pytest.raises(InvalidConfigError, match="the plan of the sweep has no runs"):
        run_sweep([], tmp_path / "out")
    with pytest.raises(InvalidConfigError, match="nowhere: no such folder"):
        run_sweep([[]], tmp_path / "out", config_dirs=[tmp_path / "nowhere"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("launcher", "extra"), [("ray", "ray"), ("submitit_slurm", "slurm")])
def test_a_launcher_that_is_not_installed_names_its_extra(
    launcher: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("ray", "submitit"):
        monkeypatch.setitem(sys.modules, module, None)
    chosen = chosen_launcher([f"hydra/launcher={launcher}"], [], Path("s"))
    with pytest.raises(InvalidConfigError, match=rf"is not installed; run pip install 'polluxsim\[{extra}\]'"):
        chosen_workers(chosen, None)


def test_an_executor_of_the_user_makes_the_runs(tmp_path: Path, inputs: Inputs) -> None:
    plan = [[*inputs.overrides, f"policy={policy}"] for policy in ("fifo", "srtf")]
    with ThreadPoolExecutor(1) as executor:
        elsewhere = run_sweep(plan, tmp_path / "elsewhere", launcher=executor)
    here = run_sweep(plan, tmp_path / "here", workers=1)
    assert elsewhere.drop(columns="folder").equals(here.drop(columns="folder"))


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_a_number_of_workers_that_cannot_be_is_named(tmp_path: Path, inputs: Inputs, workers: Any) -> None:
    with pytest.raises(InvalidConfigError, match=f"workers is {workers}, must be a whole number"):
        run_sweep([[*inputs.overrides, "policy=fifo"]], tmp_path / "out", workers=workers)
    assert not (tmp_path / "out").exists()


def test_the_longest_kind_of_run_comes_first() -> None:
    def entry(kind: str, seed: int) -> Entry:
        return Entry((kind,), RunSpec({"policy": kind, "seed": seed}), f"{kind}{seed}", Path(f"{kind}{seed}"))

    order = StartOrder([entry(kind, seed) for kind in ("short", "long", "middle") for seed in (1, 2)])
    first = [order.next() for _ in range(3)]
    assert [one.overrides[0] for one in first] == ["short", "long", "middle"]  # one of each is tried out
    for one, seconds in zip(first, (1.0, 9.0, 5.0), strict=True):
        order.took(one, seconds)
    assert [order.next().key for _ in range(3)] == ["long2", "middle2", "short2"]
    assert not order


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_sweep_and_keeps_what_is_finished(run_in: Path, inputs: Inputs, number: int) -> None:
    arguments = ["-m", "policy=pollux", "seed=range(0,40)", *inputs.overrides, "hydra.sweep.dir=out"]
    running = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list((run_in / "out").glob("*/run.json")):
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, number)  # as a terminal does it: to all processes
    _, errors = running.communicate()
    assert running.returncode == 130
    assert errors.count("\n") == 1
    kept = len(list((run_in / "out").glob("*/run.json")))
    assert f"interrupted, {kept} of 40 runs are finished and kept; the same command continues" in errors
    assert kept < 40
    assert not (run_in / "out" / "sweep.parquet").exists()
    assert not list((run_in / "out").rglob(TEMPORARY))
    assert len([path for path in (run_in / "out").iterdir() if path.is_dir()]) == kept


def test_workers_end_when_their_parent_is_killed(run_in: Path, inputs: Inputs) -> None:
    arguments = ["-m", "policy=pollux", "seed=range(0,40)", *inputs.overrides, "hydra.sweep.dir=out"]
    running = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL, start_new_session=True)
    while not list((run_in / "out").glob("*/run.json")):
        assert running.poll() is None
        time.sleep(0.05)
    running.kill()
    running.wait()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("there are still processes of the sweep")


def test_workers_say_a_warning_once(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "warns.yaml").write_text("_target_: warns.Warns\n")
    (tmp_path / "warns.py").write_text(
        "import warnings\nfrom polluxsim.policies.ordered.classic import Fifo\nclass Warns(Fifo):\n"
        "    def __init__(self):\n        super().__init__()\n        warnings.warn('of my own', FutureWarning)\n"
    )
    runs = ["-m", "--config-dir", str(tmp_path / "conf"), "policy=warns", "seed=0,1,2", "hydra.sweeper.workers=2"]
    done = process(*runs, *inputs.overrides, f"hydra.sweep.dir={tmp_path / 'sweep'}", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("polluxsim: of my own") == 1
