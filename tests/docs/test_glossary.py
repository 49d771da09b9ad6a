"""The glossary has at most sixty terms, and the entry pages link each term where they first use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TERM = re.compile(r"^\*\*(.+?)\*\*\{ #([\w-]+) \}\n:   \S", re.MULTILINE)
NO_PROSE = re.compile(
    r"```.*?```|<!--.*?-->|`[^`]*`|\$[^$]*\$|^#[^\n]*|^!!![^\n]*|!?\[[^\]]*\]\((?!glossary)[^)]*\)",
    re.DOTALL | re.MULTILINE,
)
"""Code, comments, formulas, titles, and links to other pages."""
NAMES = {"p": "fairness power"}
"""Names to look for in prose, if the term itself is too short."""


def terms() -> dict[str, list[str]]:
    """Return the names of each term by its anchor."""
    found = TERM.findall((DOCS / "glossary.md").read_text(encoding="utf-8"))
    assert len({anchor for _, anchor in found}) == len(found)
    return {anchor: [NAMES.get(name, name) for name in names.split(", ")] for names, anchor in found}


def first_use(prose: str, names: list[str]) -> re.Match[str] | None:
    """Return the first use of a term in a text, in singular or plural."""
    forms = "|".join(
        re.escape(name.removesuffix("y")) + ("(?:y|ies)" if name.endswith("y") else "s?") for name in names
    )
    return re.search(rf"(?<![\w#/-])(?:{forms})(?![\w(-])", prose, re.IGNORECASE)


def test_there_are_at_most_sixty_terms_in_the_order_of_the_alphabet() -> None:
    assert 40 <= len(terms()) <= 60
    for section in (DOCS / "glossary.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        names = [names.casefold() for names, _ in TERM.findall(section)]
        assert names == sorted(names)


def test_each_term_is_linked_from_some_page() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    assert set(re.findall(r"glossary\.md#([\w-]+)", pages)) == set(terms())


@pytest.mark.parametrize("page", ["learners", "operators", "researchers", "tutorial"])
def test_each_term_is_linked_at_its_first_use(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    prose = re.sub(NO_PROSE, lambda found: " " * len(found[0]), text)
    first = {anchor: use for anchor, names in terms().items() if (use := first_use(prose, names))}
    unlinked = {
        anchor: use[0] for anchor, use in first.items() if not prose[use.end() :].startswith(f"](glossary.md#{anchor})")
    }
    assert unlinked == {}
    assert len(first) >= 4
