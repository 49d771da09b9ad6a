"""One module composes, through Hydra's public interface, and leaves the globals of Hydra as they were."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from polluxsim.common.shipped import shipped
from polluxsim.run import composing
from polluxsim.run.composing import compose
from polluxsim.run.configurations import searched_first
from polluxsim.run.spec import OneRun, SweptRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "polluxsim").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")]
COMPOSES = ("hydra.compose", "hydra.compose.compose", "hydra.initialize_config_dir", "hydra.main")


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports from elsewhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_imports_what_another_library_keeps_to_itself() -> None:
    for path in SOURCES:
        names = [name for name in imported(path) if not name.startswith(("polluxsim", "__future__"))]
        assert [name for name in names if any(part.startswith("_") for part in name.split("."))] == [], path


def test_one_module_composes() -> None:
    composers = [path.name for path in SOURCES if set(COMPOSES).intersection(imported(path))]
    assert composers == ["composing.py"]


def test_three_modules_import_hydra_or_omegaconf() -> None:
    users = {
        path.relative_to(ROOT / "polluxsim").as_posix()
        for path in (ROOT / "polluxsim").rglob("*.py")
        if any(name.partition(".")[0] in ("hydra", "omegaconf") for name in imported(path))
    }
    assert users == {"run/composing.py", "run/hydra_errors.py", "run/swept_values.py"}


def test_the_part_of_hydra_that_fails_on_python_3_14_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("badly formed help string")

    monkeypatch.setattr("hydra._internal.utils.get_args_parser", fail)
    assert isinstance(composing.read_command(["policy=fifo"], is_sweep=False), OneRun)
    swept = composing.read_command(["policy=fifo,srtf"], is_sweep=True)
    assert isinstance(swept, SweptRuns)
    assert len(swept.runs) == 2
    assert composing.help_text([], "run")


def test_no_module_writes_the_arguments_of_the_process() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert "sys.argv =" not in text, path


def test_every_library_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [word for name in ("gym", "optuna", "ray", "slurm") for word in project["optional-dependencies"][name]]
    declared = {canonicalize_name(Requirement(word).name) for word in [*project["dependencies"], *optional]}
    modules = {name.partition(".")[0] for path in SOURCES for name in imported(path)}
    foreign = modules - set(sys.stdlib_module_names) - {"polluxsim", "hydra_plugins", "IPython"}
    providers = packages_distributions()
    assert {"omegaconf", "markupsafe", "hydra"} <= foreign
    assert [name for name in sorted(foreign) if not declared & set(map(canonicalize_name, providers[name]))] == []


IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
import polluxsim
def keys(policy):
    return polluxsim.simulate({workload!r}, policy=policy, progress=False).info["key"]
policies = ["fifo", "srtf", "tiresias"] * 4
with ThreadPoolExecutor(12) as pool:
    found = list(pool.map(keys, policies))
assert found == found[:3] * 4 and len(set(found)) == 3, found
"""

IN_AN_APPLICATION = """
import hydra, polluxsim
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
@hydra.main(version_base={base!r}, config_path=None)
def main(config):
    before = GlobalHydra.instance(), HydraConfig.get().job.name
    print(len(polluxsim.simulate({workload!r}, policy="fifo", progress=False).jobs))
    assert (GlobalHydra.instance(), HydraConfig.get().job.name) == before
main()
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "w.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,0,cifar10,1,128\nb,9,ncf,1,256\n")
    return str(path)


def script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "mine.py"
    path.write_text(text)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=folder)


def test_runs_in_threads_are_as_those_after_another(workload: str, tmp_path: Path) -> None:
    done = script(IN_THREADS.format(workload=workload), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("base", ["1.3", "1.2"])
def test_a_run_inside_ones_own_hydra_application_leaves_it_alone(workload: str, tmp_path: Path, base: str) -> None:
    done = script(IN_AN_APPLICATION.format(workload=workload, base=base), tmp_path)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_plans_are_composed_in_threads() -> None:
    policies = ["fifo", "srtf", "las", "tiresias"] * 2
    with ThreadPoolExecutor(8) as pool:
        specs = list(pool.map(lambda policy: compose([f"policy={policy}"]), policies))
    assert [spec.policy_entry for spec in specs] == policies


def test_a_composed_configuration_is_remembered_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "configs"
    shutil.copytree(shipped("configs"), copy)
    monkeypatch.setattr(composing, "shipped", lambda name: copy if name == "configs" else shipped(name))
    calls = []
    compose_with_hydra = composing.compose_with_hydra

    def counting(*words: object, **options: object) -> object:
        calls.append(words)
        return compose_with_hydra(*words, **options)

    monkeypatch.setattr(composing, "compose_with_hydra", counting)
    first = compose(["policy=fifo"])
    first.config["policy"]["backfill"] = "changed by a caller"
    assert compose(["policy=fifo"]).config["policy"]["backfill"] is False
    assert len(calls) == 1
    text = (copy / "policy" / "fifo.yaml").read_text(encoding="utf-8")
    (copy / "policy" / "fifo.yaml").write_text(text.replace("backfill: false", "backfill: true"), encoding="utf-8")
    os.utime(copy / "policy" / "fifo.yaml", ns=(1, 1))
    assert compose(["policy=fifo"]).config["policy"]["backfill"] is True
    (tmp_path / "policy").mkdir()
    for speed in (1, 22):
        (tmp_path / "policy" / "mine.yaml").write_text(f"_target_: mine.Mine\nspeed: {speed}\n")
        with searched_first([tmp_path]):
            assert compose(["policy=mine"]).config["policy"]["speed"] == speed
