"""Extension of griffe: a paragraph that begins with "Source:" is no parameter, and a doctest is an example."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SOURCE = re.compile(r"\n\n(?=Source: )")
DOCTEST = re.compile(r"\n\n(?=>>> )")


class Sections(Extension):
    """Put both under separate headings, as numpydoc does."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Change a docstring before it is parsed."""
        if obj.docstring:
            text = SOURCE.sub("\n\nNotes\n-----\n", obj.docstring.value)
            if "\nExamples\n---" not in text:
                text = DOCTEST.sub("\n\nExamples\n--------\n", text, 1)
            obj.docstring.value = text
