"""The code is as tidy, typed and layered as it says: each linter passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

LINTERS = {
    "ruff check": ["check", "."],
    "ruff format": ["format", "--check", "."],
    "mypy": [],
    "lint-imports": [],
}


@pytest.mark.parametrize("linter", LINTERS)
def test_linter(linter: str) -> None:
    program = BIN / linter.split(maxsplit=1)[0]
    done = subprocess.run([program, *LINTERS[linter]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
