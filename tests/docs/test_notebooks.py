"""The notebooks run whole, and are kept without outputs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BAR = "jobs complete"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert set(notebook.metadata) <= {"kernelspec"}


@pytest.mark.filterwarnings("ignore:.*TCP.*")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_whole(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, as after a plain installation: nothing but the package is there."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("POLLUXSIM_DATA", str(tmp_path / "nowhere"))
    notebook = nbformat.read(path, 4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [html for output in outputs if (html := output.get("data", {}).get("text/html"))]
    assert any("average JCT" in html for html in shown)
    assert not any(BAR in html for html in shown)  # the bar goes when the run ends
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert list(tmp_path.iterdir()) == []
