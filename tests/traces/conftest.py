"""Where the published logs are, which the project does not hold: tests that need them skip without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def published_logs() -> Path:
    """The folder with osdi21/, itp/ and philly-fixture/."""
    named = os.environ.get("POLLUXSIM_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not (folder / "itp").is_dir():
        pytest.skip(f"needs the published logs: POLLUXSIM_DATA names no folder with itp/ (looked in {folder})")
    return folder
