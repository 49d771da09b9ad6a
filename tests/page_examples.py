"""The examples of the pages of the documentation: files and programs, with the outputs that the pages show."""

from __future__ import annotations

import re
from typing import NamedTuple

BLOCK = re.compile(r'^( *)```(\w+)(?: title="(.+?)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->\n$")
INSTALLS = re.compile(r"^python3 -m venv .*\n", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: a file if it has a title, else a program."""

    line: int
    language: str
    title: str | None
    text: str
    output: str | None = None  # what the page shows as the output, if a block of text follows at once


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page that are files or to be run, in order.

    Lines that install polluxsim are left out, because it is installed where pages are tested. CI runs them.
    """
    return [
        Block(
            page.count("\n", 0, found.start()) + 2,
            found[2],
            found[3],
            INSTALLS.sub("", found[4]),
            output_after(page, found.end()),
        )
        for found in BLOCK.finditer(page)
        if not NOT_RUN.search(page[: found.start()]) and (found[3] or found[2] in {"python", "sh"})
    ]


def output_after(page: str, end: int) -> str | None:
    """Return the text block that begins in the line after a block."""
    found = BLOCK.match(page, end + 1)
    return found[4] if found is not None and found[2] == "text" else None


def check_output(block: Block, printed: str, page: str) -> None:
    """Check that a program printed what the page shows, but for line breaks and for parts that `…` stands for."""
    if block.output is None:
        return
    printed = " ".join(printed.split())
    first, *others = (" ".join(part.split()) for part in block.output.split("…"))
    assert printed.startswith(first), f"{page}, line {block.line} shows:\n{first}\nand printed is:\n{printed}"
    position = len(first)
    for part in others:
        place = printed.find(part, position)
        assert place >= 0, f"{page}, line {block.line} shows:\n{part}\nand printed is:\n{printed}"
        position = place + len(part)
    if others[-1:] != [""]:
        assert not printed[position:].strip(), f"{page}, line {block.line} does not show:\n{printed[position:]}"
