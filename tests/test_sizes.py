"""Modules and functions have a limited length. `benchmarks/lines.py` counts their lines."""

from __future__ import annotations

import ast

import pytest
from lines import KERNELS, decorators, functions, length, modules_now

MOST_IN_FUNCTION = 60
MOST_IN_MODULE = 500


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return modules_now()


def without_docstring(node: ast.FunctionDef) -> int:
    return length(node) - (0 if ast.get_docstring(node) is None else length(node.body[0]))


def test_functions_other_than_kernels_have_at_most_60_lines(modules: dict[str, str]) -> None:
    assert [
        f"{path}: {node.name}"
        for path, node in functions(modules)
        if without_docstring(node) > MOST_IN_FUNCTION and not decorators(node) & KERNELS
    ] == []


def test_modules_have_at_most_500_lines(modules: dict[str, str]) -> None:
    assert [path for path, text in modules.items() if text.count("\n") > MOST_IN_MODULE] == []


def test_all_modules_but_the_entry_points_are_in_a_package_folder(modules: dict[str, str]) -> None:
    assert {path for path in modules if "/" not in path} == {"__init__.py", "__main__.py"}
