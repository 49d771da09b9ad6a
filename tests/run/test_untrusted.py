"""A run folder is data: its run.json makes no command import or call anything but polluxsim's own classes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.engine.failures import DrawnFailures
from polluxsim.records.storage import Run
from polluxsim.run import building
from polluxsim.run.building import check_classes
from polluxsim.run.forks import ancestry

SMALL = ["workload=philly-like", "workload.num_jobs=8", "workload.hours=1"]

MINE = """
import os

class Fifo:
    def __init__(self, most: int = 64): self.most = most
    def allocate(self, view, rng):
        free, allocation = list(view.gpus_per_node), {}
        for job in view.jobs:
            node = next((n for n, gpus in enumerate(free) if gpus >= job.num_replicas), None)
            if node is not None:
                allocation[job.job_id] = ((node, job.num_replicas),); free[node] -= job.num_replicas
        return allocation

class NoPolicy:
    pass
"""
CANARY = """
from pathlib import Path
Path("imported").touch()
class Fifo:
    def allocate(self, view, rng): return {}
"""


def call(target: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": target, **arguments}


FIFO = "polluxsim.policies.ordered.classic.Fifo"
VICTIM = "victim"
TARGETS: dict[str, tuple[str, Any]] = {
    # What stands in run.json in place of a part of the settings, by that part.
    "unlink": ("policy", call("pathlib.Path.unlink", self={"_target_": "pathlib.Path", "_args_": [VICTIM]})),
    "write_text": ("policy", call("pathlib.Path.write_text", self=call("pathlib.Path", _args_=[VICTIM]), data="")),
    "open": ("policy", call("builtins.open", file=VICTIM, mode="w")),
    "eval": ("policy", call("builtins.eval", _args_=["open('victim', 'w')"])),
    "exec": ("workload", call("builtins.exec", _args_=["open('victim', 'w')"])),
    "import": ("policy", call("builtins.__import__", _args_=["canary"])),
    "system": ("policy", call("os.system", command="rm victim")),
    "remove": ("cluster", call("os.remove", path=VICTIM)),
    "run": ("policy", call("subprocess.run", args=["rm", VICTIM])),
    "popen": ("engine", call("subprocess.Popen", args=["rm", VICTIM])),
    "rmtree": ("profiles", call("shutil.rmtree", path=".")),
    "save": ("policy", call("numpy.save", file=VICTIM, arr=[1])),
    "tofile": ("workload", call("pandas.DataFrame.to_csv", path_or_buf=VICTIM)),
    "read_pickle": ("policy", call("pandas.read_pickle", filepath_or_buffer="evil.pickle")),
    "pickle": ("agent", call("pickle.loads", _args_=["x"])),
    "pip": ("policy", call("pip.main", args=["install", "evil"])),
    "import_module": ("policy", call("importlib.import_module", name="canary")),
    "reload": ("policy", call("importlib.reload", module="canary")),
    "runpy": ("policy", call("runpy.run_path", path_name="canary.py")),
    "own module": ("policy", call("canary.Fifo")),
    "dotted module": ("policy", call("canary")),
    "relative": ("policy", call(".canary.Fifo")),
    "own file writer": ("policy", call("polluxsim.common.files.remove", path=VICTIM)),
    "own storage": ("policy", call("polluxsim.records.storage.write_run", folder="x")),
    "own command": (
        "policy",
        call("polluxsim.cli.main.main", arguments=["workload", "workload=philly-like", "-o", VICTIM]),
    ),
    "of polluxsim's imports": ("policy", call("polluxsim.run.inputs.json.loads", s="1")),
    "method": ("policy", call(f"{FIFO}.allocate")),
    "of another group": ("policy", call("polluxsim.workloads.workload.WorkloadFile", path=VICTIM)),
    "nested": ("policy", call(FIFO, backfill=call("os.remove", path=VICTIM))),
    "in a list": (
        "cluster",
        call("polluxsim.hardware.clusters.Cluster.of_groups", groups=[[1, call("os.remove", path=VICTIM)]]),
    ),
    "in a list of lists": ("engine", {"restart_delays": [[[{"a": call("os.remove", path=VICTIM)}]]]}),
    "partial": ("policy", call(FIFO, _partial_=True)),
    "positional": ("policy", call(FIFO, _args_=[True])),
    "convert": ("policy", call(FIFO, _convert_="object")),
    "environment": ("policy", call(FIFO, backfill="${oc.env:HOME}")),
    "resolver": ("policy", call(FIFO, backfill="${oc.decode:'1'}")),
    "reference": ("policy", call("${workload._target_}")),
    "escaped": ("policy", call(FIFO, backfill="\\${oc.env:HOME}")),
    "interpolated name": ("policy", call(FIFO, **{"${oc.env:HOME}": 1})),
    "rule": ("workload", call("polluxsim.workloads.mapping.MappedTrace", path=VICTIM, rule="canary.Fifo")),
    "rule, nested": ("workload", call("polluxsim.workloads.mapping.MappedTrace", rule=call("canary.Fifo"))),
    "no text": ("policy", call(["os.remove"])),  # type: ignore[arg-type]
    "unknown part": ("extra", call(FIFO)),
    "path as part": ("../policy", call(FIFO)),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["run", "policy=fifo", *SMALL, f"hydra.run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the current folder, which has a run, a file to be spared, and modules of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    shutil.copytree(finished, tmp_path / "bad")
    for name, text in {VICTIM: "still here", "canary.py": CANARY, "mine.py": MINE}.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in ("mine", "canary"):
        sys.modules.pop(name, None)


def with_config(folder: Path, group: str, part: Any) -> None:
    path = folder / "bad" / "run.json"
    info = json.loads(path.read_text())
    old = info["config"].get(group)
    info["config"][group] = old | part if isinstance(part, dict) and "_target_" not in part else part
    path.write_text(json.dumps(info))


def commands(folder: Path) -> list[list[str]]:
    job = polluxsim.read(folder / "bad").jobs.job.iloc[-1]
    return [
        ["whatif", "bad", "--at", "60", "policy=srtf"],
        ["when", "bad", "--at", "60", "--forks", "1"],
        ["why", "bad", str(job), "--at=60"],
    ]


def test_there_are_thirty_targets() -> None:
    assert len(TARGETS) >= 30


@pytest.mark.parametrize("name", TARGETS)
def test_a_dangerous_target_is_refused_before_any_import(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_config(folder, *TARGETS[name])
    used: list[object] = []
    for function in ("get_object", "instantiate"):
        monkeypatch.setattr(building, function, lambda *arguments, **_: used.append(arguments))
    for command in commands(folder)[:2]:
        assert main(command) == 2
        errors = capsys.readouterr().err
        assert errors.startswith("polluxsim: bad/run.json: ")
        assert errors.count("\n") == 1
        assert len(errors) < 400
    with pytest.raises(InvalidInputError):
        polluxsim.read("bad").at(60)
    assert used == []
    assert Path(VICTIM).read_text() == "still here"
    assert not Path("imported").exists()
    assert "canary" not in sys.modules


@pytest.mark.parametrize("name", ["unlink", "own module", "rule", "environment"])
def test_commands_that_only_read_a_run_do_not_care(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_config(folder, *TARGETS[name])
    why = commands(folder)[-1]
    for command in (why, why[:-1], ["report", "bad"], ["timeline", "bad"], ["table", "bad"], ["plot", "usage", "bad"]):
        assert main(command) == 0, command
        assert "Traceback" not in capsys.readouterr().err
    assert Path(VICTIM).read_text() == "still here"
    assert not Path("imported").exists()


def test_every_shipped_entry_may_stand_in_a_run_folder() -> None:
    for group in ("policy", "cluster", "workload", "engine", "profiles", "agent"):
        for path in (shipped("configs") / group).glob("**/*.yaml"):
            settings = yaml.safe_load(path.read_text(encoding="utf-8").replace("${seed}", "0"))
            assert check_classes({group: settings}, "x") == [], path


def test_parts_that_are_objects_in_python_may_stand_there() -> None:
    cluster = polluxsim.Cluster.uniform(4, 4, failures=DrawnFailures(1000.0, 600.0))
    run = polluxsim.simulate(
        polluxsim.workload("philly-like", num_jobs=4, hours=1),
        policy="fifo",
        cluster=cluster,
        settings=polluxsim.EngineSettings(restart_delay=20.0),
        progress=False,
    )
    assert run.at(60).time == 60


def run_of_a_class(capsys: pytest.CaptureFixture[str]) -> str:
    """Make a run of the class in mine.py, forget the module, and return the name of a job."""
    own = ["policy=fifo", "policy._target_=mine.Fifo", "~policy.backfill"]
    assert main(["run", *own, *SMALL, "hydra.run.dir=own"]) == 0
    capsys.readouterr()
    sys.modules.pop("mine")
    sys.path.remove(str(Path.cwd()))
    return str(polluxsim.read("own").jobs.job.iloc[-1])


def test_a_run_of_a_class_of_the_users_goes_on_if_it_is_allowed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = run_of_a_class(capsys)
    for command in (["whatif", "own", "--at", "60", "policy=srtf"], ["when", "own", "--at", "60", "--forks", "1"]):
        assert main(command) == 2
        assert capsys.readouterr().err == (
            "polluxsim: own/run.json: policy._target_ is 'mine.Fifo', which is not one of polluxsim's classes for "
            "policy; if you trust its code, add --allow-classes mine\n"
        )
        assert "mine" not in sys.modules
        assert main([*command, "--allow-classes", "mine"]) == 0
        line = f"polluxsim: own/run.json names mine.Fifo, loaded from {folder / 'mine.py'}\n"
        assert capsys.readouterr().err == line
        sys.modules.pop("mine")
    assert "add --allow-classes mine" in why(job, capsys)
    assert "is not known" not in why(job, capsys, "--allow-classes", "mine")
    assert polluxsim.read("own", allow_classes=["mine"]).at(60).time == 60


def why(job: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """Return what `why` prints of a time at which the job waits."""
    record = next(each for each in polluxsim.read("own").result.job_records if each.job == job)
    assert main(["why", "own", job, "--at", str(record.submit_time + 1), *more]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("mine.os.remove", "must be a class of an allowed module itself"),
        ("mine.Fifo.allocate", "must be a class of an allowed module itself"),
        ("mine.NoPolicy", "must be a class with a method allocate"),
        ("mine.Missing", "does not exist: "),
        ("minestrone.Fifo", "which is not one of polluxsim's classes for policy"),
    ],
)
def test_an_allowed_module_lends_only_its_own_classes(
    target: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_config(folder, "policy", call(target))
    assert main(["when", "bad", "--at", "60", "--allow-classes", "mine"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("module", ["os", "builtins", "subprocess", "polluxsim", "polluxsim.common.files", "os.path"])
def test_modules_of_python_are_not_allowed(module: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["when", "bad", "--at", "60", "--allow-classes", module]) == 2
    assert f"--allow-classes {module}: a module of Python or polluxsim" in capsys.readouterr().err


BROKEN = {
    "config is text": ("config", "x"),
    "config is a list": ("config", [1]),
    "config is null": ("config", None),
    "versions are text": ("versions", "x"),
    "descent is a list": ("descent", ["x"]),
    "summary is a number": ("summary", 3),
}


@pytest.mark.parametrize("name", BROKEN)
def test_parts_of_run_json_of_another_kind_are_one_line(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [*commands(folder), ["report", "bad"], ["timeline", "bad"], ["table", "bad"], ["compare", "bad", "bad"]]
    key, value = BROKEN[name]
    path = folder / "bad" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    for command in every:
        assert main(command) == 2, command
        errors = capsys.readouterr().err
        assert errors.count("\n") == 1
        assert f"bad/run.json: {key} is " in errors


@pytest.mark.parametrize("before", [["x"], {"config": {}, "descent": "x"}])
def test_a_descent_of_another_kind_is_one_line(before: object) -> None:
    run = Run("bad", {"descent": {"before": before}}, None)
    with pytest.raises(InvalidInputError, match=r"bad/run.json: descent is .*; make the fork again"):
        ancestry(run)


@pytest.mark.parametrize("group", ["policy", "cluster", "engine", "profiles", "workload"])
@pytest.mark.parametrize("value", [None, "fifo", [1]])
def test_parts_of_the_settings_of_another_kind_are_one_line(
    group: str, value: object, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = commands(folder)
    with_config(folder, group, value)
    for command in every[:2]:
        assert main(command) == 2
        errors = capsys.readouterr().err
        assert errors.startswith("polluxsim: ")
        assert errors.count("\n") == 1
        assert group in errors
