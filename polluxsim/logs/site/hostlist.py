"""Lists of node names as Slurm writes them, like a[01-03,07],login."""

from __future__ import annotations

import re
from itertools import product
from math import prod

MOST_NAMES = 100_000  # names of one list, to catch broken lists

BRACKETS = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def expanded(text: str) -> list[str] | None:
    """Return the names in a list of nodes, in its order; None if the text is no such list or has too many names.

    >>> expanded("a[01-03,07],login"), expanded("r[1-2]n[1-2]"), expanded("a[1-")
    (['a01', 'a02', 'a03', 'a07', 'login'], ['r1n1', 'r1n2', 'r2n1', 'r2n2'], None)
    """
    names = list[str]()
    for part in _parts(text):
        of_part = _names(part)
        if of_part is None or len(names) + len(of_part) > MOST_NAMES:
            return None
        names += of_part
    return names


def _parts(text: str) -> list[str]:
    """Return the parts of a list between commas that are not in brackets."""
    # A comma is in brackets if the next bracket behind it closes.
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _names(part: str) -> list[str] | None:
    """Return the names of one part like a[01-03]; None if its brackets are wrong, or it has too many names."""
    pieces = BRACKETS.split(part)
    choices: list[list[str]] = []  # of each piece; a name has one choice of each
    for index, piece in enumerate(pieces):
        is_in_brackets = index % 2 == 1  # `split` alternates between text and the content of brackets
        if is_in_brackets:
            numbers = _numbers(piece)
            if numbers is None:
                return None
            choices.append(numbers)
        elif any(mark in piece for mark in "[] "):
            return None
        else:
            choices.append([piece])
    # Counted before they are made, because two ranges may have a product that does not fit into memory.
    if prod(map(len, choices)) > MOST_NAMES:
        return None
    return ["".join(words) for words in product(*choices)]


def _numbers(text: str) -> list[str] | None:
    """Return the numbers in brackets like 01-03,07, with their leading zeros; None for other texts."""
    numbers = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first or last - first >= MOST_NAMES:
            return None
        width = len(match[1])  # of 01-10, all names have two digits
        numbers += [str(number).zfill(width) for number in range(first, last + 1)]
    return numbers
