"""The page on the engine lists the observers of each transition as the code does."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from polluxsim.engine import simulation

PAGE = Path(__file__).parents[2] / "docs" / "design" / "engine.md"


def table_of_the_code() -> str:
    """Return the table of observers in Markdown, in the order of the call of `Observers` in `simulation.py`."""
    tree = ast.parse(inspect.getsource(simulation))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Observers"]
    (call,) = calls
    lines = ["| transition | observers, in order |", "|---|---|"]
    for keyword in call.keywords:
        assert isinstance(keyword.value, ast.Tuple)
        methods = ", ".join(f"`{ast.unparse(method)}`" for method in keyword.value.elts)
        lines.append(f"| `{keyword.arg}` | {methods} |")
    return "\n".join(lines)


def test_the_page_has_the_observers_of_the_code() -> None:
    assert table_of_the_code() in PAGE.read_text()
