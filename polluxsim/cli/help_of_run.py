"""The help of `polluxsim run`: the composed configuration, with the meaning of each setting beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap

from polluxsim.run.configurations import comments, config_files

WIDTH, COLUMN = 100, 34  # width of the text, and column in which the comments begin [characters]

SETTING_LINE = re.compile(r"^( *)(\w+):( .*)?$")  # indentation, name and value of a setting in YAML


def with_meanings(text: str) -> str:
    """Return a help text with the comment of each setting beside it."""
    return "\n".join(_explained(text.splitlines()))


def _explained(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a configuration in YAML, each with the comment of its setting.

    The comments of a part with a class, like `policy`, are those in the configuration files of its group.
    """
    # Indentation, group and comments of the parts that contain the line, from the outermost.
    parts: list[tuple[int, str, dict[str, str]]] = [(-1, "", comments("seed"))]  # those of run.yaml
    for index, line in enumerate(lines):
        setting = SETTING_LINE.match(line)
        if not setting:
            yield line
            continue
        depth, name = len(setting[1]), setting[2]
        while parts[-1][0] >= depth:
            parts.pop()
        _, group, meanings = parts[-1]
        if target := _class_of_part(lines[index + 1 :], depth + 2):
            inner = f"{group}/{name}" if group else name
            # A part without its own group has the kind of its parent: `policy.inner` is a policy.
            inner = inner if config_files(f"{inner}/*.yaml") else group
            parts.append((depth, inner, comments(inner, target)))
        first, *rest = wrap(meanings.get(name, ""), WIDTH - COLUMN) or [""]
        yield f"{line:<{COLUMN - 2}}  {first}" if first else line
        yield from (" " * COLUMN + more for more in rest)


def _class_of_part(lines: list[str], depth: int) -> str:
    """Return the line with the class of a part whose settings are indented by `depth`; empty without a class."""
    for line in lines:
        if not line.startswith(" " * depth):
            break
        if line.startswith("_target_", depth):
            return line.strip()
    return ""
