"""Former spellings of commands and options. Each former spelling keeps its meaning for one release, with a warning."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
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
"""Former positional arguments that became options."""

LISTS = {"arena": ("--policies", "--scenarios")}  # options whose values were formerly separate words, by command

FIGURES = (".png", ".pdf", ".svg")
OUTPUT = ("-o", "--output")
OVERRIDE = re.compile(r"[+~]*[\w./@:]+=")


def tell_former(former: str, present: str) -> None:
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
        tell_former(f"polluxsim {first}", f"polluxsim {COMMANDS[first]}")
        return [*COMMANDS[first].split(), *rest]
    # A what-if is of a log if its subject is a file, or if it states the number of nodes.
    has_nodes = any(re.match("--nodes(=|$)", word) for word in rest)
    if first == "whatif" and (has_nodes or (rest and Path(rest[0]).is_file())):
        tell_former("polluxsim whatif LOG", "polluxsim log whatif LOG")
        return ["log", *words]
    return list(words)


def present_options(command: str, words: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the present names of its options."""
    known = OPTIONS.get(command, {})
    result = list[str]()
    for word in _joined(LISTS.get(command, ()), words):
        name, equals, value = word.partition("=")
        present = known.get(name, name)
        if present != name:
            tell_former(name, present)
        result.append(f"{present}{equals}{value}")
    if command == "size":
        return _with_figure(result)
    if command in ("workload generate", "workload map"):
        return _with_durations(result)
    return _with_times(result) if command == "when" else result


def _joined(options: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the arguments with the values of some options joined by commas.

    >>> _joined(["--policies"], ["--policies", "fifo", "hydra/launcher=ray"])
    ['--policies', 'fifo', 'hydra/launcher=ray']
    """
    result = list[str]()
    left = list(words)
    while left:
        word = left.pop(0)
        result.append(word)
        if word in options:
            values = list[str]()
            while left and not left[0].startswith("-") and not OVERRIDE.match(left[0]):
                values.append(left.pop(0))
            if len(values) > 1:
                tell_former(f"{word} {' '.join(values)}", f"{word} {','.join(values)}")
            result += [",".join(values)] if values else []
    return result


def _with_figure(words: Sequence[str]) -> list[str]:
    """Return the arguments of `size` after replacing `-o`, which formerly named the figure."""
    result = list(words)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name not in OUTPUT:
            continue
        value = value if equals else "".join(words[place + 1 : place + 2])
        if value.lower().endswith(FIGURES):
            tell_former(f"{name} {value}", f"--figure {value}")
            result[place] = f"--figure{equals}{value if equals else ''}"
    return result


def _with_durations(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command whose option `--duration` was formerly `--hours`."""
    result, hours = list[str](), False
    for word in words:
        name, equals, value = word.partition("=")
        if hours or (name == "--hours" and equals):
            value = word if hours else value
            tell_former(f"--hours {value}", f"--duration {value}h")
            result.append(f"--duration={value}h")
        elif name != "--hours":
            result.append(word)
        hours = name == "--hours" and not equals
    return [*result, "--duration"] if hours else result


def _with_times(words: Sequence[str]) -> list[str]:
    """Return the arguments of `when`, whose option `--calibrate` formerly took a number."""
    result = list[str]()
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--calibrate" and equals:
            tell_former(word, f"--calibrate --times {value}")
            result += [name, "--times", value]
        elif word.isdecimal() and place and words[place - 1] == "--calibrate":
            tell_former(f"--calibrate {word}", f"--calibrate --times {word}")
            result += ["--times", word]
        else:
            result.append(word)
    return result


def present_positional(command: str, rest: Sequence[str]) -> list[str]:
    """Return the option that replaces a leftover argument, if the argument is a former spelling."""
    if command not in POSITIONALS or len(rest) != 1 or rest[0].startswith("-") or OVERRIDE.match(rest[0]):
        return []
    option = POSITIONALS[command]
    tell_former(f"{rest[0]} without an option", f"{option} {rest[0]}")
    return [option, rest[0]]
