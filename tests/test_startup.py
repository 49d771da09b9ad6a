"""A plain run imports only the modules that it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOST_MODULES = 120
"""Largest number of modules of polluxsim that `polluxsim run policy=fifo` imports."""

LIST_MODULES = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "


def run_python(code: str, folder: Path) -> str:
    """Return the last line that a program prints on stderr."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1]


def modules_of(*arguments: str, folder: Path) -> list[str]:
    """Return the modules that a command of polluxsim has imported when it ends."""
    code = f"{LIST_MODULES}from polluxsim.cli.main import main; sys.exit(main({list(arguments)}))"
    return run_python(code, folder).split()


def test_a_plain_run_imports_few_modules(tmp_path: Path) -> None:
    modules = modules_of("run", "policy=fifo", "engine.horizon=3600", "hydra.run.dir=out", folder=tmp_path)
    own = [name for name in modules if name.split(".")[0] == "polluxsim"]
    assert len(own) <= MOST_MODULES, own
    assert not [name for name in own if name.startswith("polluxsim.logs")]
    assert not {"pandas", "matplotlib", "scipy", "numba", "difflib"} & set(modules)
    assert not [name for name in modules if name.startswith("hydra_plugins.") and "launcher" in name]


def test_a_launcher_is_imported_where_it_is_named(tmp_path: Path) -> None:
    modules = modules_of("run", "hydra/launcher=basic", "policy=fifo", "engine.horizon=600", folder=tmp_path)
    assert [name for name in modules if name.startswith("hydra_plugins.hydra_") and "launcher" in name]


def test_a_launcher_is_imported_where_a_users_file_names_it(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    (tmp_path / "extra").mkdir()
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: submitit_local\n"
    (tmp_path / "extra" / "mine.yaml").write_text(text)
    words = [f"hydra.searchpath=[file://{tmp_path}]", "+extra=mine"]
    code = (
        "import sys; from hydra.types import RunMode; from polluxsim.run.composing import Loader; "
        f"config = Loader().load_configuration('run', {words}, RunMode.MULTIRUN); "
        "print(config.hydra.launcher._target_, file=sys.stderr)"
    )
    assert run_python(code, tmp_path).endswith("submitit_launcher.LocalLauncher")


@pytest.mark.parametrize(
    "command", [("table",), ("compare",), ("profile", "card"), ("workload", "generate"), ("size",)]
)
def test_the_help_of_a_command_imports_no_library_of_numbers(command: tuple[str, ...], tmp_path: Path) -> None:
    modules = modules_of(*command, "--help", folder=tmp_path)
    assert not {"numpy", "pandas", "matplotlib", "scipy", "numba"} & set(modules)
