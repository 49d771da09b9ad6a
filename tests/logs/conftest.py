"""Where the published logs are."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def published_logs(data_folder: Path) -> Path:
    """The folder with osdi21/, itp/ and philly-fixture/."""
    return data_folder
