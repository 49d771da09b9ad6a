"""Count the lines of the package, by package folder, now and at an earlier revision.

    python benchmarks/lines.py [--since REVISION] [--functions] [--helpers]

`--functions` prints the median and the 90th percentile of the length of functions, docstrings included. `--helpers`
lists private functions with one statement that are referenced once: candidates for inlining where the name says no
more than the statement. A few seconds.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
from collections import Counter
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent.parent
PACKAGE = "polluxsim"

KERNELS = {"kernel", "kernel_beside_others", "kernel_in_threads", "helper", "inlined"}
"""Decorators of compiled functions."""


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="REVISION", help="an earlier revision to compare with")
    parser.add_argument("--functions", action="store_true", help="print the length of functions")
    parser.add_argument("--helpers", action="store_true", help="list helpers that are used once")
    options = parser.parse_args()
    now = modules_now()
    before = modules_at(options.since) if options.since else {}
    print_sizes(before, now)
    if options.functions:
        for name, modules in (("before", before), ("now", now)):
            if sizes := sorted(length(node) for _, node in functions(modules)):
                most = sizes[len(sizes) * 9 // 10]
                print(f"{len(sizes):,} functions {name}: median {median(sizes)} lines, 90 % at most {most}")
    if options.helpers:
        print(*used_once(now), sep="\n")


def modules_now() -> dict[str, str]:
    """Return the text of each module of the package, by its path in the package."""
    root = HERE / PACKAGE
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}


def modules_at(revision: str) -> dict[str, str]:
    """Return the text of each module at a revision, by its path in the package."""
    archive = subprocess.run(["git", "archive", revision, PACKAGE], cwd=HERE, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {
            member.name.removeprefix(f"{PACKAGE}/"): files.extractfile(member).read().decode()
            for member in files
            if member.name.endswith(".py")
        }


def print_sizes(before: dict[str, str], now: dict[str, str]) -> None:
    """Print the lines and the modules of each package folder."""
    then, present, modules = Counter[str](), Counter[str](), Counter[str]()
    for path, text in before.items():
        then[folder(path)] += text.count("\n")
    for path, text in now.items():
        present[folder(path)] += text.count("\n")
        modules[folder(path)] += 1
    print(f"{'folder':14}{'modules':>9}{'lines':>9}" + (f"{'before':>9}" if before else ""))
    for name in sorted(present | then):
        print(f"{name:14}{modules[name]:>9,}{present[name]:>9,}" + (f"{then[name]:>9,}" if before else ""))
    total = f"{'all':14}{modules.total():>9,}{present.total():>9,}"
    print(total + (f"{then.total():>9,}" if before else ""))


def folder(path: str) -> str:
    """Return the package folder of a module."""
    return path.partition("/")[0] if "/" in path else "(top)"


def functions(modules: dict[str, str]) -> list[tuple[str, ast.FunctionDef]]:
    """Return all functions and methods, each with the path of its module."""
    return [
        (path, node)
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]


def length(node: ast.stmt) -> int:
    """Return the number of lines of a statement."""
    return node.end_lineno - node.lineno + 1


def decorators(node: ast.FunctionDef) -> set[str]:
    """Return the names of the decorators of a function."""
    return {ast.unparse(mark).partition("(")[0] for mark in node.decorator_list}


def used_once(modules: dict[str, str]) -> list[str]:
    """Return private functions and methods with one statement and one reference in their module."""
    found = []
    for path, node in functions(modules):
        is_private = node.name.startswith("_") and not node.name.startswith("__")
        statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if is_private and len(statements) == 1 and not node.decorator_list:
            uses = len(re.findall(rf"\b{node.name}\b", modules[path])) - 1
            if uses == 1:
                found.append(f"{path}:{node.lineno} {node.name}")
    return sorted(found)


if __name__ == "__main__":
    main()
