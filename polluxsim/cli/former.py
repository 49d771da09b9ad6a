"""Former spellings of commands and options. Each former spelling keeps its meaning for one release, with a warning."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

COMMANDS = {
    **{name: f"log {name}" for name in ("import", "calibrate")},
    **{name: f"workload {name}" for name in ("generate", "sample", "map")},
    **{name: f"profile {name}" for name in ("fit", "card")},
    **{name: f"paper {name}" for name in ("reproduce", "conformance")},
    "trace": "timeline",
}
"""Present names of commands, by former name."""

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "arena": {"--metric": "--user-metric"},
    "size": {"--jobs": "--log", "--out": "--output"},
    "table": {"--by": "--ranks"},
    "plot": {"--y": "--metric"},
    "log calibrate": {"--out": "--output"},
    "log whatif": {"--policy": "--policies"},
    "paper reproduce": {"--out": "--output"},
    "paper conformance": {"--out": "--output"},
    "profile fit": {"--plot": "--figure"},
}
"""Present names of options, by command and former name."""

POSITIONALS = {
    "why": "--at",
    **dict.fromkeys(
        ("log import", "workload generate", "workload sample", "workload map", "profile fit", "profile card"), "-o"
    ),
}
"""Options that replace former positional arguments, by command."""

FIGURES = (".png", ".pdf", ".svg")  # formerly the output of `size` was a figure

VALUES: Mapping[str, Mapping[str, Callable[[str], list[str]]]] = {
    "size": dict.fromkeys(
        ("-o", "--output"), lambda value: ["--figure", value] if value.lower().endswith(FIGURES) else []
    ),
    **{
        command: {"--hours": lambda value: ["--duration", f"{value}h"]}
        for command in ("workload generate", "workload map")
    },
    "when": {"--calibrate": lambda value: ["--calibrate", "--times", value] if value.isdecimal() else []},
}
"""Options whose values changed: the present words of a former value, or [] if a value is not a former one."""

LISTS = {"arena": ("--policies", "--scenarios")}  # options whose values were formerly separate words, by command

OVERRIDE = re.compile(r"[+~]*[\w./@:]+=")  # beginning of an override of a setting


def print_former(former: str, present: str) -> None:
    """Print a line about a former spelling."""
    print(
        f"polluxsim: {former} is now {present}; a later release removes the former spelling",
        file=sys.stderr,
        flush=True,
    )


def present_command(words: Sequence[str]) -> list[str]:
    """Return a command line with the present name of its command."""
    first, rest = words[0], list(words[1:])
    if first in COMMANDS:
        print_former(f"polluxsim {first}", f"polluxsim {COMMANDS[first]}")
        return [*COMMANDS[first].split(), *rest]
    # A what-if is of a log if its subject is a file, or if it states the number of nodes.
    has_nodes = any(re.match("--nodes(=|$)", word) for word in rest)
    if first == "whatif" and (has_nodes or (rest and Path(rest[0]).is_file())):
        print_former("polluxsim whatif LOG", "polluxsim log whatif LOG")
        return ["log", *words]
    return list(words)


def present_options(command: str, words: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the present spellings of its options."""
    renamed, changed = OPTIONS.get(command, {}), VALUES.get(command, {})
    result = list[str]()
    rest = iter(_joined(LISTS.get(command, ()), words))
    for word in rest:
        name, equals, value = word.partition("=")
        if name in renamed:
            print_former(name, renamed[name])
            name = renamed[name]
        if name not in changed:
            result.append(f"{name}{equals}{value}")
            continue
        value = value if equals else next(rest, "")
        if present := changed[name](value) if value else []:
            print_former(f"{name} {value}", " ".join(present))
            result += present
        else:
            result += [f"{name}{equals}{value}"] if equals or not value else [name, value]
    return result


def _joined(options: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the arguments with the values of some options joined by commas.

    >>> _joined(["--policies"], ["--policies", "fifo", "hydra/launcher=ray"])
    ['--policies', 'fifo', 'hydra/launcher=ray']
    """
    result, rest = list[str](), list(words)
    while rest:
        word = rest.pop(0)
        result.append(word)
        if word in options:
            values = list(takewhile(_is_value, rest))
            del rest[: len(values)]
            if len(values) > 1:
                print_former(f"{word} {' '.join(values)}", f"{word} {','.join(values)}")
            result += [",".join(values)] if values else []
    return result


def _is_value(word: str) -> bool:
    """Return whether a word is neither an option nor an override."""
    return not word.startswith("-") and not OVERRIDE.match(word)


def present_positional(command: str, rest: Sequence[str]) -> list[str]:
    """Return the option that replaces a leftover argument, if the argument is a former spelling."""
    if command not in POSITIONALS or len(rest) != 1 or not _is_value(rest[0]):
        return []
    option = POSITIONALS[command]
    print_former(f"{rest[0]} without an option", f"{option} {rest[0]}")
    return [option, rest[0]]
