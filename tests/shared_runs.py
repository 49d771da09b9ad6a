"""Simulations that several test files read, made once per test run and shared by all workers of pytest-xdist."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from polluxsim.cli.main import main
from polluxsim.run.composing import composed
from polluxsim.run.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

DEFAULT_RUNS = "default-runs.txt"
"""File in the shared folder with a line for each simulation of the default run: its policy and the test."""

OWN_EXAMPLES = ("tests/docs/", "polluxsim/")
"""Tests under these paths run an example as it is written, so they may simulate the default run again."""


def shared_root(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of this test run share."""
    base = factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    root.mkdir(exist_ok=True)
    return root


class SharedRuns:
    """Folders of finished runs in a folder that all workers share.

    A worker that needs a folder locks it and makes it, or waits for the worker that is making it. Tests only read these
    folders.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the folder `name`; call `make` with its path if no worker has made it yet."""
        folder, done = self.root / name, self.root / f"{name}.done"
        with FileLock(self.root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # left by a `make` that failed
                make(folder)
                done.touch()
        return folder

    def run(self, policy: str, *overrides: str) -> Path:
        """Return the folder of `polluxsim run policy=POLICY OVERRIDES`; its name is the policy's."""
        digest = hashlib.sha256("\n".join(overrides).encode()).hexdigest()[:12]

        def make(folder: Path) -> None:
            assert main(["run", f"policy={policy}", *overrides, f"hydra.run.dir={folder / policy}"]) == 0

        return self.folder(f"{policy}-{digest}", make) / policy


def count_default_runs(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Write a line to `DEFAULT_RUNS` for each simulation of the default run in this process, under any policy."""
    default = composed({}, {}, 0).config
    begin = Execution._begin

    def begin_and_count(execution: Execution) -> Any:
        config = execution.spec.config
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if config == default | {"policy": config["policy"]} and not test.startswith(OWN_EXAMPLES):
            with (root / DEFAULT_RUNS).open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(config['policy'], sort_keys=True)}\t{test}\n")
        return begin(execution)

    patch.setattr(Execution, "_begin", begin_and_count)


def default_run_counts(root: Path) -> dict[str, list[str]]:
    """Return the tests that simulated the default run so far, by the settings of its policy."""
    path = root / DEFAULT_RUNS
    tests: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        policy, test = line.split("\t")
        tests.setdefault(policy, []).append(test)
    return tests
