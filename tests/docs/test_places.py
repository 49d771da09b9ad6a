"""Files and folders that the pages for developers name are there."""

from __future__ import annotations

import re
from pathlib import Path

import catalogue
import pytest

ROOT = Path(__file__).parents[2]
RECORDS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "design").glob("*.md"))
PAGES = ("DESIGN.md", "CONTRIBUTING.md", "benchmarks/README.md", "experiments/README.md", "traces/README.md", *RECORDS)
HOMES = (ROOT, ROOT / "polluxsim", ROOT / "benchmarks", ROOT / "tests")
ROOMS = {path.name for path in (ROOT / "polluxsim").iterdir() if path.is_dir()}


def named(text: str) -> set[str]:
    """Return what stands in backticks and is a Python file, or a folder in one of our rooms."""
    words = {word.removeprefix("polluxsim/") for word in re.findall(r"`([\w./-]+)`", text)}
    return {word for word in words if word.endswith(".py") or (word.endswith("/") and word.split("/")[0] in ROOMS)}


@pytest.mark.parametrize("page", PAGES)
def test_what_is_named_is_there(page: str) -> None:
    found = named((ROOT / page).read_text(encoding="utf-8"))
    # A name alone is of a file beside the one that was named before it.
    lost = {
        name
        for name in found
        if not any((home / name).exists() for home in HOMES)
        and ("/" in name or not list((ROOT / "polluxsim").rglob(name)) + list((ROOT / "tests").rglob(name)))
    }
    assert lost == set()


def test_the_design_is_a_map_of_one_page_with_a_link_to_each_short_record() -> None:
    design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    without_targets = re.sub(r"\]\(.*?\)", "]", design)
    assert len(without_targets.split()) <= 600
    assert sorted(re.findall(r"\]\((docs/design/.*?)\)", design)) == RECORDS
    longer = {name for name in RECORDS if len((ROOT / name).read_text(encoding="utf-8").splitlines()) > 30}
    assert longer == {"docs/design/engine.md"}  # a description of a package, with drawings


def test_the_quiz_has_ten_questions() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (quiz,) = re.findall(r"## Where would I …\n(.*?)\n## ", text, flags=re.DOTALL)
    assert len(re.findall(r"(?m)^\| (?!where)[a-z].* \|$", quiz)) == 10


def test_the_catalogue_is_that_of_the_configuration_files() -> None:
    assert (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8") == catalogue.page()
    assert len(catalogue.entries("policy")) == len(list((ROOT / "configs" / "policy").glob("*.yaml")))


def test_every_policy_is_in_the_table_of_what_is_implemented_once() -> None:
    text = (ROOT / "docs" / "implemented.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([\w-]+)`", row[0])]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "configs" / "policy").glob("*.yaml"))
    # A row names what is missing, and says whether that matters, or has a dash for both.
    assert all(len(row) == 4 for row in rows)
    assert all(row[3].rstrip(" |") == "–" if row[2] == "–" else re.match(r"(no|little|yes)\b", row[3]) for row in rows)
