"""Only `engine/state.py` changes the state of a run: no other module calls a method that does, or assigns to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polluxsim

PACKAGE = Path(polluxsim.__file__).parent
OF_COLLECTIONS = {"add", "append", "clear", "discard", "extend", "insert", "pop", "remove", "sort", "update"}


class Part(NamedTuple):
    """A class of the state: its module, the names of its objects in the code, and its methods that change it."""

    module: str
    name: str
    objects: frozenset[str]
    methods: frozenset[str]


def part(module: str, name: str, objects: str, methods: str = "") -> Part:
    return Part(f"engine/{module}.py", name, frozenset(objects.split()), frozenset(methods.split()))


JOB = "place lose save_by begin_segment pass_epochs take_agent end_interval end_epoch"
TABLES = "add move train enter_epoch learn forget_agent replace_request remove put_before"
PARTS = (
    part("state", "State", "state _state"),  # any module may call its transitions, and a run sets its observers
    part("job", "ActiveJob", "job active", JOB),
    part("progress", "Holding", "holding", "hold cede"),
    part("nodes", "Nodes", "nodes", "add take give_back fall rise announce request"),
    part("sharing", "NumberedGpus", "shared", "take leave"),
    part("tables", "JobTables", "jobs tables", TABLES),
)


def last_name(node: ast.AST) -> str:
    """Return the last name of an expression: `nodes` for `self._state.nodes` and for `nodes[0]`."""
    return last_name(node.value) if isinstance(node, ast.Subscript) else getattr(node, "attr", getattr(node, "id", ""))


def written(node: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield the object, the attribute and the line of each assignment, deletion and call of a method in a module."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store | ast.Del):
            yield last_name(each.value), each.attr, each.lineno
        elif isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store | ast.Del):
            if isinstance(each.value, ast.Attribute):
                yield last_name(each.value.value), each.value.attr, each.lineno
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            yield last_name(each.func.value), f"{each.func.attr}()", each.lineno
            if isinstance(inner := each.func.value, ast.Attribute) and each.func.attr in OF_COLLECTIONS:
                yield last_name(inner.value), inner.attr, each.lineno


def test_only_the_state_writes_to_the_state() -> None:
    forbidden = set()
    for each in PARTS:
        module = ast.parse((PACKAGE / each.module).read_text())
        (body,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == each.name)
        assert each.methods <= {node.name for node in body.body if isinstance(node, ast.FunctionDef)}, each.name
        own = {name for owner, name, _ in written(body) if owner == "self"}
        own |= {last_name(node.target) for node in body.body if isinstance(node, ast.AnnAssign)}
        names = {f"{name}()" for name in each.methods} | {name for name in own if name[-1] != ")"} - {"observers"}
        forbidden |= {(obj, name) for obj in each.objects for name in names}
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if "polluxsim.engine" in text and name not in {each.module for each in PARTS}:
            writes = (write for write in written(ast.parse(text)) if write[:2] in forbidden)
            found += [f"{name}:{line} {obj}.{what}" for obj, what, line in writes]
    assert found == []
