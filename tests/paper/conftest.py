"""What tests of published numbers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for results whose runs are kept from test to test: they take minutes."""
    return tmp_path_factory.mktemp("made")
