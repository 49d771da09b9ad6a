"""The check of the source of a program, before it runs.

The check looks at the syntax tree only: imports, names, and attributes with their names. What it cannot see, like a
name that is put together at run time, `guards` refuse when the program runs.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from polluxsim.common.errors import short
from polluxsim.policies.guest.faults import RefusedProgramError

CLASS = "Candidate"
"""Name of the class that a program must have."""

MOST_CHARACTERS = 200_000  # longest source of a program

MODULES = frozenset({
    "__future__", "abc", "array", "bisect", "cmath", "collections", "copy", "dataclasses", "decimal", "enum",
    "fractions", "functools", "heapq", "itertools", "math", "numbers", "numpy", "operator", "re", "statistics",
    "string", "typing",
    "polluxsim.policies.contract", "polluxsim.policies.tools", "polluxsim.common.instants",
    "polluxsim.hardware.placements",
})  # fmt: skip
"""Modules that a program may import, with the modules in them: no files, network, processes, clocks or own chance."""

NAMES = frozenset({
    "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals", "help", "input", "locals",
    "memoryview", "open", "quit", "vars",
})  # fmt: skip
"""Built-in names that a program may not use."""

DUNDERS = frozenset({
    "__abs__", "__add__", "__annotations__", "__bool__", "__call__", "__contains__", "__doc__", "__eq__", "__ge__",
    "__getitem__", "__gt__", "__hash__", "__init__", "__iter__", "__le__", "__len__", "__lt__", "__name__", "__ne__",
    "__next__", "__post_init__", "__repr__", "__slots__", "__str__", "__sub__", "__version__",
})  # fmt: skip
"""Names between double underscores that a program may use."""

HIDDEN_MODULES = frozenset({
    "asyncio", "builtins", "ctypes", "ctypeslib", "f2py", "gc", "importlib", "inspect", "io", "multiprocessing", "os",
    "pathlib", "pickle", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "traceback",
    "types", "weakref",
})  # fmt: skip
"""Modules that other modules have as attributes."""

FILES = frozenset({"fromfile", "genfromtxt", "loadtxt", "memmap", "save", "savetxt", "savez", "tofile"})
"""Functions of NumPy that read or write files."""

OF_TUPLES = frozenset({"_asdict", "_fields", "_replace"})
"""Private names of named tuples that a program may use."""

ORACLE = "oracle"  # attribute of a job with its true duration

TRUTH = "no scheduler of a real cluster knows the true duration of a job"


def check_source(text: str) -> None:
    """Check the source of a program; raise RefusedProgramError with the line of the first problem."""
    if len(text) > MOST_CHARACTERS:
        problem = f"the program has {len(text)} characters, must have at most {MOST_CHARACTERS}; shorten it"
        raise RefusedProgramError(problem)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise RefusedProgramError(f"line {line}: the program is no valid Python: {short(str(error))}") from None
    # The walk over the tree has another order than the lines.
    problems = sorted(_problems(tree))
    if problems:
        line, problem = problems[0]
        raise RefusedProgramError(f"line {line}: {problem}")
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if CLASS not in classes:
        raise RefusedProgramError(f"line 1: the program has no class {CLASS}; write one with allocate(self, view, rng)")


def _problems(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the sentence of each problem."""
    own = OF_TUPLES | set(_own_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not may_import(alias.name):
                    yield node.lineno, _no_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            yield from _problems_of_names(node)
        elif isinstance(node, ast.Attribute):
            problem = _problem_of_attribute(node, own)
            if problem:
                yield node.lineno, problem
        elif isinstance(node, ast.Name) and (node.id in NAMES or _is_closed_dunder(node.id)):
            yield node.lineno, f"{node.id} is not open to programs; a program decides from its view only"


def _problems_of_names(node: ast.ImportFrom) -> Iterator[tuple[int, str]]:
    """Yield the problems of an import of names from a module."""
    module = node.module or ""
    if node.level or not may_import(module):
        yield node.lineno, _no_module("." * node.level + module)
        return
    for alias in node.names:
        is_closed = alias.name in HIDDEN_MODULES or alias.name in FILES or alias.name.startswith("_")
        if is_closed and module != "__future__":
            yield node.lineno, _no_module(f"{module}.{alias.name}")


# A private name is open if the program gives it itself, so that its own classes can have private parts.
def _own_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a program gives to functions, classes, variables, and attributes of its own objects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node):
            yield node.attr


def _is_own(node: ast.Attribute) -> bool:
    """Return whether an attribute is one of the object or class of a method."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _problem_of_attribute(node: ast.Attribute, own: Container[str]) -> str:
    """Return the sentence of a problem with an attribute, or an empty text. `own` are names of the program."""
    name = node.attr
    if name == ORACLE:
        return f"job.{ORACLE} is not open to programs: {TRUTH}"
    if _is_closed_dunder(name):
        return f"the attribute {name} is not open to programs"
    is_dunder = name.startswith("__") and name.endswith("__")
    if name.startswith("_") and not is_dunder and name not in own and not _is_own(node):
        return f"the private attribute {name} is not open to programs; only those of the program itself are"
    if name in HIDDEN_MODULES:
        return f"the module {name} is not open to programs"
    if name in FILES:
        return f"{name} uses files, which are not open to programs"
    return ""


def _is_closed_dunder(name: str) -> bool:
    """Return whether a name is between double underscores and not open to programs."""
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS


def may_import(name: str) -> bool:
    """Return whether a program may import a module."""
    parts = name.split(".")
    if any(part in HIDDEN_MODULES or part.startswith("_") for part in parts) and name != "__future__":
        return False
    # A module is open with all modules in it.
    prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(prefix in MODULES for prefix in prefixes)


def _no_module(name: str) -> str:
    """Return the sentence on an import that is not open to programs."""
    return f"the program may not import {name}; it may import {', '.join(sorted(MODULES - {'__future__'}))}"
