"""Compute digests of a user's code: a module that a configuration names, and the modules beside it that it imports."""

from __future__ import annotations

import ast
import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from polluxsim.errors import InvalidConfigError
from polluxsim.run.digests import digest_of, file_digest

INSTALLED = ("site-packages", "dist-packages")
PYTHONS_OWN = ("built-in", "frozen")
"""Origins of modules that change with Python's version only."""

CODE_ENDINGS = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)


def module_digest(name: str) -> str:
    """Return a digest of a user's module or package, and of the modules that it imports from the same folder.

    The digest of Python's own modules is empty, because a run's key contains Python's version. The digest of a missing
    module is empty as well. Importing the module reports the error.

    Raises
    ------
    InvalidConfigError
        If the module's code is in no file that could be read.
    """
    origins = _origins(name)
    if origins is None:
        raise InvalidConfigError(
            f"{name}: the code of this module is in no file, so its changes would not be noticed; "
            "move the code into a file"
        )
    return "".join(_origin_digest(origin) for origin in origins)


def _origin_digest(first: Path) -> str:
    root = first.parent
    files, seen, left = set[Path](), set[Path](), [first]
    while left:
        origin = left.pop()
        # Installed packages, which most modules import, lie elsewhere. Listing their files takes seconds.
        if origin in seen or origin.parent != root:
            continue
        seen.add(origin)
        new = set(_code(origin)) if origin.is_dir() else {origin}
        if root.name not in INSTALLED:
            names = {name for path in new - files for name in _imported(path)}
            left += [found for name in names for found in _origins(name) or ()]
        files |= new
    return digest_of({path.relative_to(root).as_posix(): file_digest(path) for path in sorted(files)})


def _origins(name: str) -> list[Path] | None:
    """Return the file of a top-level module, or the folders of a package. A namespace package may have several.

    The list is empty for Python's own modules and for missing modules. The result is None for a module without a file.
    """
    if name in sys.stdlib_module_names:
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        if name not in sys.modules:
            return []
        file = getattr(sys.modules[name], "__file__", None)  # a script, or a notebook, that runs
        return None if file is None else [Path(file).resolve()]
    if spec is None or spec.origin in PYTHONS_OWN:
        return []
    places = [spec.origin] if spec.submodule_search_locations is None else spec.submodule_search_locations
    # Installers list places that do not exist, and a package in an archive has no files.
    return [Path(place).resolve() for place in places if place is not None and Path(place).exists()] or None


def _imported(path: Path) -> set[str]:
    """Return the top-level modules that a source file imports by absolute names."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # compiled, or importing it reports the error
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - {"polluxsim"}


def _code(folder: Path) -> list[Path]:
    """Return the files of a package that Python may import, compiled ones too."""
    return sorted(path for path in folder.rglob("*") if path.name.endswith(CODE_ENDINGS))
