"""The key of a run: a hash of everything on which its results depend, including data files and the user's code."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import importlib.util
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.metadata import version
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from polluxsim import __version__
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.files import TEMPORARY, digest_of_file
from polluxsim.common.shipped import shipped
from polluxsim.records.folders import SWEEP_FILES, WITHOUT_RESULT
from polluxsim.records.storage import ALLOCATIONS_FILE, RUN_FILE, RUN_FILES, SOMETIMES
from polluxsim.run.building import metric_modules

OUTPUTS = {RUN_FILE: (*RUN_FILES, *SOMETIMES), ".lock": SWEEP_FILES}
"""File that marks the folder of a run or of a sweep, and the files that the run or sweep writes. A folder of data may
contain such folders."""

LARGE = 500_000_000  # size of a folder of data from which on a message says that it is read [bytes]
UNREADABLE = "unreadable"  # Digest of a file that cannot be read. The code that uses the file reports the error.

INSTALLED = ("site-packages", "dist-packages")  # folders of installed packages
PYTHONS_OWN = ("built-in", "frozen")  # origins of modules that change with Python's version only

CODE_ENDINGS = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)  # of files that Python may import

PACKAGE = Path(__file__).parents[1]
WITHOUT_INFLUENCE = ("api", "checks", "cli", "look", "measure", "run", "statistics", "studies")
"""Packages whose code changes no result, except for the modules in `EXECUTING`."""

EXECUTING = ("run/building.py", "run/execution.py", "run/inputs.py", "run/spec.py")
"""Modules of these packages that count: they describe, build and execute a run."""

CLASS_SETTINGS = ("_target_", "rule")  # settings that may name a class outside polluxsim, as module.Class

# Libraries that compute or write results. Hydra is none: the key contains the composed settings.
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "simpy", "pyarrow")
# Libraries whose versions run.json states. The version of llvmlite follows from that of numba.
STATED = ("simpy", "numpy", "scipy", "numba", "pyarrow", "hydra-core")


def folder_digest(folder: Path) -> str:
    """Return a digest of the files in a folder, without hidden files and results. Print a line if they are large."""
    files = list(_data_files(folder))
    _announce(folder, sum(path.stat().st_size for path in files), len(files))
    return digest_of({path.relative_to(folder).as_posix(): file_digest(path) for path in files})


@lru_cache(maxsize=64)
def _announce(folder: Path, size: int, count: int) -> None:
    """Print once that a large folder is read, because the user may have named it by mistake."""
    # A worker process has a parent process, which has printed the line.
    if size >= LARGE and parent_process() is None:
        amount = f"{size / 1e9:.1f} GB in {count} files"
        print(f"polluxsim: {folder}: reading {amount}, because the key of a run depends on its data", file=sys.stderr)


def _data_files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files in a folder, in the folders inside it, and in linked folders.

    Hidden files, results of runs and sweeps, and links to a folder above are left out.
    """
    place = folder.resolve()
    # A link to a folder above would never end.
    if place in above:
        return
    names = sorted(path.name for path in folder.iterdir())
    results = set[str]()
    for mark, files in OUTPUTS.items():
        if mark in names:
            results.update(files)
    for name in names:
        path = folder / name
        if name.startswith((".", "__pycache__")) or name in results:
            continue
        if path.is_dir():
            if not _is_output(path):
                yield from _data_files(path, above | {place})
        elif path.is_file():
            yield path


def _is_output(folder: Path) -> bool:
    """Return whether a folder is the folder of a run, finished or not, or of a sweep."""
    names = [path.name for path in folder.iterdir()]
    if not OUTPUTS.keys().isdisjoint(names):
        return True
    # While the first files of a run are written, only their temporary folder is there.
    return bool(fnmatch.filter(names, TEMPORARY))


def file_digest(path: Path) -> str:
    """Return a digest of the content of a file; `UNREADABLE` if it cannot be read. Raise OSError if there is none."""
    path.stat()  # raises an error if there is no such file
    try:
        return digest_of_file(path)
    except OSError:
        return UNREADABLE


def digest_of(parts: Mapping[str, str]) -> str:
    """Return one digest of named digests."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def module_digest(name: str) -> str:
    """Return a digest of a user's module or package, and of the modules that it imports from the same folder.

    The digest of Python's own modules is empty, because a run's key contains Python's version. The digest of a missing
    module is empty as well, because importing the module reports the error.

    Raise InvalidConfigError if the code of the module is in no file.
    """
    origins = _origins(name)
    if origins is None:
        raise InvalidConfigError(
            f"{name}: the code of this module is in no file, so its changes would not be noticed; "
            "move the code into a file"
        )
    return "".join(_origin_digest(origin) for origin in origins)


def _origin_digest(first: Path) -> str:
    """Return a digest of the files of a module, and of the modules in the same folder that it imports.

    Of an installed module, imports are not followed.
    """
    root = first.parent
    files = set[Path]()
    visited = set[Path]()
    origins = [first]
    while origins:
        origin = origins.pop()
        # Installed packages, which most modules import, lie elsewhere. Listing their files takes seconds.
        if origin in visited or origin.parent != root:
            continue
        visited.add(origin)
        code = set(_code_files(origin)) if origin.is_dir() else {origin}
        # All installed packages lie in one folder, so following their imports would read half of them.
        if root.name not in INSTALLED:
            for path in code - files:
                for name in _imported_modules(path):
                    origins += _origins(name) or ()
        files |= code
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
    origins = []
    for place in places:
        # Installers list places that do not exist, and a package in an archive has no files.
        if place is not None and Path(place).exists():
            origins.append(Path(place).resolve())
    if not origins:
        return None
    return origins


def _imported_modules(path: Path) -> set[str]:
    """Return the top-level modules that a source file imports by absolute names."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # compiled, or importing it reports the error
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        # A relative import is from the same package, whose files all count anyway.
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    # The code of polluxsim is another part of the key.
    return names - {"polluxsim"}


