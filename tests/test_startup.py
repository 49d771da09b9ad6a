"""A plain run imports only the modules that it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOST_MODULES = 144
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
    assert not {"optuna", "submitit", "ray"} & set(modules)


@pytest.mark.parametrize("command", [("table",), ("compare",), ("profile", "card"), ("workload",), ("size",)])
def test_the_help_of_a_command_imports_no_library_of_numbers(command: tuple[str, ...], tmp_path: Path) -> None:
    modules = modules_of(*command, "--help", folder=tmp_path)
    assert not {"numpy", "pandas", "matplotlib", "scipy", "numba"} & set(modules)
