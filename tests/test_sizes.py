"""Functions are short. `benchmarks/lines.py` counts their lines."""

from __future__ import annotations

import ast
from fnmatch import fnmatch

import pytest
from lines import KERNELS, NEW, length, marks, modules_now

MOST = 45


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return modules_now()


@pytest.fixture(scope="module")
def functions(modules: dict[str, str]) -> list[tuple[str, ast.FunctionDef]]:
    return [
        (f"{path}: {node.name}", node)
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]


def without_docstring(node: ast.FunctionDef) -> int:
    return length(node) - (0 if ast.get_docstring(node) is None else length(node.body[0]))


def test_half_of_the_functions_have_six_lines_and_nine_in_ten_twenty(
    functions: list[tuple[str, ast.FunctionDef]],
) -> None:
    sizes = sorted(length(node) for _, node in functions)
    assert sizes[len(sizes) // 2] <= 6
    assert sizes[9 * len(sizes) // 10] <= 20


def test_no_function_but_a_kernel_has_more_than_a_screen(functions: list[tuple[str, ast.FunctionDef]]) -> None:
    long = {name for name, node in functions if without_docstring(node) > MOST and not marks(node) & KERNELS}
    assert long == set()


def test_the_modules_of_new_features_are_there(modules: dict[str, str]) -> None:
    assert [
        path for paths in NEW.values() for path in paths.split() if not any(fnmatch(one, path) for one in modules)
    ] == []
