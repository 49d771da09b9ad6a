"""`polluxsim run --help`: print every setting with the comment of its configuration file."""

from __future__ import annotations

import re
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING

from polluxsim.run.config_folders import config_files

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH, COLUMN = 100, 34
"""Of the text, and where what settings mean begins [characters]."""

SETTING = re.compile(r"^( *)(\w+):( .*)?$")
EXPLAINED = re.compile(r"^(\w+): .*?# (.+)$", re.MULTILINE)


@contextmanager
def with_meanings() -> Iterator[None]:
    """Print what is printed inside, with the meaning of each setting beside it."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:  # Hydra ends the program when it has told its help
        print("\n".join(_explained(printed.getvalue().splitlines())))


def _explained(lines: list[str]) -> Iterator[str]:
    group, meanings = "", dict[str, str]()
    for number, line in enumerate(lines):
        found = SETTING.match(line)
        if found and not found[1]:
            group = found[2]
            target = next((other.strip() for other in lines[number + 1 :] if "_target_" in other), "")
            meanings = _meanings(group, target)
        meaning = meanings.get(found[2]) if found and (found[1] or not found[3] or group == "seed") else None
        if meaning is None:
            yield line
            continue
        first, *rest = wrap(meaning, WIDTH - COLUMN)
        yield f"{line:<{COLUMN - 2}}  {first}"
        yield from (" " * COLUMN + more for more in rest)


def _meanings(group: str, target: str) -> dict[str, str]:
    """Return what the settings of a group mean, from the files of the group that build the same thing."""
    files = config_files("run.yaml" if group == "seed" else f"{group}/*.yaml")
    texts = [path.read_text(encoding="utf-8") for path in files.values()]
    if group == "seed":
        return dict(EXPLAINED.findall(texts[0]))
    return {key: meaning for text in texts if target in text for key, meaning in EXPLAINED.findall(text)}
