"""Pictures of the documentation are there, are used, and show what commands print today."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from argparse import Namespace
from pathlib import Path
from time import perf_counter
from typing import Any

import hooks
import numpy as np
import pictures
import pytest
import results
from PIL import Image

from polluxsim.cli.main import main
from polluxsim.look.plot.request import FIGURE_KINDS

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ("workload", "import", "when", "why")
OF = {"when": "queued", "why": "tiresias"}
"""The run that a picture is of."""


def test_every_picture_is_shown_and_every_kind_of_figure_has_one() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in [*DOCS.glob("*.md"), DOCS.parent / "README.md"])
    shown = set(re.findall(r"images/([\w-]+\.\w+)", hooks.SCREENS.sub(hooks._screens, pages)))
    there = {path.name for path in (DOCS / "images").iterdir()}
    assert shown - there == {f"{name}.svg" for name in results.charts()}
    assert there - shown == set()
    assert {f"{kind}.svg" for kind in FIGURE_KINDS} <= there


def test_pages_are_shown_on_a_desktop_and_a_phone_light_and_dark_in_two_megabytes() -> None:
    found = list((DOCS / "images").glob("report-*.webp"))
    assert len(found) == 4 * len(pictures.PAGES) + 2 * len(pictures.WIDE_PAGES) + len(("arena", "arena", "print"))
    assert sum(path.stat().st_size for path in found) < 2e6
    for name in (*pictures.PAGES, *pictures.WIDE_PAGES):
        light, dark = (
            np.asarray(_small(DOCS / f"images/report-{name}-desktop-{each}.webp")) for each in pictures.SCHEMES
        )
        assert light.mean() > 150
        assert dark.mean() < 100


def _small(picture: Path | io.BytesIO) -> Image.Image:
    with Image.open(picture) as image:
        return image.convert("L").resize((48, 48))


def test_a_picture_of_a_page_shows_what_the_page_is_today(browser: Any, tmp_path: Path) -> None:
    """As far as 48 by 48 points tell, since fonts differ from machine to machine."""
    assert main([*pictures.REPORTED["failing"].split(), f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "failing.html")]) == 0
    kept = {}
    for name, shot in pictures.shots(browser, tmp_path, "waits"):
        drawn, kept[name] = (np.asarray(_small(each), float) for each in (io.BytesIO(shot), DOCS / "images" / name))
        assert np.abs(drawn - kept[name]).mean() < 10
    desktop, phone = (kept[f"report-waits-{window}-light.webp"] for window in pictures.WINDOWS)
    assert np.abs(desktop - phone).mean() > 10  # so that the comparison tells pictures apart


def test_a_plot_has_the_words_and_colours_of_today_in_light_and_dark(tmp_path: Path) -> None:
    assert main(["plot", "training", "--width", "8.5", "-o", str(tmp_path / "training.svg")]) == 0
    drawn = pictures.light_and_dark((tmp_path / "training.svg").read_text(encoding="utf-8"))
    kept = (DOCS / "images" / "training.svg").read_text(encoding="utf-8")
    for told in (r"<!-- (.*?) -->", r"--c\w+:#\w+"):
        assert re.findall(told, drawn) == re.findall(told, kept) != []
    assert "--cffffff:#171d24" in kept
    assert "fill: #" not in kept


def test_the_live_view_is_that_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures.live, "perf_counter", perf_counter)  # put back, as drawing sets another
    pictures.draw_live(tmp_path, Namespace(output=tmp_path))
    drawn, kept = ((folder / "live.svg").read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "images"))
    assert drawn == kept


@pytest.mark.parametrize("name", QUICK)
def test_a_picture_shows_what_its_command_prints(name: str, tmp_path: Path) -> None:
    for file in ("slurm/sacct.txt", "philly.csv"):
        shutil.copy(pictures.FIXTURES / file, tmp_path)
    command, most = next((command, most) for own, command, most in pictures.TERMINAL if own == name)
    assert name in shlex.split(command)[:2]
    for other in (other for own, other, _ in pictures.TERMINAL if not own and other.endswith(f" -o {OF.get(name)}")):
        pictures._printed(other, tmp_path)
    printed = pictures._printed(command, tmp_path)
    pictures._draw(tmp_path / f"{name}.svg", command, printed.splitlines()[:most])
    drawn, kept = ((folder / f"{name}.svg").read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "images"))
    assert drawn == kept
