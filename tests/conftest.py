"""Fixtures that all folders of tests share: measured data, shared runs, a browser."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys

# The command line sets this for itself. It has to be set before NumPy is loaded: small matrices in many threads take
# ten times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start hundreds of processes. Without bytecode files each of them compiles the whole package again, and each
# worker compiles all test modules.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from shared_runs import SharedRuns, count_default_runs, default_run_counts, shared_root

from polluxsim.applications.measured import MeasuredProfile
from polluxsim.applications.osdi21 import read_profiles
from polluxsim.run.workers import num_cores

sys.dont_write_bytecode = False

# Importing and collecting the tests makes objects that live until the end, so that looking for garbage is wasted.
# `pytest_collection_finish` enables the collector again.
gc.disable()

# No deadline: the first call of a compiled kernel takes seconds. The default profile draws the same examples in every
# run and half as many as Hypothesis does by default; `--hypothesis-profile anew` draws new ones, and all of them.
settings.register_profile("polluxsim", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("anew", deadline=None)
settings.load_profile("polluxsim")

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pytest_xdist_auto_num_workers() -> int:
    """Return the workers of `-n auto`: one more than cores, because tests often wait for a process or a browser."""
    return num_cores() + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Enable the garbage collector, and let it pass over all modules and tests in every later collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the test run if it simulated a default run twice: tests have to share these runs."""
    if "PYTEST_XDIST_WORKER" not in os.environ and _repeated_default_runs(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for policy, tests in _repeated_default_runs(config).items():
        terminalreporter.section("a default run was simulated more than once", red=True)
        terminalreporter.line(f"{policy}\nUse the fixture shared_runs in:\n  " + "\n  ".join(tests))


def _repeated_default_runs(config: pytest.Config) -> dict[str, list[str]]:
    counts = default_run_counts(shared_root(config._tmp_path_factory))  # type: ignore[attr-defined]
    return {policy: tests for policy, tests in counts.items() if len(tests) > 1}


def _data_folder() -> Path:
    """Return the folder that holds osdi21/. Skip if there is no data folder; fail if ../shared/data lacks osdi21/."""
    default = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("POLLUXSIM_DATA", default))
    if (folder / "osdi21").is_dir():
        return folder
    reason = f"needs the measured data: {folder} has no osdi21/ (set POLLUXSIM_DATA to the folder that does)"
    if default.is_dir():
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    return _data_folder()


@pytest.fixture(scope="session")
def osdi21(data_folder: Path) -> Path:
    return data_folder / "osdi21"


@pytest.fixture(scope="session")
def slurm_runs(data_folder: Path) -> Path:
    """Return the folder of recorded runs of a real Slurm. Skip without it."""
    folder = data_folder.parent / "slurm"
    if not folder.is_dir():
        pytest.skip(f"needs the recorded runs of a real Slurm in {folder}, beside the folder of measured data")
    return folder


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> SharedRuns:
    return SharedRuns(shared_root(tmp_path_factory))


@pytest.fixture(scope="session", autouse=True)
def _default_runs_are_counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        count_default_runs(shared_root(tmp_path_factory), patch)
        yield


@pytest.fixture(autouse=True)
def _modules_of_the_test_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the modules that a test imports from its temporary folder: the next test may have files of these names."""
    yield
    base = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(base):
            del sys.modules[name]
    sys.path[:] = [folder for folder in sys.path if not folder.startswith(base)]


@pytest.fixture(scope="session")
def measured_profiles(osdi21: Path) -> dict[str, MeasuredProfile]:
    return read_profiles(osdi21)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return headless Chromium. It records its console and its network requests."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs a browser: chromium and chromedriver on PATH")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM as Python does, and have processes that a test starts begin so.

    Whoever runs the tests may ignore them, as shells do for what runs in the background.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
