"""Configurations of the user's own: they win over shipped ones of the same name, wherever a command composes some."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import create_functions

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, PolicyError
from polluxsim.common.shipped import shipped
from polluxsim.records.storage import flat
from polluxsim.run.composing import composed
from polluxsim.run.configurations import FUNCTIONS, as_hydra_takes, policy_text, searched_first, split_list
from polluxsim.studies.plan import composer, entry_of

SMALL = ["workload=philly-like", "workload.num_jobs=4", "workload.hours=1"]
RAISES = """
class Mine:
    def __init__(self, quantum: float = 1.0): self.quantum = quantum
    def allocate(self, view, rng): raise RuntimeError("my own las")
"""


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a policy that raises, under the name of a shipped one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_las.py").write_text(RAISES)
    return write("policy/las", _target_="own_las.Mine")


def write(name: str, **entry: object) -> Path:
    path = Path("conf") / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(entry, sort_keys=False))
    return Path("conf")


def shipped_entry(name: str, **changes: object) -> dict[str, object]:
    return yaml.safe_load((shipped("configs") / f"{name}.yaml").read_text()) | changes


COMMANDS = {
    "run": ["run", "--config-dir", "conf", "policy=las", *SMALL, "hydra.run.dir=out"],
    "run by search path": ["run", "hydra.searchpath=[conf]", "policy=las", *SMALL, "hydra.run.dir=out"],
    "sweep": ["run", "-m", "--config-dir", "conf", "policy=las", *SMALL, "hydra.sweep.dir=out"],
    "check": ["check", "--config-dir", "conf", "las", "--worlds", "1"],
    "arena": ["arena", "--config-dir", "conf", "--policies", "las", "--scenarios", "rigid", "--seeds", "1"],
    "size": ["size", "--config-dir", "conf", "policy=las", *SMALL, "--target", "mean wait < 1h", "--limit", "16"],
    "whatif": ["whatif", "base", "--config-dir", "conf", "--at", "10min", "policy=las"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_users_class_runs_under_a_shipped_name(
    conf: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "whatif":
        assert main(["run", "policy=fifo", *SMALL, "hydra.run.dir=base"]) == 0
    capsys.readouterr()
    assert main(COMMANDS[command]) != 0 or command == "arena"
    printed = capsys.readouterr()
    assert "my own las" in printed.err + printed.out
    replaced = [line for line in printed.err.splitlines() if "place of" in line]
    assert replaced == ["polluxsim: conf/policy/las.yaml takes the place of polluxsim's own entry of the same name"], (
        printed.err
    )


def test_the_users_class_runs_in_python(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = polluxsim.workload("philly-like", num_jobs=4, hours=1)
    with polluxsim.config_dirs(conf), pytest.raises(PolicyError, match="my own las"):
        polluxsim.simulate(small, policy="las", progress=False)
    assert capsys.readouterr().err.count("place of polluxsim's own entry") == 1
    polluxsim.simulate(small, policy="las", progress=False)
    with pytest.raises(InvalidConfigError, match="nowhere: no such folder"), polluxsim.config_dirs("nowhere"):
        pass


@pytest.mark.parametrize(
    ("entry", "change", "setting"),
    [
        ("cluster/t4-16x4", {"num_nodes": 3}, "cluster.num_nodes"),
        ("cluster/failures/rsc-1", {"rate": 77.0}, "cluster.failures.rate"),
        ("workload/philly-like", {"num_jobs": 2}, "workload.num_jobs"),
        ("engine/exact", {"round_interval": 17.0}, "engine.round_interval"),
        ("engine/checkpoints/epoch", {"cost": 3.0}, "engine.checkpoints.cost"),
        ("agent/fixed", {"_target_": "own_las.Mine"}, "agent._target_"),
        ("profiles/folder", {"path": "elsewhere"}, "profiles.path"),
        ("run", {"seed": 5}, "seed"),
    ],
)
def test_an_entry_of_every_group_wins(conf: Path, entry: str, change: dict[str, object], setting: str) -> None:
    write(entry, **shipped_entry(entry, **change))
    group, _, name = entry.rpartition("/")
    plan = [f"{group}={name}"] if group else []
    spec = composer([conf]).compose(plan)
    assert flat(spec.config)[setting] == next(iter(change.values()))


def test_an_experiment_of_the_users_wins(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf/experiment").mkdir()
    Path("conf/experiment/mine.yaml").write_text("# @package _global_\ndefaults:\n- override /policy: las\n")
    assert main(["run", "--config-dir", "conf", "+experiment=mine", *SMALL, "hydra.run.dir=out"]) == 2
    assert "my own las" in capsys.readouterr().err


def test_a_run_yaml_of_the_users_wins_and_says_what_it_lacks(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("run", **shipped_entry("run", seed=7))
    assert main(["run", "--config-dir", "conf", "policy=fifo", *SMALL, "hydra.run.dir=out"]) == 0
    assert json.loads(Path("out/run.json").read_text())["seed"] == 7
    said = "conf/policy/las.yaml, conf/run.yaml take the place of polluxsim's own entries of the same name"
    assert said in capsys.readouterr().err
    quiet = [{f"override hydra/{name}": "none"} for name in ("job_logging", "hydra_logging")]
    write("run", defaults=["_self_", *quiet], seed=1)
    assert main(["run", "--config-dir", "conf", "hydra.run.dir=other"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("polluxsim: there is no cluster in the configuration")
    assert "begin with a copy of" in error


def test_a_changed_file_of_the_users_makes_another_run(conf: Path) -> None:
    keys = []
    for interval in (60.0, 60.0, 30.0):
        write("engine/exact", **shipped_entry("engine/exact", round_interval=interval))
        keys.append(entry_of([], composer([conf]).compose(["policy=fifo"]), Path("s")).key)
    assert keys[0] == keys[1] != keys[2]


def test_a_folder_that_hydra_would_ignore_is_refused(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config-dir", "conf", "--config-dir", "other"]) == 2
    assert "--config-dir is given twice" in capsys.readouterr().err
    assert main(["run", "--config-dir", "other"]) == 2
    assert "other: no such folder of configurations" in capsys.readouterr().err


def test_lists_and_policies_are_taken_apart() -> None:
    assert split_list("a,b(c={d: 1, e: [2, 3]}, f='x,y'),g") == ["a", "b(c={d: 1, e: [2, 3]}, f='x,y')", "g"]
    assert policy_text("my/mine.py:Mine(a=1)") == ("my/mine.py:Mine", ("a=1",))
    for wrong in ("quotas(gpus={a: 4}", "quotas)", "quotas(4)"):
        with pytest.raises(InvalidConfigError, match=r"write NAME\(SETTING=VALUE, SETTING=VALUE\)"):
            policy_text(wrong)


@pytest.mark.parametrize(
    ("word", "taken"),
    [
        ("policy.gpus={gpu: 4}", "+policy.gpus={gpu: 4}"),
        ("+policy.gpus={gpu: 4}", "+policy.gpus={gpu: 4}"),
        ("policy.gpus.gpu=4", "++policy.gpus.gpu=4"),
        ("engine.restart_delays.bert.t4=4", "++engine.restart_delays.bert.t4=4"),
        ("policy.p=-1,-2", "policy.p=-1,-2"),
        ("cluster.failures.rate=4", "cluster.failures.rate=4"),
        ("cluster.groups=[{nodes: 1, gpus: 2}]", "cluster.groups=[{nodes: 1, gpus: 2}]"),
    ],
)
def test_mappings_need_no_plus(word: str, taken: str) -> None:
    assert as_hydra_takes([word]) == [taken]


MAPPINGS = {
    "whole": (["policy=quotas", "policy.gpus={none: 8}"], {"none": 8}),
    "in brackets": (["policy=quotas(gpus={none: 8}, borrowing=false)"], {"none": 8}),
    "one item": (["policy=quotas", "policy.gpus.none=8"], {"none": 8}),
}


@pytest.mark.parametrize("case", MAPPINGS)
def test_a_run_takes_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    words, gpus = MAPPINGS[case]
    assert main(["run", *words, *SMALL, "engine.horizon=60", "hydra.run.dir=out"]) == 0
    config = json.loads(Path("out/run.json").read_text())["config"]
    assert config["policy"]["gpus"] == gpus
    assert config["policy"]["borrowing"] is ("borrowing" not in words[0])


def test_a_misspelt_mapping_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "policy=quotas", "policy.gpsu={gpu: 8}", "hydra.run.dir=out"]) == 2
    assert "did you mean gpus?" in capsys.readouterr().err


def test_each_policy_of_a_sweep_has_its_own_settings_and_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = "policy=quotas,quotas(gpus={none: 8}, borrowing=false)"
    common = ["seed=0,1", *SMALL, "engine.horizon=60", "hydra.sweep.dir=s", "hydra.sweeper.workers=1"]
    for _ in range(2):  # the second time, all runs are found finished
        assert main(["run", "-m", policies, *common]) == 0
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "gives GPUs to no queue of a job" in line]
        assert re.match("polluxsim: 0-.*policy=quotas,seed=0.* and 1 more: policy Quotas: policy.gpus", line)
    configs = [json.loads(path.read_text())["config"]["policy"] for path in sorted(Path("s").glob("*/run.json"))]
    assert [config["gpus"] for config in configs] == [{}, {}, {"none": 8}, {"none": 8}]


def test_functions_of_hydra_stay_what_they_are() -> None:
    assert set(create_functions().definitions) <= FUNCTIONS  # of this release and the next
    words = ["policy=glob(*)", "policy=choice(fifo,easy)", "policy='quotas(gpus={a: 4})',fifo"]
    assert as_hydra_takes(words) == words


def test_each_policy_of_an_arena_has_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polluxsim.studies.arena.playing import ArenaPlace, _listed, _plan, read_suite

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_fifo.py").write_text(RAISES.replace("Mine", "fifo"))
    suite, place = read_suite("quick", ("rigid",), 1), ArenaPlace(Path("arena"))
    for names in (["own_fifo.py:fifo(quantum=2.0)", "own_fifo.py:fifo", "quotas(gpus={none: 4})"], ["fifo"]):
        policies = _listed(names, Path("arena/policies"))
        plan = _plan(policies, suite, place)
        found = {player.policy: entry.config["policy"] for player, runs in plan.items() for entry in runs.values()}
        if len(names) > 1:
            assert found["fifo(quantum=2.0)"] == {"_target_": "own_fifo.fifo", "quantum": 2.0}
            assert found["fifo"] == {"_target_": "own_fifo.fifo"}
            assert found["quotas(gpus={none: 4})"]["gpus"] == {"none": 4}
    # The class of the earlier arena in this folder does not take the place of the entry.
    assert found["fifo"]["_target_"] == "polluxsim.policies.ordered.classic.Fifo"
    with pytest.raises(InvalidConfigError, match="two policies are called 'fifo'"):
        _listed(["fifo(backfill=true)", "own_fifo.py:fifo"], Path("arena/policies"))


def test_a_what_if_takes_a_policy_with_settings_and_says_what_they_do_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "policy=fifo", *SMALL, "hydra.run.dir=base"]) == 0
    assert main(["whatif", "base", "--at", "10min", "policy=quotas(gpus={none: 8})", "-o", "w"]) == 0
    assert "otherwise: policy Quotas: all jobs are in queue 'none'" in capsys.readouterr().out
    wrong = "policy=quotas(gpus={none: {t4: 8}})"
    assert main(["whatif", "base", "--at", "10min", wrong, "-o", "w2"]) == 2
    assert "policy.gpus.none names GPU type 't4'" in capsys.readouterr().err
    assert not Path("w2").exists()
    assert json.loads(Path("w/otherwise/run.json").read_text())["config"]["policy"]["gpus"] == {"none": 8}


def test_the_loader_takes_the_first_of_several_folders(conf: Path) -> None:
    Path("second/policy").mkdir(parents=True)
    Path("second/policy/las.yaml").write_text("_target_: second.Las\n")
    with searched_first([Path("second"), conf]):
        assert composed({"policy": "las"}, {}, 0).config["policy"]["_target_"] == "second.Las"


def test_experiments_of_polluxsim_are_found_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for where in ([], ["--config-dir", str(shipped("experiments"))]):
        assert main(["run", *where, "+experiment=fairness", "--cfg", "job"]) == 0
        assert "num_jobs: 80" in capsys.readouterr().out
    small = ["policy.p=1", "seed=0", "policy.search=genetic", "workload.num_jobs=2", "engine.horizon=120"]
    assert main(["run", "+experiment=fairness", *small, "-o", "out", "--workers", "1"]) == 0
    assert len(pd.read_parquet("out/sweep.parquet")) == 1  # a sweep, as the file of the experiment says
    capsys.readouterr()
    assert main(["run", "+experiment=fairnes"]) == 2
    assert "experiment=fairnes is unknown, must be one of agents" in capsys.readouterr().err


def test_an_experiment_of_the_user_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "fairness.yaml").write_text("# @package _global_\nseed: 7\n")
    assert main(["run", "--config-dir", "conf", "+experiment=fairness", "--cfg", "job"]) == 0
    assert "seed: 7" in capsys.readouterr().out
