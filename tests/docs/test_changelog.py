"""The changelog of the first release is short, and its numbers are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from polluxsim.cli.commands import COMMANDS
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.logs.formats import FORMATS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_LINES = 80


def test_the_entries_of_the_first_release_fit_on_two_screens() -> None:
    first = TEXT.split("## 0.1.0")[1].split("\n## ")[0]
    assert len(first.splitlines()) <= MOST_LINES


def test_the_numbers_of_the_changelog_are_those_of_the_code() -> None:
    counts = {}
    for group in ("policy", "agent", "cluster", "workload"):
        counts[group] = str(len(list((ROOT / "configs" / group).glob("*.yaml"))))
    words = r"has (\d+) configurations of policies, (\d+) of agents .*, (\d+) of clusters and (\d+) of workloads"
    match = re.search(words, TEXT)
    assert match is not None
    assert list(match.groups()) == list(counts.values())
    assert f"- {len(GPU_TYPES)} GPU types" in TEXT
    assert f"`log import` reads {len(FORMATS)} formats" in TEXT


def test_each_command_of_the_first_release_is_in_the_changelog() -> None:
    assert [name for name in COMMANDS if f"`{name}`" not in TEXT] == []
