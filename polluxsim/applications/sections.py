"""Read YAML files key by key with checks. Each error is one line with the file, the line and the key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import yaml

from polluxsim.common.errors import InvalidInputError, bad_line, one_of, short
from polluxsim.common.tables import read_number

_PartT = TypeVar("_PartT")


@dataclass(frozen=True)
class FigureRange:
    """A closed range of numbers."""

    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"from {self.lowest:g} to {self.highest:g}"


@dataclass(frozen=True)
class Section:
    """A mapping of a YAML file.

    The methods that read a key raise InvalidInputError if the key is missing or its value is invalid.
    """

    path: Path
    line: int  # line on which the mapping begins, counted from 1
    nodes: dict[str, Any]  # YAML nodes by key
    _asked: set[str] = field(default_factory=set, init=False)  # keys that were read

    def has(self, key: str) -> bool:
        """Return whether the mapping contains an optional key."""
        return key in self.nodes

    def section(self, key: str) -> Section:
        """Return the mapping under a key."""
        node = self._node(key)
        if not isinstance(node, yaml.MappingNode):
            raise self.error(key, "a mapping of keys to values")
        return _section(self.path, node)

    def part(self, key: str, read: Callable[[Section], _PartT]) -> _PartT:
        """Return what `read` returns for the mapping under a key; raise InvalidInputError if it leaves out a key."""
        section = self.section(key)
        part = read(section)
        section.finish()
        return part

    def optional_part(self, key: str, read: Callable[[Section], _PartT]) -> _PartT | None:
        """Return what `read` returns for the mapping under a key, as `part` does; None without the key."""
        if not self.has(key):
            return None
        return self.part(key, read)

    def text(self, key: str) -> str:
        """Return text that is not empty."""
        node = self._node(key)
        if not _is(node, "str") or not node.value.strip():
            raise self.error(key, "text that is not empty")
        return str(node.value)

    def number(self, key: str, allowed: FigureRange, item: Any = None) -> float:
        """Return a number within limits: the value of a key, or an item of the list under the key."""
        node = item
        if node is None:
            node = self._node(key)
        value = None
        if _is(node, "int", "float"):
            value = read_number(node.value)  # None for 1:30 and 1_000, which YAML reads as numbers too
        if value is None or not allowed.lowest <= value <= allowed.highest:
            raise self.error(key, f"a number {allowed}", node)
        return value

    def integer(self, key: str, allowed: FigureRange, item: Any = None) -> int:
        """Return a whole number within limits: the value of a key, or an item of the list under the key."""
        value = self.number(key, allowed, item)
        node = item
        if node is None:
            node = self._node(key)
        if not _is(node, "int"):
            raise self.error(key, f"a whole number {allowed}", node)
        return int(value)

    def numbers(self, key: str, allowed: FigureRange) -> tuple[float, ...]:
        """Return a list of one or more numbers within limits."""
        return tuple(self.number(key, allowed, item) for item in self._items(key, self._node(key)))

    def rising(self, key: str, allowed: FigureRange) -> tuple[int, ...]:
        """Return a list of one or more rising whole numbers within limits."""
        values = tuple(self.integer(key, allowed, item) for item in self._items(key, self._node(key)))
        if any(low >= high for low, high in pairwise(values)):
            raise self.error(key, "a rising list")
        return values

    def table(self, key: str, rows: int, columns: int, allowed: FigureRange) -> tuple[tuple[float, ...], ...]:
        """Return a list of `rows` lists, each of `columns` numbers within limits."""
        table = []
        for row in self._items(key, self._node(key)):
            table.append(tuple(self.number(key, allowed, item) for item in self._items(key, row)))
            if len(table[-1]) != columns:
                raise self.error(key, f"{columns} numbers in each row", row)
        if len(table) != rows:
            raise self.error(key, f"{rows} rows")
        return tuple(table)

    def finish(self) -> None:
        """Raise an InvalidInputError if the mapping has a key that was not read, like a misspelt optional key."""
        for key, node in self.nodes.items():
            if key not in self._asked:
                problem = f"key {key!r} is unknown, must be {one_of(key, sorted(self._asked))}"
                raise bad_line(self.path, _line(node), problem)

    def error(self, key: str, allowed: str, node: Any = None) -> InvalidInputError:
        """Return the error about the value of a key, or about `node`, a part of the value."""
        if node is None:
            node = self.nodes[key]
        if isinstance(node, yaml.ScalarNode):
            value = short(node.value)
        else:
            value = f"a {node.id} of {len(node.value)}"
        return bad_line(self.path, _line(node), f"key {key!r} is {value}, must be {allowed}")

    def _node(self, key: str) -> Any:
        """Return the YAML node of a key, and note that the key was read."""
        self._asked.add(key)  # also a missing key, because `finish` names the keys that are allowed
        if key not in self.nodes:
            raise bad_line(self.path, self.line, f"missing key {key!r} in the mapping that begins here")
        return self.nodes[key]

    def _items(self, key: str, node: Any) -> list[Any]:
        """Return the YAML nodes of the items of a list that is not empty."""
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.error(key, "a list that is not empty", node)
        return list(node.value)


def read_section(path: Path) -> Section:
    """Read a YAML file. Raise InvalidInputError if it cannot be read, is not a mapping in YAML, or has an alias.

    A duplicate key, or a key that is not text, is an error too: here at the top, and further in where it is read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: not a UTF-8 text file (byte {error.start})") from None
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):  # a few aliases can expand to a very large value
                raise bad_line(path, _line(event), "the file has an alias (*); write out the value")
        # Nodes, and not their values, because only nodes know their lines.
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        line = 1
        if error.problem_mark:
            line = error.problem_mark.line + 1
        raise bad_line(path, line, f"not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInputError(f"{path}: the file must be a mapping of keys to values")
    return _section(path, node)


def _section(path: Path, node: yaml.MappingNode) -> Section:
    """Return a mapping. Raise InvalidInputError if a key is not text, or occurs twice.

    YAML itself would let the last of equal keys count, and hide the others.
    """
    nodes: dict[str, Any] = {}
    for key, value in node.value:
        if not _is(key, "str"):
            raise bad_line(path, _line(key), "a key that is not text")
        if key.value in nodes:
            raise bad_line(path, _line(key), f"duplicate key {key.value!r}; remove one of them")
        nodes[key.value] = value
    return Section(path, _line(node), nodes)


def _is(node: Any, *types: str) -> bool:
    """Return whether a node is a scalar of one of YAML's types, like "int"."""
    return isinstance(node, yaml.ScalarNode) and node.tag in {f"tag:yaml.org,2002:{name}" for name in types}


def _line(node: Any) -> int:
    """Return the line on which a node or an event begins, counted from 1."""
    return int(node.start_mark.line) + 1
