"""The notebooks run whole, show their figures, and are kept without outputs."""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

ROOT = Path(__file__).parents[2]
EXECUTED = ROOT / "docs" / "executed"
PICTURES = {
    "1-tour": 5,
    "2-fairness": 5,
    "3-paper-tables": 2,
    "4-policy-of-your-own": 2,
    "5-trace-of-your-own": 3,
    "6-policy-that-learns": 1,
}
"""How many figures each shows."""

NOTEBOOKS = [ROOT / "notebooks" / f"{name}.ipynb" for name in PICTURES]
BAR = "<progress"


def test_these_are_all_notebooks() -> None:
    assert sorted((ROOT / "notebooks").glob("*.ipynb")) == NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert set(notebook.metadata) <= {"kernelspec"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_documentation_has_it_executed(path: Path) -> None:
    """As it is today, with all its figures; `python docs/pictures.py notebooks` makes the page anew."""
    page = (EXECUTED / f"{path.stem}.md").read_text(encoding="utf-8")
    for cell in nbformat.read(path, 4).cells:
        assert cell.source.strip() in page
    pictures = re.findall(r"^!\[png\]\((.+)\)$", page, re.MULTILINE)
    assert len(pictures) >= PICTURES[path.stem]
    assert {*pictures} == {picture.name for picture in EXECUTED.glob(f"{path.stem}_*.png")}
    assert "Traceback" not in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*TCP.*")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_whole(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with no command of the environment on PATH: nothing but the package is there."""
    here = str(Path(sys.executable).parent)
    places = [place for place in os.environ["PATH"].split(os.pathsep) if place != here]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    no_data = tmp_path.with_name(f"{tmp_path.name}-no-data")
    no_data.mkdir()
    monkeypatch.setenv("POLLUXSIM_DATA", str(no_data))
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:  # fewer seeds than the notebook shows
        cell.source = re.sub(r"seeds=range\((10|20)\)", "seeds=range(6)", cell.source)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    data = [output.get("data", {}) for output in outputs]
    shown = [text for kind in ("text/html", "text/markdown") for each in data if (text := each.get(kind))]
    assert any(re.search("average JCT|Means over|verdict", html) for html in shown)
    assert not any(BAR in html for html in shown)  # the bar goes when the run ends
    if path.stem == "6-policy-that-learns":  # on seeds that it never saw
        text = " ".join(" ".join(output.get("data", {}).get("text/plain", "") for output in outputs).split())
        assert "Real by the 95 % intervals, against FIFO (baseline): average JCT: AgentPolicy (−" in text
    pictures = [picture for each in data if (picture := each.get("image/png"))]
    assert len(pictures) == PICTURES[path.stem]
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert page.count('src="data:image/png;base64,') == len(pictures)
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert list(tmp_path.iterdir()) == []
