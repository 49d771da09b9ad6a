"""Kinds of reasons: each in one module, with a sentence that only names its numbers; other packages name no policy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest

import polluxsim
from polluxsim.common.errors import PolicyError
from polluxsim.policies.contract.reasons import ReasonKind
from polluxsim.policies.reserving.reason_kinds import RESERVED

PACKAGE = Path(polluxsim.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
CONFIGS = PACKAGE.parent / "configs" / "policy"

GENERAL = ("checks", "look", "records", "engine")
ALLOWED = {
    "priority": "the priority of a job",
    "Quotas": "the law of quotas, for any policy with the method quota_of",
    "scaled": "times in another unit, and clusters whose number of nodes changes",
    "Scaled": "the autoscaler of a drawn world, around any policy",
    "PendingGpus": "its rule",
    "pollux": "an agent, of the configuration group agent",
}
"""Names of policies that have another meaning in these packages."""


OTHER_MEANINGS = {
    "reserved": "logs/site/node_files.py",  # a state of a node
    "reclaimed": "engine/failures.py",  # an outage of a spot node
    "preempted": "logs/formats/base.py",  # a state of a job, and a column of tables
}
"""Modules in which the name of a kind is another word."""


def kinds() -> dict[str, ReasonKind]:
    """Return all kinds of the package, by name."""
    found: dict[str, ReasonKind] = {}
    for path in sorted((PACKAGE / "policies").rglob("*.py")):
        if "ReasonKind(" in path.read_text("utf-8") and path.name != "reasons.py":
            module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            found |= {value.name: value for value in vars(module).values() if isinstance(value, ReasonKind)}
    return found


KINDS = kinds()


def strings(path: Path) -> Iterator[str]:
    """Yield the constant texts of a module, without docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    loose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loose:
            yield node.value


def identifiers(path: Path) -> Iterator[str]:
    """Yield the names of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias | ast.ClassDef | ast.FunctionDef):
            yield node.name


def test_each_kind_is_named_in_one_module() -> None:
    assert len(KINDS) >= 57
    places: dict[str, list[str]] = {name: [] for name in KINDS}
    for path in MODULES:
        for text in set(strings(path)) & places.keys():
            places[text].append(str(path.relative_to(PACKAGE)))
    many = {name: where for name, where in places.items() if len(where) != 1}
    assert {name: OTHER_MEANINGS[name] in where for name, where in many.items()} == dict.fromkeys(OTHER_MEANINGS, True)
    assert all(sum(place.startswith("policies/") for place in where) == 1 for where in many.values())


def test_general_packages_name_no_policy() -> None:
    targets = [re.search(r"^_target_: (\S+)", path.read_text("utf-8"), re.MULTILINE) for path in CONFIGS.glob("*.yaml")]
    classes = {target[1].rpartition(".")[2] for target in targets if target is not None}
    names = classes | {path.stem for path in CONFIGS.glob("*.yaml")}
    assert {"Fifo", "sia", "AntMan"} <= names
    named = set()
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] in GENERAL:
            words = {*strings(path), *identifiers(path)} & names
            named |= {(str(path.relative_to(PACKAGE)), word) for word in words if word not in ALLOWED}
    assert named == set()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_says_what_it_means(name: str) -> None:
    kind = KINDS[name]
    assert kind.sentence.endswith((".", "]"))
    assert kind.meaning.endswith(".")
    assert kind.meaning.count(".") <= 2
    for excuse in filter(None, (kind.excuses_waiting, kind.excuses_running)):
        assert (excuse.__doc__ or "").startswith("Return whether ")
    assert not kind.promises_start or kind.units[kind.promises_start] == "s"


def test_a_kind_is_a_value() -> None:
    """A copy of a run copies its policy."""
    assert deepcopy(RESERVED) == RESERVED
    assert hash(deepcopy(RESERVED)) == hash(RESERVED)
    units = {"gpus": "GPUs"}
    kind = ReasonKind("because", units=units)
    units.clear()
    assert (str(kind), kind.units) == ("because", {"gpus": "GPUs"})


def test_a_kind_that_cannot_be_printed_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"the sentence of the ReasonKind 'x' is malformed: '\{' at character 8"):
        ReasonKind("x", "It has {gpus")
    with pytest.raises(PolicyError, match=r"the sentence of the ReasonKind 'x' is None, must be a text"):
        ReasonKind("x", None)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"the name of a ReasonKind is '', must be a text"):
        ReasonKind("")
    with pytest.raises(PolicyError, match=r"the units of the ReasonKind 'x' are .*, must be texts by name"):
        ReasonKind("x", units={"gpus": 3})  # type: ignore[dict-item]