def _code_files(folder: Path) -> list[Path]:
    """Return the files of a package that Python may import, compiled ones too."""
    return sorted(path for path in folder.rglob("*") if path.name.endswith(CODE_ENDINGS))


def key_of(config: Mapping[str, Any]) -> str:
    """Return the key of a run from its resolved configuration without Hydra's own: equal keys mean equal results.

    Raise InvalidConfigError if a class or a metric of the user is in no file.
    """
    parts = {
        "config": _plain(_of_results(config)),
        "data": dict(sorted(data_of(config).items())),
        "code": code_digest(),
        "guests": {name: module_digest(name) for name in sorted(own_modules(config) | metric_modules(config))},
        "versions": library_versions(),
        "python": platform.python_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _of_results(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that change no result."""
    # One level of copies suffices, because a setting without a result is directly in its group.
    settings = {group: copy(part) for group, part in config.items()}
    for name in WITHOUT_RESULT:
        group, _, setting = name.partition(".")
        if isinstance(settings.get(group), dict):
            settings[group].pop(setting, None)
    return settings


def _plain(value: Any) -> Any:
    """Return settings in which each whole number is an integer: 1.0 becomes 1."""
    # 1 and 1.0 are the same setting, but different JSON.
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def data_of(config: Any) -> dict[str, str]:
    """Return the digests of the files and folders that settings name, by the name in the settings.

    A setting counts if its value names a file, or if its name is `path` or ends with `_path` and its value names a
    folder. A policy with the folder of a run replays its allocations. Elsewhere, the tables of a run in a folder do not
    count.
    """
    digests = {}
    replayed = {value for _, value in _texts(config.get("policy"))}
    # A file counts under any name of a setting, because classes of the user name their settings as they like. A folder
    # counts only as a path: a word like `data` may by chance be the name of a folder here.
    for name, value in _texts(config):
        path = Path(value)
        is_name_of_path = name == "path" or name.endswith("_path")
        if _exists_as(Path.is_file, path):
            digests[value] = file_digest(path)
        elif value in replayed and _exists_as(Path.is_file, path / ALLOCATIONS_FILE):
            digests[value] = file_digest(path / ALLOCATIONS_FILE)
        elif is_name_of_path and _exists_as(Path.is_dir, path):
            digests[value] = folder_digest(path)
    return digests


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that results depend on."""
    return {name: version(name) for name in LIBRARIES}


def versions() -> dict[str, str]:
    """Return the versions that run.json states: of Python, of this package and of libraries."""
    stated = {"polluxsim": __version__, "python": platform.python_version()}
    for name in STATED:
        stated[name] = version(name)
    return stated


# Git takes some hundredths of a second, and the code of a process does not change.
@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Return the commit of the checkout of this code, with "+" if files differ from it; None without a checkout."""
    if not (PACKAGE.parent / ".git").exists():
        return None
    try:
        commit = _git("rev-parse", "HEAD")
        if _git("status", "--porcelain", "--", "polluxsim", "configs"):
            commit += "+"
        return commit
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    # Without optional locks: a run that is killed leaves no lock in the user's checkout.
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE.parent), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the code on which results depend, and of the shipped cards and workloads."""
    code = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.relative_to(PACKAGE)
        if source.parts[0] not in WITHOUT_INFLUENCE or source.as_posix() in EXECUTING:
            code[source.as_posix()] = file_digest(path)
    data = {name: folder_digest(shipped(name)) for name in ("traces", "workloads")}
    return digest_of({**code, **data})


def _texts(config: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each setting that is text and not empty."""
    if isinstance(config, dict):
        for key, value in config.items():
            yield from _texts(value, str(key))
    elif isinstance(config, list):
        for value in config:
            yield from _texts(value, name)
    elif isinstance(config, str) and config:
        yield name, config


def _exists_as(kind: Callable[[Path], bool], path: Path) -> bool:
    """Return `Path.is_file` or `Path.is_dir` of a path; False for text that cannot be a path."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False


def own_modules(config: Any) -> set[str]:
    """Return the top-level modules of the classes outside polluxsim that a configuration names."""
    modules = set[str]()
    for name, value in _texts(config):
        # A rule without a dot is one of polluxsim's own.
        if name in CLASS_SETTINGS and "." in value:
            modules.add(value.partition(".")[0])
    return modules - {"polluxsim"}
