"""Answers of a command as text for the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from polluxsim.look.console import console
from polluxsim.look.tables import Lines, boxed, markdown

FORMS = ("markdown", "json")


class Block(NamedTuple):
    """A table of an answer. The first line is the head."""

    lines: Lines
    title: str = ""
    names: int = 1  # number of columns with names


class Sheet(NamedTuple):
    """An answer."""

    parts: Sequence[str | Block]  # sentences and tables, in order
    data: Mapping[str, Any]  # the numbers for JSON, with times in seconds


def print_sheet(sheet: Sheet, form: str | None = None) -> None:
    """Print an answer as one of `FORMS`, or as text without a form."""
    if form == "json":
        print(json.dumps(plain(sheet.data), indent=2, ensure_ascii=False))
        return
    if form == "markdown":
        print(as_markdown(sheet))
        return
    for part in sheet.parts:
        if isinstance(part, Block):
            console().print(boxed(part.lines, part.title, part.names))
        else:
            print(part)


def as_markdown(sheet: Sheet) -> str:
    """Return an answer as Markdown: tables, and sentences as items of lists.

    >>> print(as_markdown(Sheet(["one", "two", Block([["a", "b"], ["c", "1"]]), "three"], {})))
    - one
    - two
    <BLANKLINE>
    | a | b |
    | --- | ---: |
    | c | 1 |
    <BLANKLINE>
    - three
    """
    texts = []
    for part in sheet.parts:
        if not isinstance(part, Block):
            texts.append(f"- {part.strip()}")
            continue
        title = ""
        if part.title:
            title = f"**{part.title}**\n\n"
        # An empty line before and after a table, without which Markdown makes it a part of the list.
        texts.append(f"\n{title}{markdown(part.lines)}\n")
    return "\n".join(texts).strip("\n")


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: null in place of nan and of infinite numbers.

    >>> plain({"wait": float("nan"), "levels": (1.0, float("inf"))})
    {'wait': None, 'levels': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
