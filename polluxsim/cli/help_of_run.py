"""The help of `polluxsim run`: the composed configuration, with the meaning of each setting beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap

from polluxsim.run.configurations import comments, config_files

WIDTH = 100  # width of the text [characters]
COLUMN = 34  # column in which the comments begin [characters]

SETTING_LINE = re.compile(r"^( *)(\w+):( .*)?$")  # indentation, name and value of a setting in YAML


def with_meanings(text: str) -> str:
    """Return a help text with the comment of each setting beside it."""
    return "\n".join(_explained(text.splitlines()))


def _explained(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a configuration in YAML, each with the comment of its setting; a long one has further lines.

    The comments of a part with a class, like `policy`, are those in the configuration files of its group.
    """
    # Indentation, group and comments of the parts that contain the line, from the outermost.
    parts: list[tuple[int, str, dict[str, str]]] = [(-1, "", comments("seed"))]  # those of run.yaml
    for index, line in enumerate(lines):
        setting = SETTING_LINE.match(line)
        if not setting:
            yield line
            continue
        depth = len(setting[1])
        name = setting[2]
        # A line that is no deeper than a part is outside of it.
        while parts[-1][0] >= depth:
            parts.pop()
        _, group, meanings = parts[-1]
        target = _class_of_part(lines[index + 1 :], depth + 2)
        if target:
            inner_group = f"{group}/{name}" if group else name
            # A part without its own group has the kind of its parent: `policy.inner` is a policy.
            if not config_files(f"{inner_group}/*.yaml"):
                inner_group = group
            parts.append((depth, inner_group, comments(inner_group, target)))
        comment_lines = wrap(meanings.get(name, ""), WIDTH - COLUMN)
        if not comment_lines:
            yield line
            continue
        # A longer line pushes its comment to the right, with two spaces in between.
        yield f"{line:<{COLUMN - 2}}  {comment_lines[0]}"
        for comment_line in comment_lines[1:]:
            yield " " * COLUMN + comment_line


def _class_of_part(lines: list[str], depth: int) -> str:
    """Return the line with the class of a part whose settings are indented by `depth`; empty without a class."""
    for line in lines:
        if not line.startswith(" " * depth):
            break
        if line.startswith("_target_", depth):
            return line.strip()
    return ""
