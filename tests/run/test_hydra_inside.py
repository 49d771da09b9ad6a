"""The one door to what is inside other libraries, and what it is good for: composing without Hydra's globals."""

from __future__ import annotations

import ast
import inspect
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
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from polluxsim.common.shipped import shipped
from polluxsim.run import composing
from polluxsim.run.composing import Callbacks, Loader, error_of, get_overrides_dirname
from polluxsim.run.configurations import searched_first

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "polluxsim").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")]
DOOR = Path(composing.__file__)
PRIVATE_OF_HYDRAS = ("_return_value", "_UNSPECIFIED_", "_instances")


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports from elsewhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private(path: Path) -> list[str]:
    """Return what a module takes that another library keeps to itself."""
    names = [name for name in imported(path) if not name.startswith(("polluxsim", "__future__"))]
    found = [name for name in names if any(part.startswith("_") for part in name.split("."))]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found += [
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in PRIVATE_OF_HYDRAS
    ]
    return found


def test_private_surfaces_of_other_libraries_are_in_one_module() -> None:
    assert {
        path.relative_to(ROOT).as_posix(): found for path in SOURCES if path != DOOR and (found := private(path))
    } == {}
    assert len(private(DOOR)) >= 5


def test_hydras_inside_is_as_we_know_it() -> None:
    """Whoever raises hydra-core's cap in pyproject.toml reads here what has moved."""
    assert list(inspect.signature(get_overrides_dirname).parameters) == [
        "overrides", "exclude_keys", "item_sep", "kv_sep",
    ]  # fmt: skip
    assert list(inspect.signature(Callbacks).parameters) == ["config"]
    assert Loader().get_group_options("policy")
    failed, completed = JobReturn(), JobReturn()
    failed.return_value, failed.status = ValueError("x"), JobStatus.FAILED
    completed.return_value, completed.status = 3, JobStatus.COMPLETED
    assert isinstance(error_of(failed), ValueError)
    assert error_of(completed) is None


def test_every_library_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [word for name in ("gym", "ray", "slurm") for word in project["optional-dependencies"][name]]
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
    with ThreadPoolExecutor(8) as pool:
        loaders = list(pool.map(lambda _: Loader().get_group_options("engine"), range(8)))
    assert loaders == [["exact", "log", "osdi21"]] * 8


def test_a_composed_configuration_is_kept_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "configs"
    shutil.copytree(shipped("configs"), copy)
    monkeypatch.setattr(composing, "shipped", lambda name: copy if name == "configs" else shipped(name))
    first = Loader().load_configuration("run", ["policy=fifo"], RunMode.RUN)
    first.policy.backfill = "changed by a caller"
    calls = []
    compose = ConfigLoaderImpl.load_configuration
    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", lambda *words: (calls.append(1), compose(*words))[1])
    assert Loader().load_configuration("run", ["policy=fifo"], RunMode.RUN).policy.backfill is False
    assert not calls
    text = (copy / "policy" / "fifo.yaml").read_text(encoding="utf-8")
    (copy / "policy" / "fifo.yaml").write_text(text.replace("backfill: false", "backfill: true"), encoding="utf-8")
    os.utime(copy / "policy" / "fifo.yaml", ns=(1, 1))
    assert Loader().load_configuration("run", ["policy=fifo"], RunMode.RUN).policy.backfill is True
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_text("_target_: mine.Mine\nspeed: 1\n")
    for speed in (1, 2):  # files of the user are read each time
        (tmp_path / "policy" / "mine.yaml").write_text(f"_target_: mine.Mine\nspeed: {speed}\n")
        with searched_first([tmp_path]):
            loader = Loader()
        assert loader.load_configuration("run", ["policy=mine"], RunMode.RUN).policy.speed == speed
