"""Extension of griffe: headings of sources and doctests, comments of fields, and what values of settings must be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pkgutil import resolve_name
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from griffe import Attribute, Expr, ExprName, ExprSubscript, ExprTuple, Extension, Function, Object

from polluxsim.common.values import ALIASES, NAMES, declared_values, in_words

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
        if obj.is_class and any(name in obj.source for name in NAMES):
            text = with_values(text, resolve_name(obj.path))
        text = SOURCE.sub("\n\nNotes\n-----\n", text)
        if "\nExamples\n---" not in text:
            text = DOCTEST.sub("\n\nExamples\n--------\n", text, 1)
        obj.docstring.value = text

    def on_function_instance(self, *, func: Function, **_: Any) -> None:
        """Leave the declared values out of the types of the parameters."""
        for parameter in func.parameters:
            parameter.annotation = plain(parameter.annotation)

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Leave out the declared values of a field, and a constant's value that does not fit on one line."""
        attr.annotation = plain(attr.annotation)
        # The signature of a dataclass is made from the values of its fields: these stay.
        is_constant = attr.parent is not None and attr.parent.is_module
        if is_constant and len(str(attr.value)) > LONGEST_VALUE:
            attr.value = None


def plain(annotation: Any) -> Any:
    """Return a type without what it declares about values: `T` for `Annotated[T, …]`, `float` for `PositiveFloat`."""
    if isinstance(annotation, ExprName):
        return ALIASES.get(annotation.name, annotation)
    if isinstance(annotation, ExprSubscript) and str(annotation.left) == "Annotated":
        assert isinstance(annotation.slice, ExprTuple)
        return plain(annotation.slice.elements[0])
    if isinstance(annotation, Expr) and is_dataclass(annotation):
        for field in fields(annotation):
            part = getattr(annotation, field.name)
            if isinstance(part, Expr):
                setattr(annotation, field.name, plain(part))
            elif isinstance(part, list):
                setattr(annotation, field.name, [plain(item) for item in part])
    return annotation


def with_values(text: str, kind: type) -> str:
    """Return the docstring of a class with what the values of its parameters must be."""
    declared = dict(declared_values(kind))
    if not is_dataclass(kind):
        # The method of a dataclass repeats its fields, but not in the modules that declare them.
        declared |= declared_values(kind.__init__)
    lines = text.splitlines()
    for name, declaration in declared.items():
        if name not in lines:
            continue
        end = lines.index(name) + 1
        while end < len(lines) and lines[end].startswith("    "):
            end += 1
        lines.insert(end, f"    {sentence_of(declaration)}")
    return "\n".join(lines)


def sentence_of(declaration: Any, subject: str = "Must be") -> str:
    """Return a sentence about a value, or about the values of a mapping or a list.

    >>> from polluxsim.common.values import PositiveFloat
    >>> sentence_of(dict[str, PositiveFloat]), sentence_of(PositiveFloat | str)
    ('Each value must be a finite number > 0.', 'A number must be a finite number > 0.')
    """
    words = in_words(declaration)
    if not words:
        sentences = [sentence_of(part, "Each value must be") for part in get_args(declaration)]
        return next(filter(None, sentences), "")
    arms = () if get_origin(declaration) is Annotated else get_args(declaration)
    others = [arm for arm in arms if arm is not NoneType and get_origin(arm) is not Annotated]
    if others:
        types = [get_args(arm)[0] for arm in arms if get_origin(arm) is Annotated]
        return f"A {'word' if str in types else 'number'} must be {words}."
    return f"{subject} {words}."


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
