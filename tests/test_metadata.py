"""The metadata for archives and packagers: made from one source, and valid."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import polluxsim

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def metadata() -> ModuleType:
    """Return the script that writes the metadata."""
    spec = importlib.util.spec_from_file_location("metadata", ROOT / "docs" / "metadata.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("path", ["CITATION.cff", "codemeta.json", ".zenodo.json", "recipe/meta.yaml"])
def test_the_metadata_are_those_of_the_code(path: str, metadata: ModuleType) -> None:
    written = (ROOT / path).read_text(encoding="utf-8")
    assert written == metadata.files()[path], "run python docs/metadata.py"


def test_the_script_writes_each_file_that_is_compared(metadata: ModuleType) -> None:
    assert metadata.files().keys() == {"CITATION.cff", "codemeta.json", ".zenodo.json", "recipe/meta.yaml"}


def test_all_metadata_state_the_version_and_the_libraries(metadata: ModuleType) -> None:
    codemeta = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    recipe = yaml.safe_load((ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8"))
    assert codemeta["version"] == recipe["package"]["version"] == polluxsim.__version__
    dependencies = metadata.project()["dependencies"]
    assert codemeta["softwareRequirements"] == dependencies
    assert len(recipe["requirements"]["run"]) == len(dependencies) + 1  # with Python


def test_the_citation_is_valid() -> None:
    program = [sys.executable, "-c", "from cffconvert.cli.cli import cli; cli()", "--validate"]
    completed = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_the_history_of_benchmarks_is_that_of_its_table() -> None:
    script = [sys.executable, str(ROOT / "docs" / "history.py")]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "history.md").read_text(encoding="utf-8") == printed, (
        "python docs/history.py > docs/history.md"
    )
