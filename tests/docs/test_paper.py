"""The paper about polluxsim: short, with known references, and without a number that nobody can compute again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "paper.md").read_text(encoding="utf-8")
TEXT = PAPER.split("---\n", 2)[2]
COMMANDS = sorted(set(re.findall(r"`((?:polluxsim|pytest|python) [^`]+)`", TEXT)))
MOST_WORDS = 1000


def test_the_paper_is_short() -> None:
    assert len(TEXT.split()) <= MOST_WORDS


def test_each_citation_has_a_reference_and_each_reference_is_cited() -> None:
    bibliography = (ROOT / "paper.bib").read_text(encoding="utf-8")
    assert set(re.findall(r"@(\w+\d{4}\w+)", TEXT)) == set(re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE))


def test_each_figure_exists_and_states_its_commands() -> None:
    figures = re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", TEXT)
    assert len(figures) == 2
    for caption, path in figures:
        assert (ROOT / path).is_file()
        assert caption.count("`polluxsim ") == 2


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("polluxsim run")])
def test_a_command_that_computes_a_number_is_one_that_the_documentation_shows(command: str) -> None:
    if command.startswith("polluxsim plot") or command in (
        "polluxsim check",
        "polluxsim whatif",
        "polluxsim why RUN JOB",
    ):
        return  # states no number
    assert f"`{command}`" in (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "number", ["3,520", "2404.8 s", "2418.8 s", "145 of 161", "52.3 %", "48.2 to 54.5", "29.6 %", "26.0 to 33.4"]
)
def test_a_number_is_that_of_the_evaluation(number: str) -> None:
    for text in (TEXT, (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")):
        assert number in text.replace("−", "")
