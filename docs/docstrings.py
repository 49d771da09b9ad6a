"""Extension of griffe: sources and doctests have their own headings, and the comments of fields are documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Attribute, Extension, Object

SOURCE = re.compile(r"\n\n(?=Source: )")
DOCTEST = re.compile(r"\n\n(?=>>> )")
FIELD = re.compile(r"    (?P<name>[A-Za-z]\w*)(?::| =) [^#]*?(?:  # (?P<text>.+))?")
COMMENT = re.compile(r"    # (?P<text>.+)")
LONGEST_VALUE = 60


class Sections(Extension):
    """Change docstrings before they are parsed: "Source:" and doctests get headings, as numpydoc has them.

    Fields that a class describes by comments are listed as its attributes.
    """

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Change one docstring."""
        if not obj.docstring:
            return
        text = obj.docstring.value
        has_section = re.search(r"\n(?:Attributes|Parameters)\n---", text)
        if obj.is_class and not has_section and (fields := list(described_fields(obj.source))):
            text += "\n\nAttributes\n----------\n" + "\n".join(f"{name}\n    {meaning}" for name, meaning in fields)
        text = SOURCE.sub("\n\nNotes\n-----\n", text)
        if "\nExamples\n---" not in text:
            text = DOCTEST.sub("\n\nExamples\n--------\n", text, 1)
        obj.docstring.value = text

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Leave out the value of a constant that does not fit on one line, as that of a template of a sentence."""
        # The signature of a dataclass is made from the values of its fields: these stay.
        is_constant = attr.parent is not None and attr.parent.is_module
        if is_constant and len(str(attr.value)) > LONGEST_VALUE:
            attr.value = None


def described_fields(source: str) -> Iterator[tuple[str, str]]:
    r"""Yield the names of the fields that have a comment, beside them or in the lines above, and the comments.

    >>> list(described_fields("class A:\n    size: int  # number of jobs [1]"))
    [('size', 'Number of jobs [1].')]
    """
    above: list[str] = []
    for line in source.splitlines():
        if comment := COMMENT.fullmatch(line):
            above.append(comment["text"])
            continue
        if (field := FIELD.fullmatch(line)) and (text := " ".join(filter(None, (*above, field["text"])))):
            yield field["name"], f"{text[0].upper()}{text[1:].rstrip('.')}."
        above = []
