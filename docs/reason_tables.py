"""Tables of the kinds of reasons of the shipped policies, from the values in their modules."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

from polluxsim.policies.contract.reasons import Excuse, ReasonKind

ROOT = Path(__file__).parents[1]
POLICIES = ROOT / "polluxsim" / "policies"
CONFIGS = ROOT / "configs" / "policy"
TARGET = re.compile(r"^_target_: (\S+)\.\w+", re.MULTILINE)
SEVERAL = "several policies"


def kinds_by_module() -> dict[str, list[ReasonKind]]:
    """Return the kinds of reasons that each module defines, by the name of the module."""
    found: dict[str, list[ReasonKind]] = {}
    for path in sorted(POLICIES.rglob("*.py")):
        defined = _assigned_kinds(path)
        if defined:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = import_module(name)
            found[name] = [getattr(module, constant) for constant in defined]
    return found


def table_of_reasons() -> str:
    """Return a Markdown table with a row for each kind: the policies that give it, its name and its meaning."""
    lines = ["| policies | reason | meaning |", "|---|---|---|"]
    rows = [(_policies_of(module), kinds) for module, kinds in kinds_by_module().items()]
    for policies, kinds in sorted(rows, key=lambda row: (row[0] != SEVERAL, row[0])):
        lines += [f"| {policies} | `{kind.name}` | {kind.meaning} |" for kind in kinds]
    return "\n".join(lines)


def table_of_excuses() -> str:
    """Return a Markdown table with a row for each kind that excuses idle GPUs: its name, and when it does."""
    lines = ["| reason | a waiting job is excused if | a running job is excused if |", "|---|---|---|"]
    every = [kind for kinds in kinds_by_module().values() for kind in kinds]
    for kind in sorted(every, key=lambda kind: kind.name):
        if kind.excuses_waiting or kind.excuses_running:
            cells = _condition(kind.excuses_waiting), _condition(kind.excuses_running)
            lines.append(f"| `{kind.name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _assigned_kinds(path: Path) -> list[str]:
    """Return the names of the constants of a module that are kinds of reasons."""
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function, target = node.value.func, node.targets[0]
            if isinstance(function, ast.Name) and function.id == "ReasonKind" and isinstance(target, ast.Name):
                names.append(target.id)
    return names


def _condition(excuse: Excuse | None) -> str:
    """Return the condition of a test from the first line of its docstring; a dash if there is no test."""
    if excuse is None:
        return "–"
    line = (excuse.__doc__ or "").strip().splitlines()[0]
    return line.removeprefix("Return whether ").rstrip(".")


def _policies_of(module: str) -> str:
    """Return the policies of a module, or of the modules that import it if it has none."""
    if ".tools." in module:
        return SEVERAL
    modules = {path.stem: TARGET.search(path.read_text(encoding="utf-8")) for path in sorted(CONFIGS.glob("*.yaml"))}
    targets = {name: found[1] for name, found in modules.items() if found is not None}
    users: set[str] = set()  # modules of policies that use the kinds of the module
    seen: set[str] = set()
    helpers = {module}
    while helpers:
        users |= helpers.intersection(targets.values())
        seen |= helpers
        # What imports a policy, like another policy inside it, does not use its kinds.
        importers = {importer for helper in helpers - users for importer in _importers(helper)}
        helpers = importers - seen
    return ", ".join(f"`{name}`" for name, target in targets.items() if target in users)


def _importers(module: str) -> list[str]:
    """Return the modules of policies that import a module."""
    importing = f"from {module} import "
    found = []
    for path in sorted(POLICIES.rglob("*.py")):
        if importing in path.read_text(encoding="utf-8"):
            found.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found
