"""Where the data are, and the fixtures that every folder of tests shares."""

from __future__ import annotations

import os
import shutil

# As the command line does for itself, before NumPy is loaded: small matrices by many threads take ten times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from polluxsim.applications.measured import MeasuredProfile
from polluxsim.applications.osdi21 import read_profiles

# The first call of a compiled kernel may take seconds, and machines are shared.
# The same examples every time; `--hypothesis-profile anew` draws others.
settings.register_profile("polluxsim", deadline=None, derandomize=True)
settings.register_profile("anew", deadline=None)
settings.load_profile("polluxsim")

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def _data_folder() -> Path:
    """Return the folder that holds osdi21/; skip where there is none, fail where there should be one."""
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
def measured_profiles(osdi21: Path) -> dict[str, MeasuredProfile]:
    return read_profiles(osdi21)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium that says what it logs and asks the network for."""
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
