"""Pictures of the documentation are there, are used, and show what commands print today."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pictures
import pytest

from polluxsim.cli.plot import KINDS

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ("generate", "sample", "import")


def test_every_picture_is_shown_and_every_kind_of_figure_has_one() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in [*DOCS.glob("*.md"), DOCS.parent / "README.md"])
    shown = set(re.findall(r"images/([\w-]+\.\w+)", pages))
    there = {path.name for path in (DOCS / "images").iterdir()}
    assert shown - there == set()
    assert there - shown == set()
    assert {f"{kind}.png" for kind in KINDS} <= there


@pytest.mark.parametrize("name", QUICK)
def test_a_picture_shows_what_its_command_prints(name: str, tmp_path: Path) -> None:
    for file in ("slurm/sacct.txt", "philly.csv"):
        shutil.copy(pictures.FIXTURES / file, tmp_path)
    command, most = next((command, most) for own, command, most in pictures.TERMINAL if own == name)
    assert shlex.split(command)[0] == name
    printed = pictures._printed(command, tmp_path)
    pictures._draw(tmp_path / f"{name}.svg", command, printed.splitlines()[:most])
    drawn, kept = ((folder / f"{name}.svg").read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "images"))
    assert drawn == kept
