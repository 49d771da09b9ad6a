"""The page about stable names lists those of the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import polluxsim
from polluxsim.cli.commands import COMMANDS
from polluxsim.logs.trace_table import CORE_COLUMNS, EXTRA_COLUMNS
from polluxsim.policies.contract.job import JobView
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, Reason, ReasonKind, Traits
from polluxsim.records.folders import SWEEP_FILES
from polluxsim.records.storage import RUN_FILES, SOMETIMES

PAGE = Path(__file__).parents[2] / "docs" / "stable.md"


def names_of(cls: type) -> list[str]:
    """Return the public names of a class."""
    return [name for name in dir(cls) if not name.startswith("_")]


def fields_of(cls: type) -> list[str]:
    """Return the names of the fields of a data class or of a named tuple."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(cls._fields)


LISTS = {
    "Names of `polluxsim`": polluxsim.__all__,
    "Methods and attributes of `Policy`": [name for name in vars(Policy) if not name.startswith("_")],
    "Fields of `Decision`": fields_of(Decision),
    "Fields of `Reason`": fields_of(Reason),
    "Fields of `ReasonKind`": fields_of(ReasonKind),
    "Fields of `Traits`": fields_of(Traits),
    "Names of the view of the cluster": names_of(ClusterView),
    "Names of the view of a job": names_of(JobView),
    "Files of each run folder": RUN_FILES,
    "Files that a run folder has only if there is something to write": SOMETIMES,
    "Files of a sweep, beside the folders of its runs": SWEEP_FILES,
    "Columns of each `log.parquet` that `polluxsim log import` writes": [column.name for column in CORE_COLUMNS],
    "Columns that only some logs have": EXTRA_COLUMNS,
    "Commands, with the options that `--help` lists": COMMANDS,
}


def listed() -> dict[str, list[str]]:
    """Return the names in each list of the page, by the line before it."""
    text = PAGE.read_text(encoding="utf-8")
    lists = re.findall(r"^([^\n]+):\n\n(`[^\n]+(?:\n[^\n]+)*)$", text, re.MULTILINE)
    return {heading: re.findall(r"`([^`]+)`", names) for heading, names in lists}


@pytest.mark.parametrize("heading", LISTS)
def test_a_list_of_stable_names_is_that_of_the_code(heading: str) -> None:
    assert sorted(listed()[heading]) == sorted(LISTS[heading]), "change docs/stable.md and the changelog"


def test_each_list_of_the_page_is_compared() -> None:
    assert listed().keys() == LISTS.keys()
